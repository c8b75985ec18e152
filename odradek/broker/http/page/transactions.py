"""The views of transactional ids and of the transactions for which read_committed consumers have to wait.

The list begins with transactions that an external coordinator must decide. The views also describe what will end each
transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from heapq import nsmallest
from shlex import quote
from typing import TYPE_CHECKING

from odradek.broker.http.page.history import TxnStep, steps_of, steps_start
from odradek.broker.http.page.partition_timeline import BatchRun, runs_of, transactions_of
from odradek.broker.http.page.picture import (
    MAX_LANES,
    Lane,
    holds_of,
    last_transaction,
    picture,
    runs_of_last,
    step_event,
    transaction_events,
)
from odradek.broker.http.page.served import SHOWN, Job, JsonValue, Order, Query, View, ViewedBroker, order_of
from odradek.broker.http.page.shares import pending_by_producer, places_of
from odradek.broker.runtime.workers import in_thread
from odradek.broker.transactions.entry import Txn
from odradek.broker.transactions.tables import TxnState
from odradek.protocol.errors import KafkaError
from odradek.protocol.topic_partition import TRANSACTION_STATE, TopicPartition

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.coordinators.shard import Shard
    from odradek.broker.partitions.partition import Partition
    from odradek.broker.transactions.core import TransactionCore

UNKNOWN = "This transactional id is unknown: it was never used, or it has expired."
# Ranks, in the order of the list: transactions that an external coordinator must decide, open transactions, decided
# transactions that are not complete, and complete transactions.
IN_DOUBT, OPEN, ENDING, ENDED = range(4)


async def all_ids(served: ViewedBroker) -> list[Txn]:
    """Returns all transactional ids. Raises KafkaError while a coordinator is loading."""
    found: list[Txn] = []

    def add(shard: Shard[TransactionCore]) -> None:
        found.extend(shard.read_state(lambda core: core.entries()))

    if served.broker.has_started("transactions"):
        await served.visit(served.broker.transactions.shards, add)
    return found


def open_ids(broker: Broker) -> list[Txn]:
    """Returns the transactional ids whose transaction is open, or decided but not complete.

    Raises KafkaError while a coordinator is loading.
    """
    if not broker.has_started("transactions"):
        return []
    return [txn for shard in broker.transactions.shards for txn in shard.read_state(lambda core: core.open_entries())]


def rank(txn: Txn) -> int:
    if txn.state is TxnState.ONGOING:
        return IN_DOUBT if txn.is_two_phase else OPEN
    return ENDING if txn.is_prepared else ENDED


async def transaction_counts(served: ViewedBroker) -> JsonValue:
    """Returns the number of transactional ids by rank, or None while a coordinator is loading."""
    broker = served.broker
    ids = 0
    ranks: Counter[int] = Counter()
    oldest: Txn | None = None

    def count(shard: Shard[TransactionCore]) -> None:
        nonlocal ids, oldest
        ids += shard.read_state(lambda core: core.id_count)
        for txn in shard.read_state(lambda core: core.open_entries()):
            ranks[rank(txn)] += 1
            if txn.state is TxnState.ONGOING and (oldest is None or (txn.started_ms or 0) < (oldest.started_ms or 0)):
                oldest = txn

    try:
        if broker.has_started("transactions"):
            await served.visit(broker.transactions.shards, count)
    except KafkaError:
        return None
    return {
        "ids": ids,
        "open": ranks[IN_DOUBT] + ranks[OPEN],
        "in_doubt": ranks[IN_DOUBT],
        "ending": ranks[ENDING],
        "oldest": None if oldest is None else {"id": oldest.transactional_id, "since_ms": oldest.started_ms},
    }


async def transactions(served: ViewedBroker, query: Query) -> View | Job:
    """Lists transactional ids, by default by rank and age. `find` is a substring of the id; for `sort` and `from`, see
    `Order`."""
    part, order = query.get("find", ""), order_of(query, tuple(SORT_KEYS))
    try:
        ids = await all_ids(served)
    except KafkaError as error:
        return {"loading": str(error), "transactions": [], "states": {}, "total": 0, "from": 0, "held": []}
    held = await held_partitions(served)
    pending = await pending_by_producer(served)

    now_ms = served.broker.clock.now_ms()

    def job() -> View:  # runs in a thread because there can be very many ids, not because it reads the disk
        found = [txn for txn in ids if part in txn.transactional_id]
        return {
            "total": len(found),
            "from": order.start,
            "now_ms": now_ms,
            "states": Counter(txn.state.kafka_name for txn in found),
            "transactions": [
                {
                    **transaction_row(txn),
                    "pending_records": None if pending is None else pending.get(txn.producer_id, 0),
                }
                for txn in in_order(found, order)
            ],
            "held": held,
        }

    return job


def in_order(ids: list[Txn], order: Order) -> list[Txn]:
    if not order.by:
        return nsmallest(order.end, ids, key=place)[order.start :]
    return sorted(ids, key=SORT_KEYS[order.by], reverse=order.is_down)[order.start : order.end]


SORT_KEYS: Mapping[str, Callable[[Txn], str | int]] = {
    "id": lambda txn: txn.transactional_id,
    "state": lambda txn: txn.state.kafka_name,
    "producer_id": lambda txn: txn.producer_id,
}


def place(txn: Txn) -> tuple[int, int]:
    """Returns the sort key of a transactional id in the list."""
    of = rank(txn)
    return of, (txn.started_ms or 0 if of < ENDED else -txn.updated_ms)


async def transaction(served: ViewedBroker, query: Query) -> View | Job:
    """Shows the transactional id `id`: its state, and the past steps that `__transaction_state` still contains.

    Raises KafkaError while the coordinator is loading.
    """
    broker, name = served.broker, query["id"]
    if not broker.has_started("transactions"):
        return {"id": name, "state": None, "words": UNKNOWN, "partitions": [], "timeline": [], "picture": None}
    shard = broker.transactions.shard_for(name)
    log = broker.partitions.get(TRANSACTION_STATE, broker.transactions.partition_for(name)).log
    start = steps_start(log)
    steps = await in_thread(broker.workers, lambda: steps_of(log.reader.scan(start), name))
    txn = shard.read_state(lambda core: core.txn(name))
    unknown: dict[str, JsonValue] = {"id": name, "state": None, "words": UNKNOWN, "partitions": []}
    now = unknown if txn is None else {**transaction_row(txn), "pending": pending_shares(txn, broker)}
    if txn is not None and rank(txn) < ENDED:
        now["now_ms"] = broker.clock.now_ms()
    expected = timeline_ahead(txn)
    drawn = transaction_picture(served, name, steps, expected, release_condition(txn))

    def job() -> View:
        return {**now, "timeline": [*(each.as_view() for each in steps[-SHOWN:]), *expected], "picture": drawn()}

    return job


def transaction_picture(
    served: ViewedBroker,
    name: str,
    steps: Sequence[TxnStep],
    expected: Sequence[Mapping[str, JsonValue]],
    until: str | None,
) -> Callable[[], View | None]:
    """Returns a function that draws the last transaction of an id. The function must run in a thread, since it reads
    from the disk.

    expected  future events, from `timeline_ahead`
    until     see `release_condition`
    """
    last = last_transaction(transactions_of(steps))
    if last is None:
        return lambda: None
    producer_id = next(each.txn.producer_id for each in last.steps if each.txn is not None and each.txn.partitions)
    lanes = [Lane("coordinator")]
    reads: dict[TopicPartition, Callable[[], list[BatchRun]]] = {}
    for place in sorted(last.partitions)[:MAX_LANES]:
        try:
            partition = served.broker.partitions.get(*place)
        except KafkaError:  # the partition has been deleted
            continue
        log = partition.log
        lanes.append(Lane(str(partition), log.last_stable_offset, log.high_watermark))
        entry = next((each for each in log.producers() if each.producer_id == producer_id), None)
        first_offset = None if entry is None else entry.current_txn_first_offset
        reads[place] = partial(last_runs, partition, producer_id, first_offset, last.decided_ms)
    holds = holds_of(served.holds(), transactional_id=name, producer_id=producer_id)

    def draw() -> View:
        events = transaction_events(last, {place: read() for place, read in reads.items()})
        for each in expected:
            events.append(step_event(str(each["what"]), "ahead", int(str(each["at_ms"])), is_ahead=True))
        return picture(lanes, events, holds, until)

    return draw


def last_runs(
    partition: Partition, producer_id: int, first_offset: int | None, decided_ms: int | None
) -> list[BatchRun]:
    """Returns the runs of a producer's last transaction in a partition.

    first_offset  first offset of the transaction in the partition, or None if the transaction is not open there
    """
    start, end = bounds(partition, first_offset)
    runs = runs_of(partition.log.reader.scan(start, end), start, end)
    return runs_of_last(runs, producer_id, is_open=first_offset is not None, decided_ms=decided_ms)


RECORDS_READ = 1000
BYTES_READ = 16 << 20


def bounds(found: Partition, offset: int | None) -> tuple[int, int]:
    """Returns the range of offsets to read. The range has `RECORDS_READ` offsets, or fewer if records are large or the
    log is shorter."""
    log = found.log
    count = max(1, log.log_end_offset - log.log_start_offset)
    records = min(RECORDS_READ, max(1, BYTES_READ * count // max(1, log.size_bytes)))
    start = log.high_watermark - records if offset is None else offset
    start = min(max(start, log.log_start_offset), log.high_watermark)
    return start, min(start + records, log.high_watermark)


def timeline_ahead(txn: Txn | None) -> list[dict[str, JsonValue]]:
    """Returns the events that will happen without a request. The only such event is the timeout of an open
    transaction."""
    if txn is None or txn.state is not TxnState.ONGOING or txn.is_two_phase or txn.started_ms is None:
        return []
    return [
        {"kind": "ahead", "at_ms": txn.started_ms + txn.timeout_ms, "what": "its timeout: the coordinator aborts it"}
    ]


def transaction_row(txn: Txn) -> dict[str, JsonValue]:
    producer_id, producer_epoch = txn.client_pair
    words, call = end_condition(txn)
    return {
        "id": txn.transactional_id,
        "state": txn.state.kafka_name,
        "rank": rank(txn),
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "timeout_ms": None if txn.is_two_phase else txn.timeout_ms,
        "started_ms": txn.started_ms,
        "updated_ms": txn.updated_ms,
        "is_kept": txn.is_kept,
        "partitions": [f"{topic}-{index}" for topic, index in sorted(txn.partitions)],
        "words": words,
        "call": call,
    }


def pending_shares(txn: Txn, broker: Broker) -> JsonValue:
    """Returns the share partitions with acknowledgements that are waiting for this transaction to end.

    Returns None while the share coordinator is loading.
    """
    if not broker.has_started("share_coordinator"):
        return []
    try:
        return places_of(broker.share_coordinator.pending_of(txn.producer_id), broker)
    except KafkaError:
        return None


def release_condition(txn: Txn | None) -> str | None:
    """Returns the end of the sentence "read_committed consumers wait …", or None if no consumer is waiting for the
    transaction."""
    if txn is None:
        return None
    match txn.state:
        case TxnState.ONGOING if txn.is_two_phase:
            return "until its application commits or aborts it"
        case TxnState.ONGOING:
            return "until its producer commits or aborts it, or its timeout aborts it"
        case TxnState.PREPARE_COMMIT | TxnState.PREPARE_ABORT:
            return "until its marker is written there"
        case _:
            return None


def end_condition(txn: Txn) -> tuple[str, str | None]:
    """Returns a description of what will end a transaction, and the command that a user can run to end it. The command
    is None if a user cannot end the transaction."""
    name = quote(txn.transactional_id)
    match txn.state:
        case TxnState.ONGOING if txn.is_two_phase:
            return (
                (
                    "Prepared, or about to be prepared: only the application's own coordinator may commit or abort the"
                    " transaction."
                ),
                f"odradek transactions force-terminate --transactional-id {name}",
            )
        case TxnState.ONGOING:
            return (
                "Open: the producer ends the transaction, or the coordinator aborts it at its timeout.",
                f"odradek transactions abort --transactional-id {name}",
            )
        case TxnState.PREPARE_COMMIT | TxnState.PREPARE_ABORT:
            return (
                "Decided: markers are being written to the partitions of the transaction. Nothing can change the"
                " decision."
            ), None
        case TxnState.COMPLETE_COMMIT:
            return "Committed: all readers see its records.", None
        case TxnState.COMPLETE_ABORT:
            return "Aborted: readers of committed data never see its records.", None
        case _:
            return "No transaction since the last InitProducerId.", None


async def held_partitions(served: ViewedBroker) -> list[JsonValue]:
    """Returns at most `SHOWN` partitions in which read_committed consumers are waiting."""
    held: list[Partition] = []

    def add(partition: Partition) -> None:
        if len(held) < SHOWN and not partition.is_deleted and is_held(partition):
            held.append(partition)

    await served.visit(served.broker.partitions, add)
    names = holders(served.broker) if held else {}
    return [held_back_view(each, names) for each in held]


def is_held(partition: Partition) -> bool:
    log = partition.log
    return log.last_stable_offset < log.high_watermark


def held_in(partition: Partition, broker: Broker) -> JsonValue:
    """Returns the open transaction that makes read_committed consumers of a partition wait, in the same form as
    `held_back_view`. Returns None if these consumers can read all records."""
    return held_back_view(partition, holders(broker)) if is_held(partition) else None


def holders(broker: Broker) -> Mapping[int, str]:
    """Returns the transactional ids whose transaction is open or incomplete, keyed by the producer id in its records.
    Returns an empty mapping while a coordinator is loading."""
    with suppress(KafkaError):
        return {txn.producer_id: txn.transactional_id for txn in open_ids(broker)}
    return {}  # a coordinator is loading


def held_back_view(partition: Partition, names: Mapping[int, str]) -> JsonValue:
    """Returns the open transaction that makes read_committed consumers of a partition wait."""
    log = partition.log
    open_ = [entry for entry in log.producers() if entry.current_txn_first_offset is not None]
    oldest = min(open_, key=lambda entry: entry.current_txn_first_offset or 0, default=None)
    return {
        "partition": str(partition),
        "from_offset": log.last_stable_offset,
        "records": log.high_watermark - log.last_stable_offset,
        "holder": None if oldest is None else {
            "producer_id": oldest.producer_id,
            "transactional_id": names.get(oldest.producer_id),  # None if the transactional id is not known
            "last_record_ms": oldest.last_timestamp,
        },
    }  # fmt: skip
