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
    NO = auto()  # and it never will be
    UNKNOWN = auto()  # lost, or an error that says nothing certain


@dataclass(frozen=True, slots=True)
class Sent:
    """Stands where it was sent, which tells the order; `answer` is what was known of it in the end.

    transaction  None: outside of any
    offset       where it was acknowledged, if the client was told
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
    """NO: it is aborted, or will be."""

    transaction: Transaction
    answer: Answer


@dataclass(frozen=True, slots=True)
class Positioned:
    """The consumer reads on from `offset`: at its start, after a seek, when the partition was assigned to it."""

    consumer: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Polled:
    """Records that a read_committed consumer was given of one partition."""

    consumer: str
    partition: TopicPartition
    records: Sequence[tuple[int, Value]]


@dataclass(frozen=True, slots=True)
class ReachedEnd:
    """The consumer has seen all that there is from where it was positioned on; nothing was open any more."""

    consumer: str
    partition: TopicPartition


Event: TypeAlias = Sent | CommitAsked | CommitAnswered | Positioned | Polled | ReachedEnd
History: TypeAlias = Sequence[Event]
