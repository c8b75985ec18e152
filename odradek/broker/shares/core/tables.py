"""The states of a shared record, and the effect of each event on it in each state. The grid is the code: a refusal is
raised as its cell has it.

Beside the grid, as they depend on more than the state:

    a record with a write on its way               refuses acknowledgements as one that is not ACQUIRED
    another member's record; renewal turned off    INVALID_RECORD_STATE
    in a transaction: the lock has run out         INVALID_RECORD_STATE
    in a transaction: the same once more           accepted: the answer got lost
    offsets that are not tracked                   below the start offset a plain acknowledgement changes nothing; else
                                                   INVALID_REQUEST or INVALID_RECORD_STATE (#s3-4, rows 3 and 4)

TX_PENDING is that of KIP-1289: an acknowledgement waits for the end of a transaction.
Source: docs/spec/share-groups.md#s3-2, #s3-4, #s5-5, #s5-8.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from odradek.protocol.errors import ErrorCode


class RecordState(Enum):
    """The values are bytes on the wire and on disk; ACQUIRED and TX_PENDING are in memory only: to old readers, a
    stored 5 would be nothing that a leader has written."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4
    TX_PENDING = 5

    __hash__ = object.__hash__  # Enum's own hashes the name, in Python; each acknowledgement asks the grid


S = RecordState
TERMINAL = frozenset({S.ACKNOWLEDGED, S.ARCHIVED})

# What a leader may find stored. 3 is ARCHIVING: a later Kafka was about to copy the record to a dead-letter queue.
LOADED_STATES: Mapping[int, RecordState] = {0: S.AVAILABLE, 2: S.ACKNOWLEDGED, 3: S.ARCHIVED, 4: S.ARCHIVED}


class Event(Enum):
    """Events in the life of a record. Acknowledgements come from the member that acquired it."""

    ACQUIRE = auto()
    ACCEPT = auto()
    RELEASE = auto()
    REJECT = auto()
    GAP = auto()  # there is no record for the application at this offset
    RENEW = auto()
    LOCK_EXPIRED = auto()
    SESSION_ENDED = auto()  # closed, or its connection was lost
    DATA_GONE = auto()  # retention moved the log start past it, or compaction removed it
    TXN_ABORTED = auto()  # found to be part of an aborted transaction by a read_committed group
    TXN_ACKNOWLEDGE = auto()  # accepted or rejected in a transaction of the member's producer
    COMMIT_MARKER = auto()  # of the transaction in which it is pending
    ABORT_MARKER = auto()

    __hash__ = object.__hash__


class Effect(Enum):
    """Effects that are more than a new state, or none."""

    LEAVE = auto()
    RETRY = auto()  # AVAILABLE; ARCHIVED when the delivery count is used up or the offset lies below the start offset
    EXTEND = auto()  # ACQUIRED as before, and the lock lasts its full duration from now
    APPLY = auto()  # ACKNOWLEDGED or ARCHIVED, as was acknowledged
    RETURN = auto()  # ACQUIRED as before while the member has its session and its lock, else RETRY
    END_TRANSACTION = auto()  # stays until its transaction has been aborted, or was decided otherwise


class CellRefusal(NamedTuple):
    code: ErrorCode
    message: str


Cell = RecordState | Effect | CellRefusal
LEAVE, RETRY, EXTEND = Effect.LEAVE, Effect.RETRY, Effect.EXTEND
APPLY, RETURN, END_TXN = Effect.APPLY, Effect.RETURN, Effect.END_TRANSACTION
NOT_ACQUIRED = CellRefusal(
    ErrorCode.INVALID_RECORD_STATE, "The batch cannot be acknowledged. The batch is not in the acquired state."
)
NOT_TO_PEND = CellRefusal(
    ErrorCode.INVALID_RECORD_STATE,
    "The acknowledgement cannot become pending. The records are not in the acquired state.",
)

# fmt: off
_EVENTS = (
    Event.ACQUIRE, Event.ACCEPT, Event.RELEASE, Event.REJECT, Event.GAP, Event.RENEW,
    Event.LOCK_EXPIRED, Event.SESSION_ENDED, Event.DATA_GONE, Event.TXN_ABORTED,
    Event.TXN_ACKNOWLEDGE, Event.COMMIT_MARKER, Event.ABORT_MARKER,
)
TAKEN, DONE, GONE, PEND = S.ACQUIRED, S.ACKNOWLEDGED, S.ARCHIVED, S.TX_PENDING
WRONG, NO_TX = NOT_ACQUIRED, NOT_TO_PEND
_ROWS: Mapping[RecordState, tuple[Cell, ...]] = {
    #                acquire accept release reject gap    renew   expired  ended  gone   aborted txn-ack commit abort
    S.AVAILABLE:    (TAKEN,  WRONG, WRONG,  WRONG, WRONG, WRONG,  LEAVE,   LEAVE, GONE,  LEAVE,  NO_TX,  LEAVE, LEAVE),
    S.ACQUIRED:     (LEAVE,  DONE,  RETRY,  GONE,  GONE,  EXTEND, RETRY,   RETRY, LEAVE, GONE,   PEND,   LEAVE, LEAVE),
    S.TX_PENDING:   (LEAVE,  WRONG, WRONG,  WRONG, WRONG, WRONG,  END_TXN, LEAVE, LEAVE, LEAVE,  NO_TX,  APPLY, RETURN),
    S.ACKNOWLEDGED: (LEAVE,  WRONG, WRONG,  WRONG, WRONG, WRONG,  LEAVE,   LEAVE, LEAVE, LEAVE,  NO_TX,  LEAVE, LEAVE),
    S.ARCHIVED:     (LEAVE,  WRONG, WRONG,  WRONG, WRONG, WRONG,  LEAVE,   LEAVE, LEAVE, LEAVE,  NO_TX,  LEAVE, LEAVE),
}
# fmt: on
GRID: Mapping[RecordState, Mapping[Event, Cell]] = {
    state: dict(zip(_EVENTS, cells, strict=True)) for state, cells in _ROWS.items()
}
