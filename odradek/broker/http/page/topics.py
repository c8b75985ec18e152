"""The views of topics: the list of topics, one topic with its settings, and one partition with its timeline."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from odradek.broker.configuration.config_description import describe_topic
from odradek.broker.http.page.history import steps_of, steps_start
from odradek.broker.http.page.partition_timeline import runs_of, timeline
from odradek.broker.http.page.picture import Lane, holds_of, picture, timeline_events
from odradek.broker.http.page.served import SHOWN, Job, JsonValue, Query, View, ViewedBroker, name_order, order_of
from odradek.broker.http.page.transactions import (
    all_ids,
    bounds,
    held_back_view,
    held_in,
    holders,
    is_held,
    timeline_ahead,
)
from odradek.files.checkpoints import topic_id_text
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import INTERNAL_TOPICS, TRANSACTION_STATE

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.partitions.partition import Partition
    from odradek.broker.transactions.entry import Txn
    from odradek.storage.log import Log


SORTED_BY = ("name", "partitions", "records", "size_bytes", "bytes_in_total", "bytes_out_total", "held_records")


async def topics(served: ViewedBroker, query: Query) -> View | Job:
    """Lists topics, by default sorted by name with internal topics last. `find` is a substring of the name; for `sort`
    and `from`, see `Order`."""
    part, order = query.get("find", ""), order_of(query, SORTED_BY)
    members: dict[str, list[Partition]] = {}

    def add(partition: Partition) -> None:
        if part in partition.topic:
            members.setdefault(partition.topic, []).append(partition)

    await served.visit(served.broker.partitions, add)
    keys: dict[str, tuple[bool, str]] = {}
    await served.visit(list(members), lambda name: keys.update({name: (name in INTERNAL_TOPICS, name_order(name))}))
    names = sorted(members, key=keys.__getitem__)
    rows: list[dict[str, JsonValue]] = []
    shown = names if order.by else names[order.start : order.end]
    await served.visit(shown, lambda name: rows.append(row(name, members[name])))
    listed: dict[str, JsonValue] = {"total": len(names), "from": order.start}
    if not order.by:
        return {**listed, "topics": rows}
    return lambda: {**listed, "topics": order.visible_rows(rows)}


def row(name: str, members: list[Partition]) -> dict[str, JsonValue]:
    return {
        "name": name,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": len(members),
        "records": sum(each.log.log_end_offset - each.log.log_start_offset for each in members),
        "size_bytes": sum(each.log.size_bytes for each in members),
        "bytes_in_total": sum(each.bytes_in for each in members),
        "bytes_out_total": sum(each.bytes_out for each in members),
        "held_records": sum(max(0, each.log.high_watermark - each.log.last_stable_offset) for each in members),
    }


PARTITIONS_SORTED_BY = (
    *("partition", "log_start_offset", "last_stable_offset", "high_watermark", "size_bytes"),
    *("segments", "leader_epoch", "producers"),
)
SETTINGS_SORTED_BY = ("name", "source")  # columns of the settings list, which the page itself sorts


async def topic(served: ViewedBroker, query: Query) -> View | Job:
    """Shows the topic `name` with its partitions. `sort` and `from` apply to the partitions; see `Order`. Raises
    KafkaError if the topic does not exist."""
    broker, name = served.broker, query["name"]
    order = order_of(query, (*PARTITIONS_SORTED_BY, *SETTINGS_SORTED_BY))
    image = broker.metadata.image.topics.get(name)
    if image is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}.")
    members = sorted((each for each in broker.partitions if each.topic == name), key=lambda each: each.index)
    names = holders(broker)
    rows: list[dict[str, JsonValue]] = []
    is_sorted = order.by in PARTITIONS_SORTED_BY
    shown = members if is_sorted else members[order.start : order.end]
    await served.visit(shown, lambda each: rows.append(partition_row(each, names)))
    fields: dict[str, JsonValue] = {
        "name": name,
        "total": len(members),
        "from": order.start,
        "topic_id": topic_id_text(image.topic_id),
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": rows,
        "settings": [
            {
                "name": each.name,
                "value": None if each.is_sensitive else each.value,
                "source": each.source.name,
            }
            for each in describe_topic(broker.config, broker.metadata.image.topic_configs(name), broker.rules)
        ],
    }
    return (lambda: {**fields, "partitions": order.visible_rows(rows)}) if is_sorted else fields


def partition_row(each: Partition, names: Mapping[int, str]) -> dict[str, JsonValue]:
    """Returns the row of a partition.

    names  see `holders`
    """
    log = each.log
    return {
        "partition": each.index,
        "log_start_offset": log.log_start_offset,
        "last_stable_offset": log.last_stable_offset,
        "high_watermark": log.high_watermark,
        "log_end_offset": log.log_end_offset,
        "size_bytes": log.size_bytes,
        "segments": len(log.segments),
        "leader_epoch": log.leader_epoch,
        "producers": len(log.producers()),
        "offline": log.offline_reason,
        "held": held_back_view(each, names) if is_held(each) else None,
    }


WRITERS = 20  # number of producers whose steps are searched, starting with the most recent writers


async def partition(served: ViewedBroker, query: Query) -> Job:
    """Shows the timeline of the partition that `topic` and `partition` name. The timeline begins at `offset`; if
    `offset` is missing, the timeline shows the end of the log. Raises KafkaError if the partition does not exist."""
    try:
        index = int(query.get("partition", "0"))
        offset = int(query["offset"]) if query.get("offset") else None
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "partition and offset must be whole numbers.") from None
    broker, topic = served.broker, query["topic"]
    found = broker.partitions.get(topic, index)
    txns = await writers(found, served)
    log = found.log
    start, end = bounds(found, offset)
    now: dict[str, JsonValue] = {
        "topic": topic,
        "partition": index,
        "log_start_offset": log.log_start_offset,
        "last_stable_offset": log.last_stable_offset,
        "high_watermark": log.high_watermark,
        "leader_epoch": log.leader_epoch,
        "held": held_in(found, broker),
        "start": start,
        "next": end,
    }
    place = (topic, index)
    names = {producer_id: txn.transactional_id for txn in txns for producer_id in producer_ids(txn)}
    logs = {txn.transactional_id: state_log(txn.transactional_id, broker) for txn in txns}
    ahead: list[JsonValue] = [
        {**each, "id": txn.transactional_id, "by": "coordinator", "offset": None, "is_broker_time": True}
        for txn in txns
        if place in txn.partitions and end == log.high_watermark
        for each in timeline_ahead(txn)
    ]

    lanes = [Lane("coordinator"), Lane(str(found), log.last_stable_offset, log.high_watermark)]
    holds = holds_of(served.holds(), partition=str(found))

    def job() -> View:
        steps = {name: steps_of(of.reader.scan(steps_start(of)), name) for name, of in logs.items()}
        runs = runs_of(log.reader.scan(start, end), start, end)[-SHOWN:]
        all_steps = [*timeline(runs, place, steps, names), *ahead]
        return {**now, "timeline": all_steps, "picture": picture(lanes, timeline_events(all_steps, runs), holds)}

    return job


async def writers(found: Partition, served: ViewedBroker) -> list[Txn]:
    """Returns the transactional ids that wrote to a partition last and are still known to their coordinators. Returns
    an empty list while a coordinator is loading."""
    entries = sorted(
        found.log.producers(), key=lambda each: each.current_txn_first_offset or each.last_data_offset or 0
    )
    shown = {each.producer_id for each in entries[-WRITERS:]}
    by: list[Txn] = []

    def add(txn: Txn) -> None:
        if not shown.isdisjoint(producer_ids(txn)):
            by.append(txn)

    with suppress(KafkaError):  # a coordinator is loading
        await served.visit(await all_ids(served), add)
    return by


def producer_ids(txn: Txn) -> tuple[int, int]:
    """Returns two producer ids: the id in the transaction's records, and the id of the current owner of the
    transactional id."""
    return txn.producer_id, txn.client_pair[0]


def state_log(transactional_id: str, broker: Broker) -> Log:
    return broker.partitions.get(TRANSACTION_STATE, broker.transactions.partition_for(transactional_id)).log
