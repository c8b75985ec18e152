"""Tests that the checker of dual writes finds each kind of fault planted in a history and finds none in correct
histories."""

import pytest

from tests.checker.dual_writes import (
    BlockStarted,
    BothSidesRead,
    Event,
    Kind,
    RecoveryEnded,
    RecoveryStarted,
    RowsReported,
    TransactionPrepared,
    verdicts,
)
from tests.checker.history import Answer

BEGAN, PREPARED = BlockStarted("t1", ("a", "b")), TransactionPrepared("t1")
RECOVERY: list[Event] = [RecoveryStarted(), RecoveryEnded()]
BOTH = ("a", "b")


def told(answer: Answer) -> RowsReported:
    return RowsReported("t1", answer)


def looked(*, messages: tuple[str, ...] = (), is_open: bool = False, rows: tuple[str, ...] = ()) -> BothSidesRead:
    return BothSidesRead(messages, is_open, rows)


def kinds(*history: Event) -> list[Kind]:
    return [each.kind for each in verdicts(history)]


@pytest.mark.parametrize("seen", [looked(), looked(messages=BOTH, rows=BOTH)], ids=["neither", "both"])
def test_after_a_block_without_an_outcome_rows_and_messages_may_both_exist_or_both_be_missing(
    seen: BothSidesRead,
) -> None:
    assert kinds(BEGAN, PREPARED, looked(is_open=True, rows=seen.rows), *RECOVERY, seen) == []


def test_rows_that_are_committed_may_be_ahead_of_their_messages_until_recovery() -> None:
    assert kinds(BEGAN, PREPARED, told(Answer.YES), looked(is_open=True, rows=BOTH)) == []


def test_a_block_that_ended_before_it_had_prepared_may_be_aborted_by_anybody() -> None:
    assert kinds(BEGAN, looked(), looked(is_open=True)) == []


def test_a_transaction_that_the_application_has_rolled_back_needs_not_be_open() -> None:
    assert kinds(BEGAN, PREPARED, told(Answer.NO), looked(), *RECOVERY, looked()) == []


def test_rows_of_half_a_transaction_are_torn() -> None:
    assert Kind.TORN in kinds(BEGAN, looked(rows=("a",), is_open=True))


def test_missing_committed_rows_are_lost() -> None:
    assert kinds(BEGAN, told(Answer.YES), looked(is_open=True)) == [Kind.LOST]


def test_rolled_back_rows_that_exist_are_reported_as_risen() -> None:
    assert kinds(BEGAN, told(Answer.NO), looked(rows=BOTH, is_open=True)) == [Kind.RISEN]


def test_messages_that_exist_before_the_database_has_decided_are_a_unilateral_commit() -> None:
    assert kinds(BEGAN, PREPARED, looked(messages=BOTH)) == [Kind.UNILATERAL, Kind.UNILATERAL]


@pytest.mark.parametrize("rows", [(), BOTH], ids=["without rows", "with rows"])
def test_a_prepared_transaction_that_is_not_open_any_more_is_a_unilateral_abort(rows: tuple[str, ...]) -> None:
    assert kinds(BEGAN, PREPARED, looked(rows=rows)) == [Kind.UNILATERAL]


def test_rows_without_messages_after_recovery_have_diverged() -> None:
    assert kinds(BEGAN, PREPARED, *RECOVERY, looked(rows=BOTH)) == [Kind.DIVERGED, Kind.DIVERGED]


def test_messages_without_rows_have_diverged() -> None:
    assert kinds(BEGAN, PREPARED, *RECOVERY, looked(messages=BOTH)) == [Kind.DIVERGED, Kind.DIVERGED]


def test_a_repeated_message_has_diverged() -> None:
    seen = looked(messages=("a", "a", "b"), rows=BOTH)
    assert kinds(BEGAN, *RECOVERY, seen) == [Kind.DIVERGED]


def test_a_transaction_that_is_open_after_recovery_is_undecided() -> None:
    assert kinds(BEGAN, *RECOVERY, looked(is_open=True)) == [Kind.UNDECIDED]
