"""Tests which calls a transactional producer allows in each state (KIP-98, KIP-939)."""

import pytest

from odradek.client.common.errors import IllegalState
from odradek.client.common.values import PreparedTxnState
from odradek.client.producing.transaction import (
    NEXT,
    Call,
    Completion,
    ProducerTxnState,
    after_error,
    completion,
    next_state,
)
from odradek.client.producing.verdicts import Verdict
from odradek.protocol.errors import ErrorCode

S = ProducerTxnState
PREPARED, OTHER = PreparedTxnState(42, 10), PreparedTxnState(42, 9)


def allowed(state: ProducerTxnState) -> set[Call]:
    found = set()
    for call in Call:
        try:
            next_state(state, call)
        except IllegalState:
            continue
        found.add(call)
    return found


def test_every_state_has_a_row() -> None:
    assert set(NEXT) == set(ProducerTxnState)


def test_only_initialising_is_allowed_at_first() -> None:
    assert allowed(S.UNINITIALIZED) == {Call.INIT}


def test_records_and_offsets_are_sent_only_between_begin_and_the_end() -> None:
    for call in (Call.SEND, Call.SEND_OFFSETS):
        assert [state for state in ProducerTxnState if call in allowed(state)] == [S.IN_TRANSACTION]


def test_a_prepared_transaction_can_be_decided_and_nothing_else() -> None:
    """Checks that a prepared transaction can only be committed or aborted. `complete` is not in the table, because it
    becomes either `commit` or `abort`."""
    assert allowed(S.PREPARED) == {Call.COMMIT, Call.ABORT}


def test_after_an_abortable_error_there_is_only_abort() -> None:
    assert allowed(S.ABORTABLE_ERROR) == {Call.ABORT}


def test_no_call_is_allowed_after_a_fatal_error() -> None:
    assert allowed(S.FATAL_ERROR) == set()


@pytest.mark.parametrize(
    ("state", "call"),
    [
        (S.INITIALIZING, Call.INIT),
        (S.PREPARING, Call.PREPARE),
        (S.COMMITTING, Call.COMMIT),
        (S.ABORTING, Call.ABORT),
    ],
)
def test_a_call_that_did_not_end_may_be_repeated(state: ProducerTxnState, call: Call) -> None:
    assert next_state(state, call) is state


def test_a_commit_that_did_not_end_cannot_become_an_abort() -> None:
    assert allowed(S.COMMITTING) == {Call.COMMIT}
    assert allowed(S.ABORTING) == {Call.ABORT}


def test_the_error_of_a_forbidden_call_names_the_call() -> None:
    with pytest.raises(IllegalState, match="send is not allowed in state PREPARED"):
        next_state(S.PREPARED, Call.SEND)


@pytest.mark.parametrize("state", ProducerTxnState)
def test_a_fatal_error_is_fatal_everywhere(state: ProducerTxnState) -> None:
    assert after_error(state, Verdict.FATAL) is S.FATAL_ERROR


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (S.INITIALIZING, S.ABORTABLE_ERROR),
        (S.IN_TRANSACTION, S.ABORTABLE_ERROR),
        (S.PREPARING, S.ABORTABLE_ERROR),
        (S.PREPARED, S.ABORTABLE_ERROR),
        (S.COMMITTING, S.ABORTABLE_ERROR),
        (S.ABORTING, S.ABORTING),
        (S.READY, S.READY),
        (S.FATAL_ERROR, S.FATAL_ERROR),
    ],
)
def test_an_abortable_error_counts_while_nothing_is_decided(
    state: ProducerTxnState, expected: ProducerTxnState
) -> None:
    assert after_error(state, Verdict.ABORT) is expected


# complete_transaction


@pytest.mark.parametrize(("given", "expected"), [(PREPARED, Completion.COMMIT), (OTHER, Completion.ABORT)])
def test_complete_commits_the_transaction_that_is_named_and_aborts_any_other(
    given: PreparedTxnState, expected: Completion
) -> None:
    assert completion(S.PREPARED, PREPARED, given) is expected


def test_complete_aborts_when_no_transaction_is_named() -> None:
    assert completion(S.PREPARED, PREPARED, PreparedTxnState()) is Completion.ABORT


def test_complete_without_a_kept_transaction_does_nothing() -> None:
    assert completion(S.NO_PREPARED, PreparedTxnState(), PREPARED) is Completion.NOTHING
    assert next_state(S.NO_PREPARED, Call.COMPLETE) is S.READY


@pytest.mark.parametrize(
    "state", [S.UNINITIALIZED, S.READY, S.IN_TRANSACTION, S.PREPARING, S.ABORTABLE_ERROR, S.FATAL_ERROR]
)
def test_complete_takes_a_prepared_transaction(state: ProducerTxnState) -> None:
    with pytest.raises(IllegalState) as refused:
        completion(state, PreparedTxnState(), PREPARED)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE


def test_complete_again_decides_as_before_or_not_at_all() -> None:
    assert completion(S.COMMITTING, PREPARED, PREPARED) is Completion.COMMIT
    assert completion(S.ABORTING, PREPARED, OTHER) is Completion.ABORT
    with pytest.raises(IllegalState):
        completion(S.COMMITTING, PREPARED, OTHER)
    with pytest.raises(IllegalState):
        completion(S.ABORTING, PREPARED, PREPARED)
