"""The state of a share partition: its key, the messages between leaders and the share coordinator, and the stored
records.

Acknowledgements in a producer's transaction (KIP-1289) are stored as `PendingRange`s until a marker ends the
transaction. The transaction coordinator raises the producer epoch when it decides a transaction (KIP-890), so a
transaction's marker carries an epoch that is one higher than the transaction's own. A marker with the transaction's own
epoch belongs to the previous transaction. An `Outcome` is only a decision: the caller appends its records, replays
them, and then sends the response. Source: docs/spec/share-groups.md#s4, #s5-7, #s5-12.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from odradek.protocol.quoting import quoted

# Patterns for the last two parts of a share coordinator key. Their bounded length limits the matching time.
TOPIC_ID = re.compile(r"([\w-]{22})(?:==)?", re.ASCII)
PARTITION = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
BLANK = " \t\n\r\f\v"
MAX_PARTITION = (1 << 31) - 1


class SharePartitionKey(NamedTuple):
    group_id: str
    topic_id: bytes
    partition: int

    @classmethod
    def parse(cls, text: str) -> SharePartitionKey:
        """Parses `group:topic id:partition`. The group id may contain colons, and colons at the end are ignored.

        Like Kafka, accepts partition numbers that no topic can have. Raises ValueError if the string has any other
        form. The parsing time is proportional to the length of the string, so that no client can block the broker with
        a long string.
        """
        parts = text.rstrip(":").rsplit(":", 2)
        if len(parts) == 3 and parts[0].strip(BLANK):
            topic_id = TOPIC_ID.fullmatch(parts[1])
            if topic_id is not None and PARTITION.fullmatch(parts[2]) and abs(int(parts[2])) <= MAX_PARTITION:
                return cls(parts[0], urlsafe_b64decode(f"{topic_id[1]}=="), int(parts[2]))
        raise ValueError(f"not of the form group:topic id:partition: {quoted(text)}")

    def __str__(self) -> str:
        return coordinator_key(self)


@lru_cache(1024)  # cached because every request needs the keys of a few share partitions several times
def coordinator_key(key: SharePartitionKey) -> str:
    """Returns the key that clients use to look up the share coordinator (docs/spec/share-groups.md#s1-7)."""
    return f"{key.group_id}:{urlsafe_b64encode(key.topic_id).decode().rstrip('=')}:{key.partition}"


UNDECIDED_START_OFFSET = -1  # the leader has not chosen the start offset yet (share.auto.offset.reset)
UNKNOWN_COUNT = -1


class StateBatch(NamedTuple):
    """An inclusive range of offsets with the same state and delivery count.

    delivery_state  the number on the wire and on disk; `tables.RecordState` lists the known numbers
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


ACCEPT, REJECT = 1, 3  # the acknowledgement types that can be pending in a transaction
# DEAD_LETTER is a rejection made while the group had a dead-letter queue; a commit marker makes the record ARCHIVING.
# This type exists only in stored records, not in requests.
DEAD_LETTER = 16
MAX_EPOCH = 2**15 - 1
# The lowest transaction.version at which the epoch of a marker identifies the marker's transaction.
FIRST_LEVEL_WITH_MARKER_EPOCH_CHECK = 2


class Resolution(Enum):
    """How a pending acknowledgement was resolved. The values are stored on disk as bytes."""

    ABORTED = 0
    COMMITTED = 1
    LOCK_EXPIRED = 2


class PendingTransaction(NamedTuple):
    """The transaction of a pending acknowledgement, as the transaction coordinator identifies it.

    transactional_id  None if the stored record does not contain it
    """

    transactional_id: str | None
    producer_id: int
    producer_epoch: int


class PendingCount(NamedTuple):
    """The number of records in one share partition whose acknowledgement is pending in one transaction."""

    key: SharePartitionKey
    transaction: PendingTransaction
    record_count: int


class PendingRange(NamedTuple):
    """An inclusive range of offsets whose acknowledgement is waiting for a transaction marker.

    ack_type          ACCEPT, REJECT or DEAD_LETTER
    member_id         the member that had acquired the offsets; `member_epoch` is its epoch
    lock_deadline_ms  when that member's lock expires (wall clock)
    """

    first_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    ack_type: int
    delivery_count: int
    member_id: str
    member_epoch: int
    lock_deadline_ms: int
    transactional_id: str | None = None

    @property
    def transaction(self) -> PendingTransaction:
        return PendingTransaction(self.transactional_id, self.producer_id, self.producer_epoch)


class ResolvedRange(NamedTuple):
    """Offsets that are no longer pending. Only acknowledgements with this producer id and epoch are resolved."""

    first_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    resolution: Resolution
    decided_at_ms: int = -1

    @classmethod
    def of(cls, pending: PendingRange, resolution: Resolution, now_ms: int) -> ResolvedRange:
        return cls(
            pending.first_offset, pending.last_offset, pending.producer_id, pending.producer_epoch, resolution, now_ms
        )


class TransactionEnd(NamedTuple):
    """The content of a transaction marker. `transaction_version` comes from WriteTxnMarkers v2. Markers in a log do not
    contain the version, so version 2 is assumed for them."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int = FIRST_LEVEL_WITH_MARKER_EPOCH_CHECK


def resolution_by(ending: TransactionEnd, producer_id: int, producer_epoch: int) -> Resolution | None:
    """Returns the resolution that a marker gives to a pending acknowledgement with this producer id and epoch. Returns
    None if the marker belongs to another transaction.

    If the marker's epoch is higher than the epoch of this transaction's own marker, the transaction ended long ago and
    its own marker never arrived. The acknowledgement is then aborted.
    """
    if ending.producer_id != producer_id:
        return None
    result = Resolution.COMMITTED if ending.is_commit else Resolution.ABORTED
    own_epoch = (
        producer_epoch if ending.transaction_version < FIRST_LEVEL_WITH_MARKER_EPOCH_CHECK else producer_epoch + 1
    )
    if ending.producer_epoch == own_epoch:
        return result
    if ending.producer_epoch > own_epoch:
        return Resolution.ABORTED
    if ending.producer_epoch == producer_epoch == MAX_EPOCH and not ending.is_commit:
        return Resolution.ABORTED
    return None


R_co = TypeVar("R_co", covariant=True)


class ShareSnapshot(NamedTuple):
    """A share partition's complete state, including all pending ranges. It replaces the previous state."""

    key: SharePartitionKey
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    created_ms: int
    written_ms: int
    batches: Sequence[StateBatch] = ()
    pending: Sequence[PendingRange] = ()


class ShareUpdate(NamedTuple):
    """The changes made by one write. A start offset of -1 means no change. `written_ms` is not stored."""

    key: SharePartitionKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch] = ()
    written_ms: int = 0
    pending: Sequence[PendingRange] = ()
    resolved: Sequence[ResolvedRange] = ()


class StateDeletion(NamedTuple):
    key: SharePartitionKey


StateRecord = ShareSnapshot | ShareUpdate | StateDeletion


class StoredState(NamedTuple):
    """The stored state that a leader loads for a share partition."""

    state_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]
    pending: Sequence[PendingRange] = ()


class StateSummary(NamedTuple):
    """A summary of a share partition's stored state. If the state was never initialised, there is no start offset, and
    the epochs are 0."""

    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNDECIDED_START_OFFSET
    delivery_complete_count: int = UNKNOWN_COUNT
    pending_count: int = 0  # offsets whose acknowledgement is waiting for a transaction marker

    @property
    def is_there(self) -> bool:
        """Whether the state has been initialised. Group epochs, and the state epochs derived from them, begin at 1."""
        return self.state_epoch > 0


class Outcome(NamedTuple, Generic[R_co]):
    """A decision of `StateCore`, with only the fields of `odradek.broker.coordinators.shard.OutcomeLike`. The cores of
    groups and transactions have their own outcome classes with more fields."""

    response: R_co | None = None
    records: Sequence[StateRecord] = ()
    replies: Sequence[object] = ()
    timers: Sequence[object] = ()
    markers: Sequence[object] = ()
    may_split: bool = False
    must_sync: bool = False
