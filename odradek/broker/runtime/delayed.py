"""Replies that are given later: a handler returns one unresolved, and the code that finds the answer resolves it.

Code that needs such an answer before it can continue is a coroutine and awaits it: see
`odradek.broker.runtime.waiting`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from mypy_extensions import mypyc_attr

from odradek.protocol.errors import KafkaError
from odradek.protocol.file_slice import Chunk
from odradek.protocol.quoting import shortened

M = TypeVar("M")


class NoResponse(Enum):
    """The result of a handler if the protocol has no answer (Produce with acks=0)."""

    NO_RESPONSE = 0


NO_RESPONSE = NoResponse.NO_RESPONSE


class CloseConnection(Exception):
    """Raised by a handler, or passed to `Deferred.fail`, where Kafka closes the connection instead of answering.

    last_answer: written before the connection closes
    """

    def __init__(self, reason: str, last_answer: list[Chunk] | None = None) -> None:
        super().__init__(shortened(reason))  # shortened because it may quote the request and is logged
        self.last_answer = last_answer or []


class Parked(Protocol):
    """A request without an answer yet, as its connection sees it."""

    @property
    def size_bytes(self) -> int:
        """Size of the request's frame."""

    @property
    def overlapping_key(self) -> int | None:
        """The API key of the requests that need not wait for this answer, or None."""

    @property
    def waits_for_others(self) -> bool:
        """Whether the request waits for other clients or for time to pass, so that a stopping broker need not wait for
        it."""

    @property
    def is_done(self) -> bool: ...

    def when_done(self, action: Callable[[object], None]) -> None:
        """Calls `action` once, with an arbitrary argument, when the answer is ready; at once if it is ready now."""

    def abandon(self) -> None:
        """Drops the request because the client is gone."""

    def chunks(self) -> list[Chunk]:
        """Encodes the finished answer; empty if the protocol has none. Raises CloseConnection."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplyAround:
    """Base class of a `Parked` that wraps another one: forwards the properties that stay the same."""

    def __init__(self, reply: Parked) -> None:
        self._reply = reply

    @property
    def size_bytes(self) -> int:
        return self._reply.size_bytes

    @property
    def overlapping_key(self) -> int | None:
        return self._reply.overlapping_key

    @property
    def waits_for_others(self) -> bool:
        return self._reply.waits_for_others

    def abandon(self) -> None:
        self._reply.abandon()


@dataclass(slots=True)
class Answered:
    """A finished answer that waits for earlier answers on its connection."""

    answer: list[Chunk]
    size_bytes: int  # of the request's frame


class Deferred(Generic[M]):
    """An answer that is given exactly once, possibly later. For the loop thread only. An exception can be the answer.

    `overlaps=True` means that the request has made all its changes, and only its answer is delayed. The connection's
    next request of the same API then need not wait for it. Answers are sent in request order in any case.
    """

    __slots__ = ("_on_disconnect", "_on_done", "_outcome", "is_done", "overlaps")

    def __init__(self, *, overlaps: bool = False) -> None:
        self.is_done = False
        self.overlaps = overlaps
        self._outcome: M | Exception  # set once `is_done`
        self._on_done: Callable[[Deferred[M]], None] | None = None
        self._on_disconnect: Callable[[], None] | None = None

    def resolve(self, message: M) -> None:
        self._finish(message)

    def fail(self, error: Exception) -> None:
        """Answers as if the handler had raised the error: a `KafkaError` becomes an answer of the API,
        `CloseConnection` closes the connection."""
        self._finish(error)

    def settle(self, outcome: M | KafkaError) -> None:
        """Answers as `fail` does if the outcome is a `KafkaError`, otherwise as `resolve` does. For callbacks that get
        either."""
        self._finish(outcome)

    def follow(self, answer: NowOrLater[M]) -> None:
        """Gives the same answer as `answer`, now or when that is ready. If the client leaves before, `answer` is
        abandoned."""
        if not isinstance(answer, Deferred):
            self.resolve(answer)
            return
        self.on_disconnect(answer.abandon)
        answer.when_done(lambda done: self._finish(done._outcome))

    def on_disconnect(self, action: Callable[[], None]) -> None:
        """Calls `action` if the client disconnects before the answer is ready. Use it to drop a waiting request."""
        self._on_disconnect = action

    # Methods for the reader of the answer. There is one reader: the connection or a coroutine.

    def __await__(self) -> Generator[Deferred[Any], None, M]:
        """Waits for the answer in a coroutine that `odradek.broker.runtime.waiting` runs. Raises the error passed to
        `fail`."""
        if not self.is_done:
            yield self
        return self.outcome()

    def when_done(self, action: Callable[[Deferred[M]], None]) -> None:
        """Calls `action` when the answer is ready; at once if it is ready now."""
        if self.is_done:
            action(self)
        else:
            self._on_done = action

    def outcome(self) -> M:
        """Returns the finished answer, or raises the error passed to `fail`."""
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    def now_or_later(self) -> NowOrLater[M]:
        """Returns the answer if it is ready, otherwise this object. Raises the error passed to `fail`."""
        return self.outcome() if self.is_done else self

    def abandon(self) -> None:
        """Drops the reader because the client is gone. The answer may still be given."""
        self._on_done = None
        action, self._on_disconnect = self._on_disconnect, None
        if action is not None and not self.is_done:
            action()

    def _finish(self, outcome: M | Exception) -> None:
        if self.is_done:
            raise RuntimeError("a request is answered once")
        self.is_done = True
        self._outcome = outcome
        self._on_disconnect = None
        action, self._on_done = self._on_done, None
        if action is not None:
            action(self)


NowOrLater: TypeAlias = M | Deferred[M]
"""An answer, or the `Deferred` that will give it."""
