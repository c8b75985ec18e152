"""Values that applications pass to the client or receive from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import NamedTuple, TypeVar

from odradek.protocol import kip_1289
from odradek.protocol.batch_header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

K = TypeVar("K")
V = TypeVar("V")

Headers = tuple[tuple[str, bytes | None], ...]


class TopicPartition(NamedTuple):
    """A partition, identified by its topic and number."""

    topic: str
    partition: int


class RecordMetadata(NamedTuple):
    """A written record's position.

    `offset` is None if the broker did not return it: with `acks=0`, or if the batch was a duplicate whose offset the
    broker no longer had. `timestamp_ms` is the broker's time in topics with LogAppendTime.
    """

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int


class ConsumerRecord(NamedTuple):
    """A record that a consumer has read. `key` is None if the record has no key, and `value` is None if it has no
    value."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class ShareRecord(NamedTuple):
    """A record delivered through a share group. `delivery_count` is 1 on the first delivery."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    delivery_count: int


class AcknowledgeType(Enum):
    """The result of processing a record from a share group. The values are protocol codes."""

    ACCEPT = 1  # processed
    RELEASE = 2  # deliver the record again, to any member
    REJECT = 3  # never deliver the record again
    RENEW = 4  # still being processed: restart the acquisition lock


class AcknowledgedRange(NamedTuple):
    """A range of offsets in one partition, including both ends."""

    first_offset: int
    last_offset: int
    type: AcknowledgeType = AcknowledgeType.ACCEPT


class OffsetAndMetadata(NamedTuple):
    """A committed position. `offset` is the offset of the next record to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """Identifies the member that commits offsets.

    If the generation and the member id are given, the broker refuses a commit from a member that was removed from the
    group. If only the group id is given, the broker cannot check this.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


TXN_ACKNOWLEDGE_FEATURE = kip_1289.FEATURE
TXN_ACKNOWLEDGE_NEEDS = (
    "TxnShareAcknowledge (KIP-1289), which needs the feature odradek.share.transactions at level 1, and with it"
    " share.version 1 or above and transaction.version 2. To raise it, run: odradek features upgrade --feature"
    " odradek.share.transactions=1"
)

Acknowledgements = Mapping[TopicPartition, Sequence[AcknowledgedRange]]
"""The records that a transaction acknowledges: disjoint ranges of offsets in ascending order, by partition."""

TransactionEnded = Callable[[bool], None]
"""Called with True if the transaction was committed, with False if it was aborted."""

Claim = Callable[[Acknowledgements], TransactionEnded]
"""Called before a transaction acknowledges records, so that their consumer does not acknowledge them too. Raises
AbortableError if the consumer has already acknowledged one of the records."""


@dataclass(frozen=True, slots=True)
class ShareGroupMetadata:
    """Identifies a share group member, so that a transaction can acknowledge the member's records. The epoch changes
    with the assignment.

    claim   connects the metadata with the consumer that returned it. `claim` is None in metadata that the application
            has built itself; nothing then prevents the consumer from acknowledging the same records outside the
            transaction. The field is neither compared nor pickled.
    """

    group_id: str
    member_id: str
    member_epoch: int
    claim: Claim | None = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[type[ShareGroupMetadata], tuple[str, str, int]]:
        return ShareGroupMetadata, (self.group_id, self.member_id, self.member_epoch)


_TEXT = re.compile(r"(0|[1-9]\d{0,18}):(0|[1-9]\d{0,4})", re.ASCII)
_LARGEST_ID, _LARGEST_EPOCH = 2**63 - 1, 2**15 - 1


@dataclass(frozen=True, slots=True)
class PreparedTxnState:
    """Identifies one transaction permanently: with transaction.version 2, no two transactions have the same producer id
    and epoch.

    `str(state)` is "producerId:epoch", as in Kafka's Java client, and has at most 25 characters. A state created
    without arguments identifies no transaction, and its string is empty.
    """

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}" if self.has_transaction else ""

    @property
    def has_transaction(self) -> bool:
        """True if the state identifies a transaction. False if the producer had not sent anything."""
        return self.producer_id != NO_PRODUCER_ID

    @classmethod
    def parse(cls, text: str) -> PreparedTxnState:
        """Parses the result of `str`. Raises ValueError if the text is not a state."""
        if text == "":
            return cls()
        match = _TEXT.fullmatch(text)
        if match is not None:
            producer_id, producer_epoch = int(match[1]), int(match[2])
            if producer_id <= _LARGEST_ID and producer_epoch <= _LARGEST_EPOCH:
                return cls(producer_id, producer_epoch)
        raise ValueError(f"{text!r} is not the state of a prepared transaction, which has the form producerId:epoch")


# Maximum number of partitions in one request of this client. Brokers process this many partitions without delaying
# other requests; they refuse a request with 20,000.
ENTRIES_AT_A_TIME = 5_000


def blocks(items: Iterable[V], size: int = ENTRIES_AT_A_TIME) -> Iterator[list[V]]:
    """Yields the items in lists of `size` items; the last list may be shorter."""
    left = iter(items)
    while block := list(islice(left, size)):
        yield block


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Groups the values of (key, value) pairs by key, for example partition indexes by topic. Keeps the order of the
    pairs."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
