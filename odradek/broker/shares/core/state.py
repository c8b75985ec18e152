"""The state of a share partition: its key, what leaders and the share coordinator exchange, and what is stored.

Acknowledgements in a producer's transaction (KIP-1289) wait as `PendingRange`s for the marker that ends it. A marker
carries the epoch after that of the transaction that it ends, since the coordinator raises the epoch with its decision
(KIP-890): one with the transaction's own epoch belongs to the one before. Nothing in an `Outcome` has happened yet: the
shell appends its records and replays them, then releases the answer.
Source: docs/spec/share-groups.md#s4, #s5-7, #s5-12.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from odradek.protocol.quoting import quoted

# The last two parts of a share coordinator's key; both have a bounded length, so that matching cannot take long.
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
        """Reads `group:topic id:partition`; a group id may contain colons, and colons at the end are ignored.

        Accepts partition numbers that no topic can have, as Kafka does. Raises ValueError if the text has another form.
        Takes time in proportion to the text's length: the key comes from a client.
        """
        parts = text.rstrip(":").rsplit(":", 2)
        if len(parts) == 3 and parts[0].strip(BLANK):
            topic_id = TOPIC_ID.fullmatch(parts[1])
            if topic_id is not None and PARTITION.fullmatch(parts[2]) and abs(int(parts[2])) <= MAX_PARTITION:
                return cls(parts[0], urlsafe_b64decode(f"{topic_id[1]}=="), int(parts[2]))
        raise ValueError(f"not of the form group:topic id:partition: {quoted(text)}")

    def __str__(self) -> str:
        return coordinator_key(self)


@lru_cache(1024)  # every request asks for those of a few share partitions several times
def coordinator_key(key: SharePartitionKey) -> str:
    """Makes the text that the share coordinator is found by (docs/spec/share-groups.md#s1-7)."""
    return f"{key.group_id}:{urlsafe_b64encode(key.topic_id).decode().rstrip('=')}:{key.partition}"


UNDECIDED_START_OFFSET = -1  # the leader has still to choose it (share.auto.offset.reset)
UNKNOWN_COUNT = -1


class StateBatch(NamedTuple):
    """Offsets (both inclusive) that are in one state and were delivered equally often.

    delivery_state  the number on the wire and on disk; `tables.RecordState` names those that are known
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


ACCEPT, REJECT = 1, 3  # the types that can wait for a marker
# Rejected while the group had a dead-letter queue: the marker that commits it makes the record ARCHIVING. Only stored,
# and no type of a request.
DEAD_LETTER = 16
MAX_EPOCH = 2**15 - 1
EPOCH_TELLS_SINCE = 2  # transaction.version


class Resolution(Enum):
    """How a pending acknowledgement ended; the values are bytes on disk."""

    ABORTED = 0
    COMMITTED = 1
    LOCK_EXPIRED = 2


class PendingTransaction(NamedTuple):
    """The transaction in which something is pending, as the transaction coordinator is asked about it.

    transactional_id  None where the record does not name it
    """

    transactional_id: str | None
    producer_id: int
    producer_epoch: int


class PendingHere(NamedTuple):
    """The number of records that one transaction has pending in one share partition."""

    key: SharePartitionKey
    transaction: PendingTransaction
    record_count: int


class PendingRange(NamedTuple):
    """Offsets, both inclusive, whose acknowledgement waits for a marker.

    ack_type          ACCEPT, REJECT or DEAD_LETTER
    member_id         who had acquired them; so the epoch of that member, and when its lock runs out (wall clock)
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
    def record_count(self) -> int:
        return self.last_offset - self.first_offset + 1

    @property
    def transaction(self) -> PendingTransaction:
        return PendingTransaction(self.transactional_id, self.producer_id, self.producer_epoch)


class ResolvedRange(NamedTuple):
    """Offsets that are pending no longer; takes away only what the same producer id and epoch have pending."""

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


class Ending(NamedTuple):
    """The content of a marker. transaction_version: of WriteTxnMarkers v2; in a log there is none, and 2 is assumed."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int = EPOCH_TELLS_SINCE


def resolution_by(ending: Ending, producer_id: int, producer_epoch: int) -> Resolution | None:
    """Tells how a marker ends a pending acknowledgement of this producer id and epoch; None: it ends another
    transaction.

    An epoch further on says that the transaction is long over, and that nobody told us how: aborted.
    """
    if ending.producer_id != producer_id:
        return None
    result = Resolution.COMMITTED if ending.is_commit else Resolution.ABORTED
    own_epoch = producer_epoch if ending.transaction_version < EPOCH_TELLS_SINCE else producer_epoch + 1
    if ending.producer_epoch == own_epoch:
        return result
    if ending.producer_epoch > own_epoch:
        return Resolution.ABORTED
    if ending.producer_epoch == producer_epoch == MAX_EPOCH and not ending.is_commit:
        return Resolution.ABORTED
    return None


R_co = TypeVar("R_co", covariant=True)


class Snapshot(NamedTuple):
    """All that is known of a share partition, everything pending included. Replaces what was known before."""

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


class Update(NamedTuple):
    """The additions of one write. A start offset of -1 leaves the old one. `written_ms` is not stored."""

    key: SharePartitionKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch] = ()
    written_ms: int = 0
    pending: Sequence[PendingRange] = ()
    resolved: Sequence[ResolvedRange] = ()


class Deletion(NamedTuple):
    key: SharePartitionKey


StateRecord = Snapshot | Update | Deletion


class StoredState(NamedTuple):
    """The state that a leader finds when it loads a share partition."""

    state_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]
    pending: Sequence[PendingRange] = ()


class StateSummary(NamedTuple):
    """A share partition that was never initialised has no start offset, and epochs of 0."""

    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNDECIDED_START_OFFSET
    delivery_complete_count: int = UNKNOWN_COUNT
    pending_count: int = 0  # offsets whose acknowledgement waits for a marker

    @property
    def is_there(self) -> bool:
        """Group epochs, and the state epochs made of them, begin with 1."""
        return self.state_epoch > 0


class Outcome(NamedTuple, Generic[R_co]):
    """A decision; the members are those of `odradek.broker.coordinators.shard.OutcomeLike`."""

    response: R_co | None = None
    records: Sequence[StateRecord] = ()
    replies: Sequence[object] = ()
    timers: Sequence[object] = ()
    may_split: bool = False
    must_sync: bool = False
