"""The states of a shared record, and what each event does to it in each state. The grid is the code.

KIP-1289 adds a state, and with it a row: TX_PENDING (docs/spec/share-groups.md#s5-8).
Source: docs/spec/share-groups.md#s3-2.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from protocol.errors import ErrorCode


class RecordState(Enum):
    """The values are bytes on the wire and on disk; ACQUIRED is in memory only."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    __hash__ = object.__hash__  # Enum's own hashes the name, in Python; each acknowledgement asks the grid


S = RecordState
TERMINAL = frozenset({S.ACKNOWLEDGED, S.ARCHIVED})

# What a leader may find stored. 3 is ARCHIVING: a later Kafka was about to copy the record to a dead-letter queue.
LOADED_STATES: Mapping[int, RecordState] = {0: S.AVAILABLE, 2: S.ACKNOWLEDGED, 3: S.ARCHIVED, 4: S.ARCHIVED}


class Event(Enum):
    """What can happen to a record. Acknowledgements come from the member that acquired it."""

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

    __hash__ = object.__hash__


class Result(Enum):
    """What is done where no new state is named."""

    LEAVE = auto()
    RETRY = auto()  # AVAILABLE; ARCHIVED when the delivery count is used up or the offset lies below the start offset
    EXTEND = auto()  # ACQUIRED as before, and the lock lasts its full duration from now


Cell = RecordState | Result | ErrorCode
LEAVE, RETRY, EXTEND = Result.LEAVE, Result.RETRY, Result.EXTEND
WRONG = ErrorCode.INVALID_RECORD_STATE

# fmt: off
_EVENTS = (
    Event.ACQUIRE, Event.ACCEPT, Event.RELEASE, Event.REJECT, Event.GAP, Event.RENEW,
    Event.LOCK_EXPIRED, Event.SESSION_ENDED, Event.DATA_GONE, Event.TXN_ABORTED,
)
TAKEN, DONE, GONE = S.ACQUIRED, S.ACKNOWLEDGED, S.ARCHIVED
_ROWS: Mapping[RecordState, tuple[Cell, ...]] = {
    #                acquire accept release reject gap    renew   expired ended  gone   aborted
    S.AVAILABLE:    (TAKEN,  WRONG, WRONG,  WRONG, WRONG, WRONG,  LEAVE,  LEAVE, GONE,  LEAVE),
    S.ACQUIRED:     (LEAVE,  DONE,  RETRY,  GONE,  GONE,  EXTEND, RETRY,  RETRY, LEAVE, GONE),
    S.ACKNOWLEDGED: (LEAVE,  WRONG, WRONG,  WRONG, WRONG, WRONG,  LEAVE,  LEAVE, LEAVE, LEAVE),
    S.ARCHIVED:     (LEAVE,  WRONG, WRONG,  WRONG, WRONG, WRONG,  LEAVE,  LEAVE, LEAVE, LEAVE),
}
# fmt: on
GRID: Mapping[RecordState, Mapping[Event, Cell]] = {
    state: dict(zip(_EVENTS, cells, strict=True)) for state, cells in _ROWS.items()
}
