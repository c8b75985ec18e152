"""The states of a transaction, their transitions, and what each request means in each state. The grids are the code.

Two rules did not fit into grids and are arithmetic in `entry.py`: which epoch a decision leaves behind, and when a
producer id is used up. Source: docs/spec/transactions.md#s1-1, #s1-2, #s2-2, #s2-3, #s2-5, #s2-13, #s3-3, #s3-7;
KIP-98, KIP-890, KIP-939.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, Literal

from odradek.protocol.errors import ErrorCode


class TxnState(Enum):
    """The values are bytes on disk; DEAD and PREPARE_EPOCH_FENCE are known by name only and never stored.

    In Kafka those two are what an entry is about to become while a record is being written. Here deciding and writing
    are one turn, so that nobody ever meets an entry in them.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    __hash__ = object.__hash__  # Enum's own hashes the name, in Python; each transaction asks the tables a dozen times

    @property
    def kafka_name(self) -> str:
        """Name in DescribeTransactions and ListTransactions."""
        return KAFKA_NAMES[self]


S = TxnState
KAFKA_NAMES: Final[Mapping[TxnState, str]] = {state: state.name.title().replace("_", "") for state in TxnState}
STORED: Final = frozenset(TxnState) - {S.DEAD, S.PREPARE_EPOCH_FENCE}
PREPARED: Final = frozenset({S.PREPARE_COMMIT, S.PREPARE_ABORT})  # decided, but not all of its markers are written
COMPLETED: Final[Mapping[TxnState, TxnState]] = {
    S.PREPARE_COMMIT: S.COMPLETE_COMMIT,
    S.PREPARE_ABORT: S.COMPLETE_ABORT,
}
EXPIRABLE: Final = frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT})


class Kept(Enum):
    """A transaction that is ONGOING on the disk, and more than that: its recovery may end it and no more.

    InitProducerId with KeepPreparedTxn gave them a pair of producer id and epoch of their own (KIP-939). Requests are
    held against that pair, so each grid has a row for it.
    """

    KEPT = auto()

    @property
    def kafka_name(self) -> str:
        return self.name.title()


KEPT: Final[Literal[Kept.KEPT]] = Kept.KEPT
Row = TxnState | Kept
ROWS: Final[frozenset[Row]] = STORED | {KEPT}

# An abort of nothing (KIP-890) is why the states without a transaction lead to PREPARE_ABORT.
IDLE_EXITS: Final = frozenset({S.EMPTY, S.ONGOING, S.PREPARE_ABORT, S.DEAD})
DECISIONS: Final = frozenset({S.PREPARE_COMMIT, S.PREPARE_ABORT, S.PREPARE_EPOCH_FENCE})
NEXT: Final[Mapping[Row, frozenset[Row]]] = {
    S.EMPTY: IDLE_EXITS,
    S.ONGOING: DECISIONS | {S.ONGOING, KEPT},
    KEPT: DECISIONS | {KEPT},
    # To itself: a topic was deleted that waited for its marker.
    S.PREPARE_COMMIT: frozenset({S.PREPARE_COMMIT, S.COMPLETE_COMMIT}),
    S.PREPARE_ABORT: frozenset({S.PREPARE_ABORT, S.COMPLETE_ABORT}),
    S.COMPLETE_COMMIT: IDLE_EXITS,
    S.COMPLETE_ABORT: IDLE_EXITS,
    S.DEAD: frozenset(),
    S.PREPARE_EPOCH_FENCE: frozenset({S.PREPARE_ABORT}),
}


class TxnVerdict(Enum):
    """Actions where a request is not refused."""

    BUMP = auto()  # the next epoch, or the next producer id when the epochs are used up
    FENCE = auto()  # abort what is open on behalf of the new owner, which is told to retry
    KEEP = auto()  # leave what is open as it is, and give the new owner a pair of its own to end it with
    ADD = auto()
    LOOK = auto()
    COMMIT = auto()
    ABORT = auto()
    AGAIN = auto()  # a retry of what has already happened: answer as before


class Claim(Enum):
    """Comparison of the producer id and epoch in a request with the stored ones, P and E.

    While a transaction is kept, P and E are those that its new owner was given; not those that its records carry.
    """

    NONE = auto()  # InitProducerId of a producer that starts up
    CURRENT = auto()  # P and E
    RETRY = auto()  # what P and E were before the step that the request asks for: its answer got lost
    OTHER_EPOCH = auto()  # P, at an epoch that is neither
    OTHER_ID = auto()

    __hash__ = object.__hash__  # as TxnState


Cell = TxnVerdict | ErrorCode
BUMP, FENCE, KEEP, ADD, LOOK = TxnVerdict.BUMP, TxnVerdict.FENCE, TxnVerdict.KEEP, TxnVerdict.ADD, TxnVerdict.LOOK
COMMIT, ABORT, AGAIN = TxnVerdict.COMMIT, TxnVerdict.ABORT, TxnVerdict.AGAIN
FENCED, UNMAPPED = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING
WAIT, WRONG = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE

# While a decision waits for its markers all requests wait, from any producer: with the producer id about to change, the
# request may come from the producer that has been told the next one already. Hence the rows full of WAIT.


Grid = Mapping[Row, Mapping[Claim, Cell]]


def _grid(claims: tuple[Claim, ...], rows: Mapping[Row, tuple[Cell, ...]]) -> Grid:
    return {row: dict(zip(claims, cells, strict=True)) for row, cells in rows.items()}


# fmt: off
INIT_PRODUCER_ID: Final = _grid(
    # RETRY: the epoch before the last bump. With an open transaction only the id is compared: a producer that has it
    # may end what is open, and is told on its next try whether the producer is its own.
    (Claim.NONE, Claim.CURRENT, Claim.RETRY, Claim.OTHER_EPOCH, Claim.OTHER_ID), {
    S.EMPTY:           (BUMP,  BUMP,  AGAIN, FENCED, FENCED),
    S.ONGOING:         (FENCE, FENCE, FENCE, FENCE,  FENCED),
    # A request with a pair knows of a recovery, and must not end what a later one has taken over.
    KEPT:              (FENCE, FENCE, FENCED, FENCED, FENCED),
    S.PREPARE_COMMIT:  (WAIT,  WAIT,  WAIT,  WAIT,   WAIT),
    S.PREPARE_ABORT:   (WAIT,  WAIT,  WAIT,  WAIT,   WAIT),
    S.COMPLETE_COMMIT: (BUMP,  BUMP,  AGAIN, FENCED, FENCED),
    S.COMPLETE_ABORT:  (BUMP,  BUMP,  AGAIN, FENCED, FENCED),
})
# A two-phase commit may be decided outside: a producer that others have taken its place from must not end it.
INIT_PRODUCER_ID_TWO_PHASE: Final[Grid] = {**INIT_PRODUCER_ID, **_grid(
    (Claim.NONE, Claim.CURRENT, Claim.RETRY, Claim.OTHER_EPOCH, Claim.OTHER_ID), {
    S.ONGOING:         (FENCE, FENCE, FENCED, FENCED, FENCED),
})}
# With KeepPreparedTxn. It differs where there is something to keep; and since the requester becomes the owner at once,
# without coming again, an old epoch is told so at once.
INIT_PRODUCER_ID_KEEPING: Final[Grid] = {**INIT_PRODUCER_ID, **_grid(
    (Claim.NONE, Claim.CURRENT, Claim.RETRY, Claim.OTHER_EPOCH, Claim.OTHER_ID), {
    S.ONGOING:         (KEEP,  KEEP,  FENCED, FENCED, FENCED),
    KEPT:              (KEEP,  KEEP,  FENCED, FENCED, FENCED),
})}

ADD_PARTITIONS: Final = _grid((Claim.CURRENT, Claim.OTHER_EPOCH, Claim.OTHER_ID), {
    S.EMPTY:           (ADD,  FENCED, UNMAPPED),
    S.ONGOING:         (ADD,  FENCED, UNMAPPED),
    KEPT:              (WRONG, FENCED, UNMAPPED),
    S.PREPARE_COMMIT:  (WAIT, WAIT,   WAIT),
    S.PREPARE_ABORT:   (WAIT, WAIT,   WAIT),
    S.COMPLETE_COMMIT: (ADD,  FENCED, UNMAPPED),
    S.COMPLETE_ABORT:  (ADD,  FENCED, UNMAPPED),
})

VERIFY_PARTITIONS: Final = _grid((Claim.CURRENT, Claim.OTHER_EPOCH, Claim.OTHER_ID), {
    S.EMPTY:           (LOOK, FENCED, UNMAPPED),
    S.ONGOING:         (LOOK, FENCED, UNMAPPED),
    KEPT:              (WRONG, FENCED, UNMAPPED),
    S.PREPARE_COMMIT:  (WAIT, FENCED, UNMAPPED),
    S.PREPARE_ABORT:   (WAIT, FENCED, UNMAPPED),
    S.COMPLETE_COMMIT: (LOOK, FENCED, UNMAPPED),
    S.COMPLETE_ABORT:  (LOOK, FENCED, UNMAPPED),
})

# EndTxn up to version 4: the epoch stays, so a retry cannot be told from the end of the next transaction. Its answer
# has no room for the pair that follows a kept transaction.
END_TXN_COMMIT_0: Final = _grid((Claim.CURRENT, Claim.OTHER_EPOCH, Claim.OTHER_ID), {
    S.EMPTY:           (WRONG,  FENCED, UNMAPPED),
    S.ONGOING:         (COMMIT, FENCED, UNMAPPED),
    KEPT:              (WRONG,  FENCED, UNMAPPED),
    S.PREPARE_COMMIT:  (WAIT,   FENCED, UNMAPPED),
    S.PREPARE_ABORT:   (WAIT,   FENCED, UNMAPPED),
    S.COMPLETE_COMMIT: (AGAIN,  FENCED, UNMAPPED),
    S.COMPLETE_ABORT:  (WRONG,  FENCED, UNMAPPED),
})
END_TXN_ABORT_0: Final = _grid((Claim.CURRENT, Claim.OTHER_EPOCH, Claim.OTHER_ID), {
    S.EMPTY:           (WRONG,  FENCED, UNMAPPED),
    S.ONGOING:         (ABORT,  FENCED, UNMAPPED),
    KEPT:              (WRONG,  FENCED, UNMAPPED),
    S.PREPARE_COMMIT:  (WAIT,   FENCED, UNMAPPED),
    S.PREPARE_ABORT:   (WAIT,   FENCED, UNMAPPED),
    S.COMPLETE_COMMIT: (WRONG,  FENCED, UNMAPPED),
    S.COMPLETE_ABORT:  (AGAIN,  FENCED, UNMAPPED),
})

# EndTxn from version 5 on: every end bumps the epoch. RETRY: the epoch before that bump.
END_TXN_COMMIT_2: Final = _grid((Claim.CURRENT, Claim.RETRY, Claim.OTHER_EPOCH, Claim.OTHER_ID), {
    S.EMPTY:           (WRONG,  FENCED, FENCED, UNMAPPED),
    S.ONGOING:         (COMMIT, FENCED, FENCED, UNMAPPED),
    KEPT:              (COMMIT, FENCED, FENCED, UNMAPPED),
    S.PREPARE_COMMIT:  (WAIT,   WAIT,   WAIT,   WAIT),
    S.PREPARE_ABORT:   (WAIT,   WAIT,   WAIT,   WAIT),
    S.COMPLETE_COMMIT: (WRONG,  AGAIN,  FENCED, UNMAPPED),
    # A commit that lost the race against an abort by the coordinator. Kafka 4.3.1 says INVALID_TXN_STATE, which is
    # fatal to clients; later ones say this (KAFKA-20785).
    S.COMPLETE_ABORT:  (WRONG,  FENCED, FENCED, UNMAPPED),
})
END_TXN_ABORT_2: Final = _grid((Claim.CURRENT, Claim.RETRY, Claim.OTHER_EPOCH, Claim.OTHER_ID), {
    S.EMPTY:           (ABORT,  FENCED, FENCED, UNMAPPED),
    S.ONGOING:         (ABORT,  FENCED, FENCED, UNMAPPED),
    KEPT:              (ABORT,  FENCED, FENCED, UNMAPPED),
    S.PREPARE_COMMIT:  (WAIT,   WAIT,   WAIT,   WAIT),
    S.PREPARE_ABORT:   (WAIT,   WAIT,   WAIT,   WAIT),
    S.COMPLETE_COMMIT: (ABORT,  WRONG,  FENCED, UNMAPPED),
    S.COMPLETE_ABORT:  (ABORT,  AGAIN,  FENCED, UNMAPPED),
})
# fmt: on

# By what is asked for (committed or not) and the transaction version that the request's own version stands for.
END_TXN: Final[Mapping[tuple[bool, int], Grid]] = {
    (True, 0): END_TXN_COMMIT_0,
    (False, 0): END_TXN_ABORT_0,
    (True, 2): END_TXN_COMMIT_2,
    (False, 2): END_TXN_ABORT_2,
}


# Answers to a marker after which its partition needs none any more. After any other it is sent again: forgetting it
# would leave the readers of the partition waiting.
NEEDS_NO_MARKER: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,  # such a log holds nothing transactional
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
