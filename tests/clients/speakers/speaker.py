"""A small common interface to the client libraries, so that a test describes a behaviour once and runs with each
library.

A `Speaker` produces and reads single partitions. A `Member` is a consumer in a group. If the broker refuses a request,
their methods raise `RequestRefused` with Kafka's error code.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

PATIENCE_S = 60.0
BETWEEN_CALLS_S = 0.01
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Message:
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0


@dataclass(frozen=True, slots=True)
class ReceivedRecord:
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    partition: int


class RequestRefused(Exception):
    """Raised when the broker or the client refuses a request. `code` is Kafka's error code, or None if the client
    refused."""

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class TooSlow(AssertionError):
    """Raised when an expected event has not happened within PATIENCE_S."""


def wait_for(what: str, condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Calls `condition` until it returns true. Pauses between the calls to leave the CPU to other processes."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise TooSlow(what)
        time.sleep(BETWEEN_CALLS_S)


def gather(count: int, poll: Callable[[], list[ReceivedRecord]]) -> list[ReceivedRecord]:
    found: list[ReceivedRecord] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        found += poll()
        if time.monotonic() > deadline:
            raise TooSlow(f"{count} records; got {len(found)}")
    return found


class Member(ABC):
    """A consumer in a group. The test must poll it, because a member makes no progress without polls."""

    @abstractmethod
    def poll(self, timeout_s: float = 0.1) -> list[ReceivedRecord]: ...

    @abstractmethod
    def assignment(self) -> set[int]:
        """Returns the partitions that this member currently owns. A member subscribes to a single topic."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def committed(self, partition: int) -> int | None: ...

    @abstractmethod
    def close(self) -> None: ...


class Speaker(ABC):
    name: str

    @abstractmethod
    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        acks: int | str = "all",
        idempotent: bool = True,
        linger_ms: int = 5,
    ) -> list[int]:
        """Sends all messages and waits for their acknowledgements. Returns their offsets in the order of `messages`.

        With acks=0, each offset is -1.
        """

    @abstractmethod
    def read(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0
    ) -> list[ReceivedRecord]:
        """Reads `count` records of one partition from the offset `start`, without a group."""

    @abstractmethod
    def offset_at(self, bootstrap: str, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        """Returns the offset of the first record whose timestamp is at least `timestamp_ms`, or None if there is no
        such record."""

    @abstractmethod
    def bounds(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        """Returns the log start offset and the (exclusive) end offset of a partition."""

    @abstractmethod
    def join(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        *,
        instance: str | None = None,
        session_timeout_ms: int = 6_000,
    ) -> Member: ...


@contextmanager
def translated(kind: type[Exception]) -> Iterator[None]:
    """Translates errors of type `kind` into `RequestRefused`. Their `errno` is Kafka's error code."""
    try:
        yield
    except kind as error:
        raise RequestRefused(getattr(error, "errno", None), str(error)) from error


def received(record: Any) -> ReceivedRecord:
    """Converts a record of kafka-python or aiokafka, whose attributes have the same names."""
    headers = tuple((name, value) for name, value in record.headers)
    return ReceivedRecord(record.offset, record.key, record.value, headers, record.timestamp, record.partition)
