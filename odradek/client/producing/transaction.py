"""The states of a transactional producer and the calls allowed in each state (KIP-98, KIP-939).

One rule is not in the table: for a prepared transaction, `complete_transaction` commits or aborts, depending on its
argument; see `completion`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from odradek.client.common.errors import IllegalState
from odradek.client.common.values import PreparedTxnState
from odradek.client.producing.verdicts import Verdict
from odradek.protocol.errors import ErrorCode


class ProducerTxnState(Enum):
    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    NO_PREPARED = auto()  # initialised with keep_prepared, but no prepared transaction was found
    IN_TRANSACTION = auto()
    PREPARING = auto()  # flushing; no more records are accepted
    PREPARED = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


class Call(Enum):
    INIT = "init_transactions"
    BEGIN = "begin_transaction"
    SEND = "send"
    SEND_OFFSETS = "send_offsets_to_transaction"
    SEND_ACKNOWLEDGEMENTS = "send_share_acknowledgements_to_transaction"
    FLUSH = "flush"
    PREPARE = "prepare_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
    COMPLETE = "complete_transaction"


S, C = ProducerTxnState, Call

# The allowed calls in each state, and the state that each call leads to. A call that timed out or was cancelled can be
# repeated.
NEXT: Mapping[ProducerTxnState, Mapping[Call, ProducerTxnState]] = {
    S.UNINITIALIZED: {C.INIT: S.INITIALIZING},
    S.INITIALIZING: {C.INIT: S.INITIALIZING},
    S.READY: {C.BEGIN: S.IN_TRANSACTION, C.FLUSH: S.READY},
    S.NO_PREPARED: {C.BEGIN: S.IN_TRANSACTION, C.FLUSH: S.NO_PREPARED, C.COMPLETE: S.READY},
    S.IN_TRANSACTION: {
        C.SEND: S.IN_TRANSACTION,
        C.SEND_OFFSETS: S.IN_TRANSACTION,
        C.SEND_ACKNOWLEDGEMENTS: S.IN_TRANSACTION,
        C.FLUSH: S.IN_TRANSACTION,
        C.PREPARE: S.PREPARING,
        C.COMMIT: S.COMMITTING,
        C.ABORT: S.ABORTING,
    },
    S.PREPARING: {C.PREPARE: S.PREPARING, C.ABORT: S.ABORTING},
    S.PREPARED: {C.COMMIT: S.COMMITTING, C.ABORT: S.ABORTING},
    S.COMMITTING: {C.COMMIT: S.COMMITTING},
    S.ABORTING: {C.ABORT: S.ABORTING},
    S.ABORTABLE_ERROR: {C.ABORT: S.ABORTING},
    S.FATAL_ERROR: {},
}

# States where a failed batch or request can still force the transaction to be aborted.
UNDECIDED = frozenset({S.INITIALIZING, S.IN_TRANSACTION, S.PREPARING, S.PREPARED, S.COMMITTING})
# States where `close` aborts the transaction. If the transaction is or was prepared, only its owner may decide it.
ABORTED_BY_CLOSE = frozenset({S.IN_TRANSACTION, S.PREPARING, S.ABORTABLE_ERROR})


class Completion(Enum):
    COMMIT = auto()
    ABORT = auto()
    NOTHING = auto()  # there is no transaction, so no request is sent


def next_state(state: ProducerTxnState, call: Call) -> ProducerTxnState:
    """Returns the state that the call leads to. Raises IllegalState if the current state does not allow it."""
    allowed = NEXT[state].get(call)
    if allowed is None:
        raise IllegalState(f"{call.value} is not allowed in state {state.name}")
    return allowed


def after_error(state: ProducerTxnState, verdict: Verdict) -> ProducerTxnState:
    """Returns the state after a batch or request has failed with this verdict."""
    if verdict is Verdict.FATAL:
        return S.FATAL_ERROR
    if verdict is Verdict.ABORT and state in UNDECIDED:
        return S.ABORTABLE_ERROR
    return state


def completion(state: ProducerTxnState, prepared: PreparedTxnState, given: PreparedTxnState) -> Completion:
    """Decides the outcome of `complete_transaction(given)`: commit if `given` identifies the prepared transaction,
    otherwise abort.

    If the call is repeated because it did not finish, the decision is the same. Raises IllegalState (INVALID_TXN_STATE)
    if no transaction is prepared. Source: KIP-939, KafkaProducer API changes.
    """
    if state is S.NO_PREPARED:
        return Completion.NOTHING
    decided = Completion.COMMIT if given == prepared else Completion.ABORT
    if state is S.PREPARED or (state, decided) in (
        (S.COMMITTING, Completion.COMMIT),
        (S.ABORTING, Completion.ABORT),
    ):
        return decided
    raise IllegalState(f"no transaction is prepared: the state is {state.name}", ErrorCode.INVALID_TXN_STATE)
