"""The views of groups of all types: the list of groups, and one group with its members, lag and history."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.facts.groups import group as group_named
from odradek.broker.facts.groups import group_facts, lag_of, positions
from odradek.broker.facts.streams_groups import StreamsFacts, streams_facts
from odradek.broker.http.page.history import group_history
from odradek.broker.http.page.served import SHOWN, Job, JsonValue, Query, View, ViewedBroker, name_order, order_of
from odradek.broker.runtime.workers import in_thread
from odradek.files.checkpoints import topic_id_text
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import GROUP_OFFSETS

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.coordinators.shard import Shard
    from odradek.broker.groups.core import GroupCore
    from odradek.protocol.messages.list_groups_response import ListedGroup

# Maximum number of records to search in the group's partition, which also contains records of other groups.
HISTORY_RECORDS = 100_000


SORTED_BY = ("id", "type", "state", "partitions", "lag", "uncommitted")
DETAILS_SORTED_BY = (  # columns of the member and offset lists, which the page itself sorts
    *("id", "client", "host", "epoch"),
    *("partition", "committed", "end", "lag", "committed_ms"),
)


async def groups(served: ViewedBroker, query: Query) -> View | Job:
    """Lists groups. `find` is a substring of the id; for `sort` and `from`, see `Order`."""
    broker, order = served.broker, order_of(query, SORTED_BY)
    if not broker.has_started("groups"):
        return {"total": 0, "from": 0, "groups": []}
    part = query.get("find", "")
    found: list[tuple[Shard[GroupCore], ListedGroup]] = []

    def find(shard: Shard[GroupCore]) -> None:
        if not shard.is_away:
            listed = shard.read_state(lambda core: core.list_groups((), ()))
            found.extend((shard, each) for each in listed if part in each.group_id)

    await served.visit(broker.groups.shards, find)
    found = await in_thread(broker.workers, lambda: sorted(found, key=lambda each: name_order(each[1].group_id)))
    rows: list[dict[str, JsonValue]] = []

    def show(each: tuple[Shard[GroupCore], ListedGroup]) -> None:
        shard, listed = each
        if not shard.is_away:
            rows.append(shard.read_state(partial(group_row, listed, broker)))

    await served.visit(found if order.by else found[order.start : order.end], show)
    listed: dict[str, JsonValue] = {"total": len(found), "from": order.start}
    if not order.by:
        return {**listed, "groups": rows}
    return lambda: {**listed, "groups": order.visible_rows(rows)}


def group_row(listed: ListedGroup, broker: Broker, core: GroupCore) -> dict[str, JsonValue]:
    found = positions(core, group_facts(listed, core), broker)
    lag = lag_of(found)
    return {
        "id": listed.group_id,
        "type": listed.group_type,
        "state": listed.group_state,
        "protocol": listed.protocol_type,
        "partitions": len(found),
        "lag": lag.records,
        "uncommitted": lag.uncommitted,
    }


def shown_streams(facts: StreamsFacts) -> dict[str, JsonValue]:
    """Returns a streams group as JSON, with at most SHOWN subtopologies and at most SHOWN task owners."""
    subtopologies: list[JsonValue] = [
        {
            **each._asdict(),
            "repartition_sources": [topic._asdict() for topic in each.repartition_sources],
            "changelogs": [topic._asdict() for topic in each.changelogs],
        }
        for each in facts.subtopologies[:SHOWN]
    ]
    return {
        **facts._asdict(),
        "subtopologies": subtopologies,
        "subtopology_count": len(facts.subtopologies),
        "owners": [each._asdict() for each in facts.owners[:SHOWN]],
    }


def group(served: ViewedBroker, query: Query) -> Job:
    """Shows the group `id`, with the part of its history that `__consumer_offsets` still contains. The field `streams`
    is None unless the group is a streams group.

    Raises KafkaError if the group does not exist.
    """
    broker, name, order = served.broker, query["id"], order_of(query, DETAILS_SORTED_BY)
    facts = group_named(broker, name)
    if facts is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {name}.")
    shard = broker.groups.shard_for(name)
    found = shard.read_state(lambda core: positions(core, facts, broker))
    streams = None
    if facts.type == "streams":
        streams = shown_streams(shard.read_state(lambda core: streams_facts(name, core, broker.metadata.image)))
    now: dict[str, JsonValue] = {
        **facts._asdict(),
        "members": [each._asdict() for each in facts.members[:SHOWN]],
        "member_count": len(facts.members),
        "streams": streams,
        "lag": lag_of(found)._asdict(),
        "total": len(found),
        "from": order.start,
        "offsets": [each._asdict() for each in found[order.start : order.end]],
    }
    log = broker.partitions.get(GROUP_OFFSETS, broker.groups.partition_for(name)).log
    start = max(log.log_start_offset, log.log_end_offset - HISTORY_RECORDS)
    topics = {topic_id_text(topic_id): each.name for topic_id, each in broker.metadata.image.topics_by_id.items()}
    return lambda: {**now, "history": group_history(log.reader.scan(start), name, topics)}
