"""Finds faults in a history of dual writes to a database and Kafka.

torn            only some of a transaction's rows exist
lost            rows are missing although their transaction was reported as committed
risen           rows exist although their transaction was reported as rolled back
unilateral      Kafka committed or aborted messages before the database decided, or against its decision
diverged        after recovery, there are rows without their messages, or messages without their rows
undecided       after recovery, a transaction is still open

`verdicts(history)` is empty for every correct history. `tests.checker.anomalies` finds faults among the messages
themselves (lost, repeated, reordered …).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from tests.checker.history import Answer

Value: TypeAlias = str
Name: TypeAlias = str  # the name of a transaction


class Kind(Enum):
    TORN = "torn"
    LOST = "lost"
    RISEN = "risen"
    UNILATERAL = "unilateral"
    DIVERGED = "diverged"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class BlockStarted:
    """The start of a block that writes each value as a row and sends it as a message."""

    transaction: Name
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class TransactionPrepared:
    """The producer has prepared the transaction. From then on, Kafka must wait for the database's decision."""

    transaction: Name


@dataclass(frozen=True, slots=True)
class RowsReported:
    """The outcome of the rows as the application learns it. A history can lack this event."""

    transaction: Name
    rows: Answer


@dataclass(frozen=True, slots=True)
class RecoveryStarted:
    pass


@dataclass(frozen=True, slots=True)
class RecoveryEnded:
    pass


@dataclass(frozen=True, slots=True)
class BothSidesRead:
    """The messages and rows that separate readers see while no application is running. They first read the committed
    messages, then check for an open transaction, and finally read the rows."""

    messages: tuple[Value, ...]
    is_open: bool
    rows: tuple[Value, ...]


Event: TypeAlias = BlockStarted | TransactionPrepared | RowsReported | RecoveryStarted | RecoveryEnded | BothSidesRead


@dataclass(frozen=True, slots=True)
class Verdict:
    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.what}"


@dataclass(slots=True)
class KnownTransaction:
    """A transaction as seen by its application."""

    values: tuple[Value, ...]
    rows: Answer = Answer.UNKNOWN
    is_in_doubt: bool = False  # prepared, and not yet decided or recovered


@dataclass(slots=True)
class Judge:
    transactions: dict[Name, KnownTransaction] = field(default_factory=dict)
    is_settled: bool = False  # A recovery has finished, and no block or recovery has started since.

    def look(self, seen: BothSidesRead) -> Iterator[Verdict]:
        rows, messages = Counter(seen.rows), Counter(seen.messages)
        for name, known in self.transactions.items():
            there = [value for value in known.values if rows[value]]
            if there and len(there) < len(known.values):
                yield Verdict(Kind.TORN, f"of {name} only {there} are there")
            if known.rows is Answer.YES and not there:
                yield Verdict(Kind.LOST, f"{name} was committed, and no row is there")
            if known.rows is Answer.NO and there:
                yield Verdict(Kind.RISEN, f"{name} was rolled back, and {there} are there")
            is_decided = not seen.is_open and not any(messages[value] for value in known.values)
            if known.is_in_doubt and is_decided:
                yield Verdict(Kind.UNILATERAL, f"{name} is not open any more, and nobody has decided so")
        for value in messages - rows:
            yield Verdict(Kind.DIVERGED if self.is_settled else Kind.UNILATERAL, f"message {value} without its row")
        if self.is_settled:
            for value in rows - messages:
                yield Verdict(Kind.DIVERGED, f"row {value} without its message")
            if seen.is_open:
                yield Verdict(Kind.UNDECIDED, "a transaction is open after recovery")

    def take(self, event: Event) -> Iterator[Verdict]:
        match event:
            case BothSidesRead():
                yield from self.look(event)
            case BlockStarted():
                self.transactions[event.transaction] = KnownTransaction(event.values)
                self.is_settled = False
            case TransactionPrepared():
                self.transactions[event.transaction].is_in_doubt = True
            case RowsReported():
                known = self.transactions[event.transaction]
                known.rows = event.rows
                known.is_in_doubt = known.is_in_doubt and event.rows is Answer.UNKNOWN
            case RecoveryStarted():
                self.is_settled = False
                for known in self.transactions.values():
                    known.is_in_doubt = False
            case RecoveryEnded():
                self.is_settled = True


def verdicts(history: Sequence[Event]) -> list[Verdict]:
    judge = Judge()
    return list(dict.fromkeys(each for event in history for each in judge.take(event)))
