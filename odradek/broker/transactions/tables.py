"""The states of a transaction, their transitions, and grids that give the decision for each request in each state.

Two rules do not fit into grids and are implemented in `entry.py`: the epoch after a decision, and the replacement of a
producer id whose epochs are used up. Source: docs/spec/transactions.md#s1-1, #s1-2, #s2-2, #s2-3, #s2-5, #s2-13, #s3-3,
#s3-7; KIP-98, KIP-890, KIP-939.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, Literal

from odradek.protocol.errors import ErrorCode


class TxnState(Enum):
    """A transaction's state. The values are bytes on disk, but DEAD and PREPARE_EPOCH_FENCE are never stored.

    In Kafka an entry is in DEAD or PREPARE_EPOCH_FENCE while its next record is being written. In this broker a
    decision and its write happen in the same turn, so no request ever finds an entry in these states.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    # Enum's own hash is slow, and each transaction uses the tables a dozen times.
    __hash__ = object.__hash__

    @property
    def kafka_name(self) -> str:
        """The state's name in DescribeTransactions and ListTransactions."""
        return KAFKA_NAMES[self]


S = TxnState
KAFKA_NAMES: Final[Mapping[TxnState, str]] = {state: state.name.title().replace("_", "") for state in TxnState}
STORED: Final = frozenset(TxnState) - {S.DEAD, S.PREPARE_EPOCH_FENCE}
PREPARED: Final = frozenset({S.PREPARE_COMMIT, S.PREPARE_ABORT})  # decided, but not all markers have been written
COMPLETED: Final[Mapping[TxnState, TxnState]] = {
    S.PREPARE_COMMIT: S.COMPLETE_COMMIT,
    S.PREPARE_ABORT: S.COMPLETE_ABORT,
}
EXPIRABLE: Final = frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT})


class KeptTransaction(Enum):
    """A kept transaction's state. On disk the transaction is ONGOING, but its new owner may only end it.

    InitProducerId with KeepPreparedTxn has given the owner its own producer id and epoch (KIP-939). Requests are
    compared with the owner's producer id and epoch, so each grid has a row for this state.
    """

    KEPT = auto()

    @property
    def kafka_name(self) -> str:
        return self.name.title()


KEPT: Final[Literal[KeptTransaction.KEPT]] = KeptTransaction.KEPT
Row = TxnState | KeptTransaction
ROWS: Final[frozenset[Row]] = STORED | {KEPT}

# States without a transaction can change to PREPARE_ABORT, because KIP-890 allows an abort without a transaction.
IDLE_EXITS: Final = frozenset({S.EMPTY, S.ONGOING, S.PREPARE_ABORT, S.DEAD})
DECISIONS: Final = frozenset({S.PREPARE_COMMIT, S.PREPARE_ABORT, S.PREPARE_EPOCH_FENCE})
NEXT: Final[Mapping[Row, frozenset[Row]]] = {
    S.EMPTY: IDLE_EXITS,
    S.ONGOING: DECISIONS | {S.ONGOING, KEPT},
    KEPT: DECISIONS | {KEPT},
    # A decided state can change to itself when a topic that still needs a marker is deleted.
    S.PREPARE_COMMIT: frozenset({S.PREPARE_COMMIT, S.COMPLETE_COMMIT}),
    S.PREPARE_ABORT: frozenset({S.PREPARE_ABORT, S.COMPLETE_ABORT}),
    S.COMPLETE_COMMIT: IDLE_EXITS,
    S.COMPLETE_ABORT: IDLE_EXITS,
    S.DEAD: frozenset(),
    S.PREPARE_EPOCH_FENCE: frozenset({S.PREPARE_ABORT}),
}


class TxnVerdict(Enum):
    """The action for a request that is not refused."""

    BUMP = auto()  # assign the next epoch, or a new producer id if the epochs are used up
    FENCE = auto()  # abort the open transaction on behalf of the new owner, which has to retry
    KEEP = auto()  # keep the open transaction and give the new owner its own producer id and epoch
    ADD = auto()
    LOOK = auto()
    COMMIT = auto()
    ABORT = auto()
    AGAIN = auto()  # repeat the response to a step that has already been taken


class Claim(Enum):
    """How the producer id and epoch in a request relate to the stored producer id P and epoch E.

    While a transaction is kept, P and E are the producer id and epoch of its new owner, not those in its records.
    """

    NONE = auto()  # no producer id and epoch, as in the first InitProducerId of a producer
    CURRENT = auto()  # exactly P and E
    RETRY = auto()  # the producer id and epoch before the requested step; the response to the first attempt was lost
    OTHER_EPOCH = auto()  # P with any other epoch
    OTHER_ID = auto()

    __hash__ = object.__hash__  # See TxnState.


Cell = TxnVerdict | ErrorCode
BUMP, FENCE, KEEP, ADD, LOOK = TxnVerdict.BUMP, TxnVerdict.FENCE, TxnVerdict.KEEP, TxnVerdict.ADD, TxnVerdict.LOOK
COMMIT, ABORT, AGAIN = TxnVerdict.COMMIT, TxnVerdict.ABORT, TxnVerdict.AGAIN
FENCED, UNMAPPED = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING
WAIT, INVALID = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE

# In some rows every cell is WAIT. Until all markers of a decided transaction are written, even requests with another
# producer id must wait: the producer id may be about to change, and the request may come from the producer that already
# has the next id.


Grid = Mapping[Row, Mapping[Claim, Cell]]


def _grid(claims: tuple[Claim, ...], rows: Mapping[Row, tuple[Cell, ...]]) -> Grid:
    return {row: dict(zip(claims, cells, strict=True)) for row, cells in rows.items()}


# fmt: off
INIT_PRODUCER_ID: Final = _grid(
    # RETRY is the epoch before the last bump. While a transaction is open, only the producer id is compared. Any
    # producer with the right id may abort the transaction and learns on its next attempt whether it is still the owner.
    (Claim.NONE, Claim.CURRENT, Claim.RETRY, Claim.OTHER_EPOCH, Claim.OTHER_ID), {
    S.EMPTY:           (BUMP,  BUMP,  AGAIN,  FENCED, FENCED),
    S.ONGOING:         (FENCE, FENCE, FENCE,  FENCE,  FENCED),
    # A request with a producer id and epoch comes from a recovering client, which must not end a transaction that a
    # later recovery has taken over.
    KEPT:              (FENCE, FENCE, FENCED, FENCED, FENCED),
    S.PREPARE_COMMIT:  (WAIT,  WAIT,  WAIT,   WAIT,   WAIT),
    S.PREPARE_ABORT:   (WAIT,  WAIT,  WAIT,   WAIT,   WAIT),
    S.COMPLETE_COMMIT: (BUMP,  BUMP,  AGAIN,  FENCED, FENCED),
    S.COMPLETE_ABORT:  (BUMP,  BUMP,  AGAIN,  FENCED, FENCED),
})
# An external coordinator may already have decided a two-phase commit, so a superseded producer must not end it.
INIT_PRODUCER_ID_TWO_PHASE: Final[Grid] = {**INIT_PRODUCER_ID, **_grid(
    (Claim.NONE, Claim.CURRENT, Claim.RETRY, Claim.OTHER_EPOCH, Claim.OTHER_ID), {
    S.ONGOING:         (FENCE, FENCE, FENCED, FENCED, FENCED),
})}
# The grid for requests with KeepPreparedTxn. Only the rows that have a transaction to keep differ from
# INIT_PRODUCER_ID. The client becomes the owner without a second request, so an old epoch is refused immediately.
INIT_PRODUCER_ID_KEEPING: Final[Grid] = {**INIT_PRODUCER_ID, **_grid(
    (Claim.NONE, Claim.CURRENT, Claim.RETRY, Claim.OTHER_EPOCH, Claim.OTHER_ID), {
    S.ONGOING:         (KEEP, KEEP, FENCED, FENCED, FENCED),
    KEPT:              (KEEP, KEEP, FENCED, FENCED, FENCED),
})}

ADD_PARTITIONS: Final = _grid((Claim.CURRENT, Claim.OTHER_EPOCH, Claim.OTHER_ID), {
    S.EMPTY:           (ADD,     FENCED, UNMAPPED),
    S.ONGOING:         (ADD,     FENCED, UNMAPPED),
    KEPT:              (INVALID, FENCED, UNMAPPED),
    S.PREPARE_COMMIT:  (WAIT,    WAIT,   WAIT),
    S.PREPARE_ABORT:   (WAIT,    WAIT,   WAIT),
    S.COMPLETE_COMMIT: (ADD,     FENCED, UNMAPPED),
    S.COMPLETE_ABORT:  (ADD,     FENCED, UNMAPPED),
})

VERIFY_PARTITIONS: Final = _grid((Claim.CURRENT, Claim.OTHER_EPOCH, Claim.OTHER_ID), {
    S.EMPTY:           (LOOK,    FENCED, UNMAPPED),
    S.ONGOING:         (LOOK,    FENCED, UNMAPPED),
    KEPT:              (INVALID, FENCED, UNMAPPED),
    S.PREPARE_COMMIT:  (WAIT,    FENCED, UNMAPPED),
    S.PREPARE_ABORT:   (WAIT,    FENCED, UNMAPPED),
    S.COMPLETE_COMMIT: (LOOK,    FENCED, UNMAPPED),
    S.COMPLETE_ABORT:  (LOOK,    FENCED, UNMAPPED),
})

# TV0 and TV2 are transaction versions, as in `transaction.version`. EndTxn requests up to version 4 use transaction
# version 0. Later EndTxn requests use version 2, or version 0 if `transaction.version` is 0. Transaction version 1 has
# no grids, because it only changes the record format.
#
# TV0: the epoch does not change, so a retry cannot be distinguished from the end of the next transaction. The response
# has no fields for the producer id and epoch that the owner of a kept transaction would use next.
END_TXN_COMMIT_TV0: Final = _grid((Claim.CURRENT, Claim.OTHER_EPOCH, Claim.OTHER_ID), {
    S.EMPTY:           (INVALID, FENCED, UNMAPPED),
    S.ONGOING:         (COMMIT,  FENCED, UNMAPPED),
    KEPT:              (INVALID, FENCED, UNMAPPED),
    S.PREPARE_COMMIT:  (WAIT,    FENCED, UNMAPPED),
    S.PREPARE_ABORT:   (WAIT,    FENCED, UNMAPPED),
    S.COMPLETE_COMMIT: (AGAIN,   FENCED, UNMAPPED),
    S.COMPLETE_ABORT:  (INVALID, FENCED, UNMAPPED),
})
END_TXN_ABORT_TV0: Final = _grid((Claim.CURRENT, Claim.OTHER_EPOCH, Claim.OTHER_ID), {
    S.EMPTY:           (INVALID, FENCED, UNMAPPED),
    S.ONGOING:         (ABORT,   FENCED, UNMAPPED),
    KEPT:              (INVALID, FENCED, UNMAPPED),
    S.PREPARE_COMMIT:  (WAIT,    FENCED, UNMAPPED),
    S.PREPARE_ABORT:   (WAIT,    FENCED, UNMAPPED),
    S.COMPLETE_COMMIT: (INVALID, FENCED, UNMAPPED),
    S.COMPLETE_ABORT:  (AGAIN,   FENCED, UNMAPPED),
})

# TV2: ending a transaction always bumps the epoch, and RETRY is the epoch before the bump.
END_TXN_COMMIT_TV2: Final = _grid((Claim.CURRENT, Claim.RETRY, Claim.OTHER_EPOCH, Claim.OTHER_ID), {
    S.EMPTY:           (INVALID, FENCED, FENCED, UNMAPPED),
    S.ONGOING:         (COMMIT,  FENCED, FENCED, UNMAPPED),
    KEPT:              (COMMIT,  FENCED, FENCED, UNMAPPED),
    S.PREPARE_COMMIT:  (WAIT,    WAIT,   WAIT,   WAIT),
    S.PREPARE_ABORT:   (WAIT,    WAIT,   WAIT,   WAIT),
    S.COMPLETE_COMMIT: (INVALID, AGAIN,  FENCED, UNMAPPED),
    # The RETRY cell applies to a commit that arrives after the coordinator has aborted the transaction. Kafka 4.3.1
    # responds with INVALID_TXN_STATE, which is fatal to clients. Later releases respond like this broker (KAFKA-20785).
    S.COMPLETE_ABORT:  (INVALID, FENCED, FENCED, UNMAPPED),
})
END_TXN_ABORT_TV2: Final = _grid((Claim.CURRENT, Claim.RETRY, Claim.OTHER_EPOCH, Claim.OTHER_ID), {
    S.EMPTY:           (ABORT, FENCED,  FENCED, UNMAPPED),
    S.ONGOING:         (ABORT, FENCED,  FENCED, UNMAPPED),
    KEPT:              (ABORT, FENCED,  FENCED, UNMAPPED),
    S.PREPARE_COMMIT:  (WAIT,  WAIT,    WAIT,   WAIT),
    S.PREPARE_ABORT:   (WAIT,  WAIT,    WAIT,   WAIT),
    S.COMPLETE_COMMIT: (ABORT, INVALID, FENCED, UNMAPPED),
    S.COMPLETE_ABORT:  (ABORT, AGAIN,   FENCED, UNMAPPED),
})
# fmt: on

# Each key contains True for a commit or False for an abort, and the transaction version of the request (0 or 2).
END_TXN: Final[Mapping[tuple[bool, int], Grid]] = {
    (True, 0): END_TXN_COMMIT_TV0,
    (False, 0): END_TXN_ABORT_TV0,
    (True, 2): END_TXN_COMMIT_TV2,
    (False, 2): END_TXN_ABORT_TV2,
}


# Error codes after which a partition no longer needs the marker. After any other code the marker is sent again, because
# without a marker the partition's readers would wait forever.
NEEDS_NO_MARKER: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,  # a log in this format has no transactional records
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
