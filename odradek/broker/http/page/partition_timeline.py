"""Builds a partition's timeline from the batches and markers in its log, and the steps of the transaction coordinators.

Events are in offset order. Steps are included if `__transaction_state` still contains them. Batch timestamps come from
the producers' clocks, which may be wrong; marker and step timestamps come from the broker's clock. A step is therefore
placed according to its transaction rather than its time: the beginning comes before the first batch, the decision
before the marker, and the completion after the marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.transactions.tables import TxnState
from odradek.protocol.batch_header import batches
from odradek.protocol.control_records import read_marker

if TYPE_CHECKING:
    from odradek.broker.http.page.history import TxnStep
    from odradek.broker.http.page.served import JsonValue
    from odradek.protocol.topic_partition import TopicPartition

DECIDED = frozenset({TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT})
COMPLETE = frozenset({TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT})
NO_PRODUCER_ID = -1


@dataclass(slots=True)
class BatchRun:
    """Consecutive batches of one producer and transaction, or a single marker.

    first_offset, last_offset  offsets of the first and last record
    is_commit                  True for a commit marker, False for an abort marker; None if the run is not a marker
    is_broker_time             whether `at_ms` is from the broker's clock, not the producer's
    """

    at_ms: int
    first_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    records: int = 0
    batches: int = 0
    is_commit: bool | None = None
    is_broker_time: bool = False

    @property
    def owner(self) -> tuple[int, int, bool, bool, bool]:
        is_data = self.is_commit is None
        return self.producer_id, self.producer_epoch, self.is_transactional, is_data, self.is_broker_time


class PastTransaction(NamedTuple):
    """The steps of one transaction of a transactional id, up to its completion."""

    steps: Sequence[TxnStep]

    @property
    def decided_ms(self) -> int | None:
        return next((each.at_ms for each in self.steps if each.txn is not None and each.txn.state in DECIDED), None)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset().union(*(each.txn.partitions for each in self.steps if each.txn is not None))


def runs_of(portions: Iterable[bytes], start: int, end: int) -> list[BatchRun]:
    """Returns the runs of the batches whose base offsets are in [start, end)."""
    runs: list[BatchRun] = []
    for portion in portions:
        for position, header in batches(portion):
            if not start <= header.base_offset < end:
                continue
            run = BatchRun(
                header.max_timestamp,
                header.base_offset,
                header.last_offset,
                header.producer_id,
                header.producer_epoch,
                header.is_transactional,
                records=header.record_count,
                batches=1,
                is_broker_time=header.is_control or header.is_log_append_time,
            )
            if header.is_control:
                marker = read_marker(portion, position, header)
                if marker is None:
                    continue
                run.is_commit = marker.is_commit
            elif runs and runs[-1].owner == run.owner:
                last = runs[-1]
                last.last_offset, last.at_ms = run.last_offset, max(last.at_ms, run.at_ms)
                last.records += run.records
                last.batches += 1
                continue
            runs.append(run)
    return runs


def transactions_of(steps: Iterable[TxnStep]) -> list[PastTransaction]:
    found: list[list[TxnStep]] = [[]]
    for step in steps:
        found[-1].append(step)
        if step.txn is None or step.txn.state in COMPLETE:
            found.append([])
    return [PastTransaction(each) for each in found if each]


@dataclass(slots=True)
class SurroundingSteps:
    """The coordinator's steps to show before and after a run."""

    before: list[tuple[str, TxnStep]] = field(default_factory=list)
    after: list[tuple[str, TxnStep]] = field(default_factory=list)


def timeline(
    runs: Sequence[BatchRun],
    partition: TopicPartition,
    steps: Mapping[str, Sequence[TxnStep]],
    names: Mapping[int, str],
) -> list[JsonValue]:
    """Returns a partition's events, oldest first.

    steps  the coordinator's steps by transactional id
    names  transactional ids by producer id
    """
    around = [SurroundingSteps() for _ in runs]
    transactions = {name: [each for each in transactions_of(of) if partition in each.partitions]
                    for name, of in steps.items()}  # fmt: skip
    first: dict[int, int] = {}  # producer id → index of the first run of its current transaction
    for at, run in enumerate(runs):
        if not run.is_transactional:
            continue
        if run.is_commit is None:
            first.setdefault(run.producer_id, at)
            continue
        start = first.pop(run.producer_id, at)
        name = names.get(run.producer_id)
        found = None if name is None else decided_before(transactions.get(name, ()), run.at_ms)
        if name is not None and found is not None:
            place(found, name, around[start], around[at])
    for producer_id, at in first.items():  # these transactions have no marker yet
        name = names.get(producer_id)
        of = transactions.get(name, ()) if name is not None else ()
        if name is not None and of and not is_complete(of[-1]):
            place(of[-1], name, around[at], around[-1], is_open=True)
    return [
        event
        for run, steps_around in zip(runs, around, strict=True)
        for event in (
            *(shown_step(name, step) for name, step in steps_around.before),
            shown_run(run, names.get(run.producer_id)),
            *(shown_step(name, step) for name, step in steps_around.after),
        )
    ]


def decided_before(transactions: Sequence[PastTransaction], at_ms: int) -> PastTransaction | None:
    """Returns the transaction that was ended by a marker with the timestamp `at_ms`. Returns None if the transaction is
    not known."""
    found = [each for each in transactions if each.decided_ms is not None and each.decided_ms <= at_ms]
    return found[-1] if found else None


def is_complete(transaction: PastTransaction) -> bool:
    last = transaction.steps[-1].txn
    return last is None or last.state in COMPLETE


def place(
    transaction: PastTransaction, name: str, start: SurroundingSteps, end: SurroundingSteps, *, is_open: bool = False
) -> None:
    """Places a transaction's steps around its runs.

    is_open  whether the transaction has no marker yet. `end` is then the last run, and decisions are placed after that
             run
    """
    for step in transaction.steps:
        state = None if step.txn is None else step.txn.state
        if state in COMPLETE:
            end.after.append((name, step))
        elif state in DECIDED:
            (end.after if is_open else end.before).append((name, step))
        else:
            start.before.append((name, step))


def shown_step(name: str, step: TxnStep) -> JsonValue:
    return {**step.as_view(), "is_broker_time": True, "offset": None, "id": name, "by": "coordinator"}


def shown_run(run: BatchRun, name: str | None) -> JsonValue:
    who = "no producer id" if run.producer_id == NO_PRODUCER_ID else f"producer id {run.producer_id}"
    event: dict[str, JsonValue] = {
        "at_ms": run.at_ms,
        "is_broker_time": run.is_broker_time,
        "offset": run.first_offset,
        "last_offset": run.last_offset,
        "id": name,
        "producer_id": run.producer_id,
        "producer_epoch": run.producer_epoch,
    }
    if run.is_commit is not None:
        word = "commit" if run.is_commit else "abort"
        return {**event, "by": "log", "kind": word, "what": f"{word} marker of {who}, epoch {run.producer_epoch}"}
    what = f"{count(run.records, 'record')} in {count(run.batches, 'batch', 'batches')} of {who}"
    if run.producer_id != NO_PRODUCER_ID:
        what += f", epoch {run.producer_epoch}"
    return {**event, "by": "log", "kind": "open" if run.is_transactional else "plain", "what": what}


def count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
