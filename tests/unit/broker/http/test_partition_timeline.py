"""Tests a partition's timeline, which places the coordinator's steps between the batches and markers."""

from collections.abc import Sequence

import pytest

from odradek.broker.http.page.history import TxnStep, in_words
from odradek.broker.http.page.partition_timeline import BatchRun, timeline
from odradek.broker.transactions.entry import Txn
from odradek.broker.transactions.tables import TxnState

HERE, ELSEWHERE = ("ledger", 0), ("other", 0)
PAY, LATE = 7, 8  # producer ids
NAMES = {PAY: "pay", LATE: "late"}


def batch(first: int, last: int, producer_id: int = PAY, *, at_ms: int = 0) -> BatchRun:
    return BatchRun(at_ms, first, last, producer_id, 0, True, records=last - first + 1, batches=1)


def marker(offset: int, producer_id: int = PAY, *, at_ms: int, is_commit: bool = True) -> BatchRun:
    return BatchRun(at_ms, offset, offset, producer_id, 0, True, records=1, batches=1, is_commit=is_commit)


def steps(*states: tuple[int, TxnState], name: str = "pay", place: tuple[str, int] = HERE) -> list[TxnStep]:
    found: list[TxnStep] = []
    before = None
    for at_ms, state in states:
        partitions = frozenset((place,)) if state in (TxnState.ONGOING, *DECIDED) else frozenset()
        txn = Txn(name, PAY, 0, 60_000, state, partitions)
        found.append(TxnStep(at_ms, at_ms, before, txn))
        before = txn
    return found


DECIDED = (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)
COMMITTED = (TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT)


def committed(begin_ms: int, *, place: tuple[str, int] = HERE) -> list[tuple[int, TxnState]]:
    return [(begin_ms + 10 * number, state) for number, state in enumerate(COMMITTED)]


def words(runs: Sequence[BatchRun], of: dict[str, list[TxnStep]]) -> list[str]:
    """Returns the source and the first word of each timeline entry."""
    found = []
    for each in timeline(runs, HERE, of, NAMES):
        assert isinstance(each, dict)
        found.append(f"{each['by']}: {str(each['what']).split()[0].rstrip(':')}")
    return found


def test_the_steps_of_a_transaction_are_in_order_whatever_the_clock_of_the_producer() -> None:
    runs = [batch(0, 4, at_ms=9_999_999), marker(5, at_ms=115)]
    assert words(runs, {"pay": steps(*committed(100))}) == [
        "coordinator: begun",
        "log: 5",
        "coordinator: commit",
        "log: commit",
        "coordinator: committed",
    ]


def test_each_marker_gets_the_transaction_that_was_decided_last_before_it() -> None:
    runs = [batch(0, 0), marker(1, at_ms=115), batch(2, 2), marker(3, at_ms=215)]
    shown = timeline(runs, HERE, {"pay": steps(*committed(100), *committed(200))}, NAMES)
    times = [each["at_ms"] for each in shown if isinstance(each, dict) and each["by"] == "coordinator"]
    assert times == [100, 110, 120, 200, 210, 220]


def test_transactions_in_other_partitions_are_left_out() -> None:
    runs = [batch(0, 0), marker(1, at_ms=315)]
    of = steps(*committed(100)) + steps(*committed(200), place=ELSEWHERE)
    shown = timeline(runs, HERE, {"pay": of}, NAMES)
    times = [each["at_ms"] for each in shown if isinstance(each, dict) and each["by"] == "coordinator"]
    assert times == [100, 110, 120]


def test_of_an_open_transaction_the_begin_is_there_and_a_decision_whose_marker_is_missing() -> None:
    open_ = steps((100, TxnState.ONGOING))
    assert words([batch(0, 0)], {"pay": open_}) == ["coordinator: begun", "log: 1"]
    decided = steps((100, TxnState.ONGOING), (110, TxnState.PREPARE_ABORT))
    assert words([batch(0, 0), batch(1, 1, LATE)], {"pay": decided}) == [
        "coordinator: begun",
        "log: 1",
        "log: 1",
        "coordinator: abort",
    ]


def test_without_the_coordinators_records_the_log_speaks_alone() -> None:
    assert words([batch(0, 0), marker(1, at_ms=5, is_commit=False)], {"pay": []}) == ["log: 1", "log: abort"]


@pytest.mark.parametrize(
    ("updated_ms", "why"), [(1_061, "after its timeout"), (1_060, "because a new producer took over")]
)
def test_an_abort_that_fences_says_whether_the_timeout_or_a_new_producer_was_its_reason(
    updated_ms: int, why: str
) -> None:
    before = Txn("pay", 7, 0, 60, TxnState.ONGOING, started_ms=1_000)
    after = Txn("pay", 7, 1, 60, TxnState.PREPARE_ABORT, started_ms=1_000, updated_ms=updated_ms)
    assert in_words(before, after)["what"] == f"abort decided {why}; markers are written to each partition"
