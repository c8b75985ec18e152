"""Transactional ids, those first that somebody has to decide; what holds readers of committed data back, and what
would let them go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from odradek.broker.control.page.served import SHOWN
from odradek.broker.control.page.transaction_steps import steps_of, steps_start
from odradek.broker.transactions.entry import Txn
from odradek.broker.transactions.listing import Filter
from odradek.broker.transactions.tables import TxnState
from odradek.protocol.errors import KafkaError
from odradek.protocol.internal_topics import TRANSACTION_STATE

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.control.page.json_value import JsonValue, View
    from odradek.broker.control.page.served import Job, Query, Served
    from odradek.broker.partitions.partition import Partition
    from odradek.storage.producer_state import ProducerEntry

UNKNOWN = "This id is not known: it was never used, or it expired."
# What comes first: decided outside, open, decided and not complete, done.
IN_DOUBT, OPEN, ENDING, ENDED = range(4)


def all_ids(broker: Broker) -> Iterator[Txn]:
    """Raises KafkaError while they are loaded."""
    if broker.has_started("transactions"):
        for shard in broker.transactions.shards:
            yield from shard.look(lambda core: core.entries())


def rank(txn: Txn) -> int:
    if txn.state is TxnState.ONGOING:
        return IN_DOUBT if txn.is_two_phase else OPEN
    return ENDING if txn.is_prepared else ENDED


def transaction_counts(served: Served) -> JsonValue:
    """None while they are loaded."""
    try:
        found = list(all_ids(served.broker))
    except KafkaError:
        return None
    open_ = [txn for txn in found if txn.state is TxnState.ONGOING]
    oldest = min(open_, key=lambda txn: txn.started_ms or 0, default=None)
    return {
        "ids": len(found),
        "open": len(open_),
        "in_doubt": sum(rank(txn) == IN_DOUBT for txn in open_),
        "ending": sum(txn.is_prepared for txn in found),
        "oldest": None if oldest is None else {"id": oldest.transactional_id, "since_ms": oldest.started_ms},
    }


def transactions(served: Served, query: Query) -> View:
    """`find`: part of an id. Those in doubt first, then by age."""
    broker = served.broker
    part = query.get("find", "")
    try:
        found = [txn for txn in all_ids(broker) if part in txn.transactional_id]
    except KafkaError as error:
        return {"loading": str(error), "transactions": [], "states": {}, "total": 0, "held": []}
    found.sort(key=lambda txn: (rank(txn), txn.started_ms or 0 if rank(txn) < ENDED else -txn.updated_ms))
    states = Counter(txn.state.kafka_name for txn in found)
    return {
        "total": len(found),
        "states": dict(states),
        "transactions": [shown(txn, broker) for txn in found[:SHOWN]],
        "held": [held for partition in broker.partitions if (held := held_back(partition, broker)) is not None][:SHOWN],
    }


def transaction(served: Served, query: Query) -> Job:
    """One id, `id`: what it is now, and its steps as `__transaction_state` still has them. Raises KafkaError."""
    broker, name = served.broker, query["id"]
    nothing: dict[str, JsonValue] = {"id": name, "state": None, "words": UNKNOWN, "partitions": [], "timeline": []}
    if not broker.has_started("transactions"):
        return lambda: nothing
    shard = broker.transactions.shard_for(name)
    txn = shard.look(lambda core: core.txn(name))
    now = nothing if txn is None else shown(txn, broker)
    log = broker.partitions.get(TRANSACTION_STATE, broker.transactions.partition_for(name)).log
    start = steps_start(log)
    expected = timeline_ahead(txn)

    def job() -> View:
        steps = steps_of(log.reader.scan(start), name)[-SHOWN:]
        return {**now, "timeline": [*(each.shown() for each in steps), *expected]}

    return job


def timeline_ahead(txn: Txn | None) -> list[dict[str, JsonValue]]:
    """What comes by itself."""
    if txn is None or txn.state is not TxnState.ONGOING or txn.is_two_phase or txn.started_ms is None:
        return []
    return [
        {"kind": "ahead", "at_ms": txn.started_ms + txn.timeout_ms, "what": "its timeout: the coordinator aborts it"}
    ]


def shown(txn: Txn, broker: Broker) -> dict[str, JsonValue]:
    producer_id, producer_epoch = txn.client_pair
    words, call = what_ends(txn)
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


def what_ends(txn: Txn) -> tuple[str, str | None]:
    """In words, and the command with which a person would do it."""
    name = txn.transactional_id
    match txn.state:
        case TxnState.ONGOING if txn.is_two_phase:
            return (
                "Prepared, or on its way there: only the application's own coordinator commits or aborts it.",
                f"odradek transactions force-terminate --transactional-id {name}",
            )
        case TxnState.ONGOING:
            return (
                "Open: its producer ends it, or the coordinator aborts it at its timeout.",
                f"odradek transactions abort --transactional-id {name}",
            )
        case TxnState.PREPARE_COMMIT | TxnState.PREPARE_ABORT:
            return "Decided; markers are being written to its partitions. Nothing can change the decision.", None
        case TxnState.COMPLETE_COMMIT:
            return "Committed: everybody sees its records.", None
        case TxnState.COMPLETE_ABORT:
            return "Aborted: readers of committed data never see its records.", None
        case _:
            return "No transaction yet.", None


def held_back(partition: Partition, broker: Broker) -> dict[str, JsonValue] | None:
    """The open transaction that readers of committed data wait for; None where they see all there is."""
    log = partition.log
    if log.last_stable_offset >= log.high_watermark:
        return None
    open_ = [entry for entry in log.producers() if entry.current_txn_first_offset is not None]
    oldest = min(open_, key=lambda entry: entry.current_txn_first_offset or 0, default=None)
    return {
        "partition": str(partition),
        "from_offset": log.last_stable_offset,
        "records": log.high_watermark - log.last_stable_offset,
        "holder": None if oldest is None else holder(oldest, broker),
    }


def holder(entry: ProducerEntry, broker: Broker) -> JsonValue:
    wanted = Filter(producer_ids=frozenset((entry.producer_id,)))
    ids = []
    if broker.has_started("transactions"):
        with suppress(KafkaError):  # while they are loaded
            ids = [each.transactional_id for each in broker.transactions.list_transactions(wanted)]
    return {
        "producer_id": entry.producer_id,
        "transactional_id": ids[0] if ids else None,  # None: no coordinator knows it; it hangs, or they are loading
        "last_record_ms": entry.last_timestamp,
    }
