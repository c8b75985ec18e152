"""One partition: how far it reaches, who holds readers back, and a timeline of its batches and transactions."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from odradek.broker.control.page.partition_timeline import runs_of, timeline
from odradek.broker.control.page.served import SHOWN
from odradek.broker.control.page.transaction_steps import steps_of, steps_start
from odradek.broker.control.page.transactions import all_ids, held_in, timeline_ahead
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TRANSACTION_STATE

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.control.page.json_value import JsonValue, View
    from odradek.broker.control.page.served import Job, Query, Served
    from odradek.broker.partitions.partition import Partition
    from odradek.broker.transactions.entry import Txn
    from odradek.storage.log import Log

RECORDS_READ = 1000
BYTES_READ = 16 << 20
WRITERS = 20  # producers whose steps are looked for: those that wrote last


async def partition(served: Served, query: Query) -> Job:
    """`topic`, `partition`; `offset`: where to begin, near the end if it is missing. Raises KafkaError."""
    try:
        index = int(query.get("partition", "0"))
        offset = int(query["offset"]) if query.get("offset") else None
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Partition and offset are whole numbers.") from None
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
        {**each, "id": txn.transactional_id, "by": "coordinator", "offset": None}
        for txn in txns
        if place in txn.partitions and end == log.high_watermark
        for each in timeline_ahead(txn)
    ]

    def job() -> View:
        steps = {name: steps_of(of.reader.scan(steps_start(of)), name) for name, of in logs.items()}
        runs = runs_of(log.reader.scan(start, end), start, end)[-SHOWN:]
        return {**now, "timeline": [*timeline(runs, place, steps, names), *ahead]}

    return job


def bounds(found: Partition, offset: int | None) -> tuple[int, int]:
    """What is read: `RECORDS_READ` records, or fewer where they are large."""
    log = found.log
    count = max(1, log.log_end_offset - log.log_start_offset)
    records = min(RECORDS_READ, max(1, BYTES_READ * count // max(1, log.size_bytes)))
    start = log.high_watermark - records if offset is None else offset
    start = min(max(start, log.log_start_offset), log.high_watermark)
    return start, min(start + records, log.high_watermark)


async def writers(found: Partition, served: Served) -> list[Txn]:
    """The transactional ids that wrote to it last, as far as coordinators know them."""
    entries = sorted(
        found.log.producers(), key=lambda each: each.current_txn_first_offset or each.last_data_offset or 0
    )
    wanted = {each.producer_id for each in entries[-WRITERS:]}
    by: list[Txn] = []

    def add(txn: Txn) -> None:
        if not wanted.isdisjoint(producer_ids(txn)):
            by.append(txn)

    with suppress(KafkaError):  # while they are loaded
        await served.visit(await all_ids(served), add)
    return by


def producer_ids(txn: Txn) -> tuple[int, int]:
    """That of its records; while it is kept, that of its next ones too."""
    return txn.producer_id, txn.client_pair[0]


def state_log(transactional_id: str, broker: Broker) -> Log:
    return broker.partitions.get(TRANSACTION_STATE, broker.transactions.partition_for(transactional_id)).log
