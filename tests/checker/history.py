"""What clients did and saw, in the order in which it happened: the evidence that `tests.checker.anomalies` judges.

A transaction is committed, aborted or unknown: its producer asked for the commit and got no answer. A transaction whose
commit was never asked for cannot be committed. Values identify records: no two sends to one partition are alike, except
that a value is sent again when its first transaction is known, or believed, to be aborted.
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
    NO = auto()  # it will never happen either
    UNKNOWN = auto()  # the response was lost, or an error leaves the outcome open


@dataclass(frozen=True, slots=True)
class Sent:
    """A record. Its place in the history is the time of the send; `answer` is the final knowledge of its outcome.

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
class CommitAsked:
    transaction: Transaction


@dataclass(frozen=True, slots=True)
class CommitAnswered:
    """The response to a commit. NO means that the transaction is aborted, or will be."""

    transaction: Transaction
    answer: Answer


@dataclass(frozen=True, slots=True)
class Positioned:
    """The consumer continues at `offset`: at its start, after a seek, or after the partition was assigned to it."""

    consumer: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Polled:
    """Records of one partition that a read_committed consumer received."""

    consumer: str
    partition: TopicPartition
    records: Sequence[tuple[int, Value]]


@dataclass(frozen=True, slots=True)
class ReachedEnd:
    """The consumer has read everything from its position on, and no transaction was open any more."""

    consumer: str
    partition: TopicPartition


Event: TypeAlias = Sent | CommitAsked | CommitAnswered | Positioned | Polled | ReachedEnd
History: TypeAlias = Sequence[Event]
