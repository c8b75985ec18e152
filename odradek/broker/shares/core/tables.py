"""The states of a shared record, and the effect of each event in each state.

A cell that refuses an event contains the error to raise. These rules are not part of the grid, because they depend on
more than the state:

    a record with an unanswered write              refuses acknowledgements like a record that is not ACQUIRED
    another member's record; renewal turned off    INVALID_RECORD_STATE
    in a transaction: the lock has expired         INVALID_RECORD_STATE
    in a transaction: the same request again       accepted, because the first response was lost
    offsets that are not tracked                   a plain acknowledgement below the start offset changes nothing; other
                                                   acknowledgements get INVALID_REQUEST or INVALID_RECORD_STATE
                                                   (#s3-4, rows 3 and 4)

TX_PENDING (KIP-1289) means that an acknowledgement is waiting for the end of a transaction. ARCHIVING (KIP-1191) means
that a record must be copied to its group's dead-letter queue; it becomes ARCHIVED once copying has finished.

Source: docs/spec/share-groups.md#s3-2, #s3-4, #s5-5, #s5-8, docs/spec/dead-letter-queues.md#s2.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from odradek.protocol.errors import ErrorCode


class RecordState(Enum):
    """A record's state. The values are bytes on the wire and on disk, but ACQUIRED and TX_PENDING exist only in memory:
    older readers would reject a stored value of 5 as invalid."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4
    TX_PENDING = 5

    # `object.__hash__` is faster than Enum's own __hash__, which is Python code, and every acknowledgement looks up the
    # grid.
    __hash__ = object.__hash__


S = RecordState
TERMINAL = frozenset({S.ACKNOWLEDGED, S.ARCHIVED})

# The states that a leader can find in the stored state.
LOADED_STATES: Mapping[int, RecordState] = {
    each.value: each for each in (S.AVAILABLE, S.ACKNOWLEDGED, S.ARCHIVING, S.ARCHIVED)
}


class Event(Enum):
    """Events in the life of a record. Acknowledgements come from the member that has acquired the record."""

    ACQUIRE = auto()
    ACCEPT = auto()
    RELEASE = auto()
    REJECT = auto()
    GAP = auto()  # there is no record for the application at this offset
    RENEW = auto()
    LOCK_EXPIRED = auto()
    SESSION_ENDED = auto()  # the member closed the session, or its connection was lost
    DATA_GONE = auto()  # retention moved the log start offset past the record, or compaction removed it
    TXN_ABORTED = auto()  # a read_committed group found that the record belongs to an aborted transaction
    TXN_ACKNOWLEDGE = auto()  # the member accepted or rejected the record in its producer's transaction
    COMMIT_MARKER = auto()  # the transaction that the record is pending in was committed
    ABORT_MARKER = auto()
    COPIED = auto()  # copying the record to the group's dead-letter queue succeeded or failed permanently

    __hash__ = object.__hash__


class Effect(Enum):
    """Cells of the grid that change nothing, or whose result depends on more than the state."""

    LEAVE = auto()
    RETRY = auto()  # AVAILABLE; ARCHIVED if below the start offset; DEAD_LETTER if the delivery count limit is reached
    DEAD_LETTER = auto()  # ARCHIVING if the group has a dead-letter queue, otherwise ARCHIVED
    EXTEND = auto()  # stays ACQUIRED, and the lock starts again with its full duration
    APPLY = auto()  # ACKNOWLEDGED or DEAD_LETTER, depending on the acknowledgement
    RETURN = auto()  # stays ACQUIRED if the member still has its session and its lock, otherwise RETRY
    # The record stays TX_PENDING, and its transaction is aborted. `leader/overdue.py` describes what happens if the
    # transaction has another outcome or its coordinator does not respond.
    END_TRANSACTION = auto()


class CellRefusal(NamedTuple):
    code: ErrorCode
    message: str


Cell = RecordState | Effect | CellRefusal
LEAVE, RETRY, EXTEND, QUEUE = Effect.LEAVE, Effect.RETRY, Effect.EXTEND, Effect.DEAD_LETTER
APPLY, RETURN, END = Effect.APPLY, Effect.RETURN, Effect.END_TRANSACTION
NOT_ACQUIRED = CellRefusal(
    ErrorCode.INVALID_RECORD_STATE, "The batch cannot be acknowledged. The batch is not in the acquired state."
)
CANNOT_BE_PENDING = CellRefusal(
    ErrorCode.INVALID_RECORD_STATE,
    "The acknowledgement cannot become pending. The records are not in the acquired state.",
)

# fmt: off
_EVENTS = (
    Event.ACQUIRE, Event.ACCEPT, Event.RELEASE, Event.REJECT, Event.GAP, Event.RENEW,
    Event.LOCK_EXPIRED, Event.SESSION_ENDED, Event.DATA_GONE, Event.TXN_ABORTED,
    Event.TXN_ACKNOWLEDGE, Event.COMMIT_MARKER, Event.ABORT_MARKER, Event.COPIED,
)
TAKEN, ACKED, GONE, PEND = S.ACQUIRED, S.ACKNOWLEDGED, S.ARCHIVED, S.TX_PENDING
NOACK, NO_TX = NOT_ACQUIRED, CANNOT_BE_PENDING
_ROWS: Mapping[RecordState, tuple[Cell, ...]] = {
    # One column for each event in _EVENTS. The column headings span three lines.
    #               ACQUIRE              REJECT                LOCK_EXPIRED         TXN_ABORTED          ABORT_MARKER
    #                      ACCEPT               GAP                   SESSION_ENDED        TXN_ACKNOWLEDGE       COPIED
    #                             RELEASE              RENEW                 DATA_GONE            COMMIT_MARKER
    S.AVAILABLE:   (TAKEN, NOACK, NOACK, NOACK, NOACK, NOACK,  LEAVE, LEAVE, GONE,  LEAVE, NO_TX, LEAVE, LEAVE,  LEAVE),
    S.ACQUIRED:    (LEAVE, ACKED, RETRY, QUEUE, GONE,  EXTEND, RETRY, RETRY, LEAVE, GONE,  PEND,  LEAVE, LEAVE,  LEAVE),
    S.TX_PENDING:  (LEAVE, NOACK, NOACK, NOACK, NOACK, NOACK,  END,   LEAVE, LEAVE, LEAVE, NO_TX, APPLY, RETURN, LEAVE),
    S.ACKNOWLEDGED:(LEAVE, NOACK, NOACK, NOACK, NOACK, NOACK,  LEAVE, LEAVE, LEAVE, LEAVE, NO_TX, LEAVE, LEAVE,  LEAVE),
    S.ARCHIVING:   (LEAVE, NOACK, NOACK, NOACK, NOACK, NOACK,  LEAVE, LEAVE, LEAVE, LEAVE, NO_TX, LEAVE, LEAVE,  GONE),
    S.ARCHIVED:    (LEAVE, NOACK, NOACK, NOACK, NOACK, NOACK,  LEAVE, LEAVE, LEAVE, LEAVE, NO_TX, LEAVE, LEAVE,  LEAVE),
}
# fmt: on
GRID: Mapping[RecordState, Mapping[Event, Cell]] = {
    state: dict(zip(_EVENTS, cells, strict=True)) for state, cells in _ROWS.items()
}
