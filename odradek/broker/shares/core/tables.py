"""The states of a shared record, and the effect of each event on it in each state. The grid is the code: a refusal is
raised as its cell has it.

Beside the grid, as they depend on more than the state:

    a record with a write on its way               refuses acknowledgements as one that is not ACQUIRED
    another member's record; renewal turned off    INVALID_RECORD_STATE
    in a transaction: the lock has run out         INVALID_RECORD_STATE
    in a transaction: the same once more           accepted: the answer got lost
    offsets that are not tracked                   below the start offset a plain acknowledgement changes nothing; else
                                                   INVALID_REQUEST or INVALID_RECORD_STATE (#s3-4, rows 3 and 4)

TX_PENDING is that of KIP-1289: an acknowledgement waits for the end of a transaction. ARCHIVING is that of KIP-1191: a
record is to be copied into the dead-letter queue of its group, and is ARCHIVED once that has ended.
Source: docs/spec/share-groups.md#s3-2, #s3-4, #s5-5, #s5-8, docs/spec/dead-letter-queues.md#s2.
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
    ARCHIVING = 3
    ARCHIVED = 4
    TX_PENDING = 5

    __hash__ = object.__hash__  # Enum's own hashes the name, in Python; each acknowledgement asks the grid


S = RecordState
TERMINAL = frozenset({S.ACKNOWLEDGED, S.ARCHIVED})

# What a leader may find stored.
LOADED_STATES: Mapping[int, RecordState] = {
    each.value: each for each in (S.AVAILABLE, S.ACKNOWLEDGED, S.ARCHIVING, S.ARCHIVED)
}


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
    COPIED = auto()  # into the dead-letter queue of the group, or this has failed for good

    __hash__ = object.__hash__


class Effect(Enum):
    """Effects that are more than a new state, or none."""

    LEAVE = auto()
    RETRY = auto()  # AVAILABLE; ARCHIVED below the start offset; DEAD_LETTER when the delivery count is used up
    DEAD_LETTER = auto()  # ARCHIVING where the group has a dead-letter queue, else ARCHIVED
    EXTEND = auto()  # ACQUIRED as before, and the lock lasts its full duration from now
    APPLY = auto()  # ACKNOWLEDGED, or DEAD_LETTER, as was acknowledged
    RETURN = auto()  # ACQUIRED as before while the member has its session and its lock, else RETRY
    END_TRANSACTION = auto()  # stays until its transaction has been aborted, or was decided otherwise


class CellRefusal(NamedTuple):
    code: ErrorCode
    message: str


Cell = RecordState | Effect | CellRefusal
LEAVE, RETRY, EXTEND, QUEUE = Effect.LEAVE, Effect.RETRY, Effect.EXTEND, Effect.DEAD_LETTER
APPLY, RETURN, END = Effect.APPLY, Effect.RETURN, Effect.END_TRANSACTION
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
    Event.TXN_ACKNOWLEDGE, Event.COMMIT_MARKER, Event.ABORT_MARKER, Event.COPIED,
)
TAKEN, DONE, GONE, PEND = S.ACQUIRED, S.ACKNOWLEDGED, S.ARCHIVED, S.TX_PENDING
WRONG, NO_TX = NOT_ACQUIRED, NOT_TO_PEND
_ROWS: Mapping[RecordState, tuple[Cell, ...]] = {
    #               take   accept free   reject gap    renew   late   ended  gone   undone pend   commit abort   copied
    S.AVAILABLE:   (TAKEN, WRONG, WRONG, WRONG, WRONG, WRONG,  LEAVE, LEAVE, GONE,  LEAVE, NO_TX, LEAVE, LEAVE,  LEAVE),
    S.ACQUIRED:    (LEAVE, DONE,  RETRY, QUEUE, GONE,  EXTEND, RETRY, RETRY, LEAVE, GONE,  PEND,  LEAVE, LEAVE,  LEAVE),
    S.TX_PENDING:  (LEAVE, WRONG, WRONG, WRONG, WRONG, WRONG,  END,   LEAVE, LEAVE, LEAVE, NO_TX, APPLY, RETURN, LEAVE),
    S.ACKNOWLEDGED:(LEAVE, WRONG, WRONG, WRONG, WRONG, WRONG,  LEAVE, LEAVE, LEAVE, LEAVE, NO_TX, LEAVE, LEAVE,  LEAVE),
    S.ARCHIVING:   (LEAVE, WRONG, WRONG, WRONG, WRONG, WRONG,  LEAVE, LEAVE, LEAVE, LEAVE, NO_TX, LEAVE, LEAVE,  GONE),
    S.ARCHIVED:    (LEAVE, WRONG, WRONG, WRONG, WRONG, WRONG,  LEAVE, LEAVE, LEAVE, LEAVE, NO_TX, LEAVE, LEAVE,  LEAVE),
}
# fmt: on
GRID: Mapping[RecordState, Mapping[Event, Cell]] = {
    state: dict(zip(_EVENTS, cells, strict=True)) for state, cells in _ROWS.items()
}
