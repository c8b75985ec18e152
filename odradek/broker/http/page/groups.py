"""The views of groups of all types: their list, and one group with its members, lag and history."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.facts.groups import group as group_facts
from odradek.broker.facts.groups import offsets
from odradek.broker.http.page.history import group_history
from odradek.broker.http.page.served import SHOWN, Job, JsonValue, Query, View, ViewedBroker
from odradek.files.checkpoints import topic_id_text
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import GROUP_OFFSETS

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.coordinators.shard import Shard
    from odradek.broker.groups.core import GroupCore
    from odradek.protocol.messages.list_groups_response import ListedGroup

HISTORY_RECORDS = 100_000  # records that are searched in the group's partition, which other groups use as well


async def groups(served: ViewedBroker, query: Query) -> View:
    """Lists groups. `find`: only those whose id contains this text."""
    broker = served.broker
    if not broker.has_started("groups"):
        return {"total": 0, "groups": []}
    part = query.get("find", "")
    found: list[tuple[Shard[GroupCore], ListedGroup]] = []

    def find(shard: Shard[GroupCore]) -> None:
        if not shard.is_away:
            listed = shard.look(lambda core: core.list_groups((), ()))
            found.extend((shard, each) for each in listed if part in each.group_id)

    await served.visit(broker.groups.shards, find)
    rows: list[JsonValue] = []

    def show(each: tuple[Shard[GroupCore], ListedGroup]) -> None:
        shard, listed = each
        if not shard.is_away:
            rows.append(shard.look(partial(group_row, listed, broker)))

    await served.visit(found[:SHOWN], show)
    return {"total": len(found), "groups": rows}


def group_row(listed: ListedGroup, broker: Broker, core: GroupCore) -> JsonValue:
    positions = offsets(core, listed.group_id, broker)
    lags = [each.lag for each in positions if each.lag is not None]
    return {
        "id": listed.group_id,
        "type": listed.group_type,
        "state": listed.group_state,
        "protocol": listed.protocol_type,
        "partitions": len(positions),
        "lag": sum(lags) if lags else None,
    }


def group(served: ViewedBroker, query: Query) -> Job:
    """Shows the group `id`, with its history as far as `__consumer_offsets` still contains it.

    Raises KafkaError if the group does not exist.
    """
    broker, name = served.broker, query["id"]
    facts = group_facts(broker, name)
    if facts is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {name}.")
    positions = broker.groups.shard_for(name).look(lambda core: offsets(core, name, broker))
    now: dict[str, JsonValue] = {
        **facts._asdict(),
        "members": [each._asdict() for each in facts.members],
        "offsets": [each._asdict() for each in positions],
    }
    log = broker.partitions.get(GROUP_OFFSETS, broker.groups.partition_for(name)).log
    start = max(log.log_start_offset, log.log_end_offset - HISTORY_RECORDS)
    topics = {topic_id_text(topic_id): each.name for topic_id, each in broker.metadata.image.topics_by_id.items()}
    return lambda: {**now, "history": group_history(log.reader.scan(start), name, topics)}
