"""A history lists, in order, what clients did and saw. `tests.checker.anomalies` judges it.

A transaction is committed, aborted, or unknown. It is unknown if its producer requested the commit but got no response.
A transaction whose producer never requested a commit cannot be committed. Values identify records: no two sends to one
partition have the same value, except that a producer may send a value again when it knows or believes that the first
transaction is aborted.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
Value: TypeAlias = Hashable
Transaction: TypeAlias = Hashable


class Answer(Enum):
    YES = auto()
    NO = auto()  # The action had no effect, and never will.
    UNKNOWN = auto()  # The response was lost, or an error left the outcome open.


@dataclass(frozen=True, slots=True)
class RecordSent:
    """A record that was sent. Its position in the history shows when it was sent. `answer` is the outcome as the client
    finally knows it.

        transaction  None if the record is not part of a transaction
        offset       offset of the record, if the client learned it
    """

    producer: str
    partition: TopicPartition
    value: Value
    answer: Answer = Answer.YES
    transaction: Transaction | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class CommitRequested:
    transaction: Transaction


@dataclass(frozen=True, slots=True)
class CommitAnswered:
    """The response to a commit. NO means that the transaction is aborted, or will be."""

    transaction: Transaction
    answer: Answer


@dataclass(frozen=True, slots=True)
class ConsumerPositioned:
    """The consumer continues at `offset`, because it has started, called seek or been assigned the partition."""

    consumer: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class RecordsPolled:
    """Records of one partition that a read_committed consumer received."""

    consumer: str
    partition: TopicPartition
    records: Sequence[tuple[int, Value]]


@dataclass(frozen=True, slots=True)
class ReachedEnd:
    """The consumer has read everything from its position to the end of the partition, and no transaction is open there
    any more."""

    consumer: str
    partition: TopicPartition


Event: TypeAlias = RecordSent | CommitRequested | CommitAnswered | ConsumerPositioned | RecordsPolled | ReachedEnd
History: TypeAlias = Sequence[Event]
