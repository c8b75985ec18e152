"""Replies that do not exist yet: parked by a handler, resolved by the code that learns the answer.

Code that needs such an answer to go on is a coroutine, which awaits it: `odradek.broker.runtime.waiting`.
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
    """The result of a handler where the protocol has no answer (Produce with acks=0)."""

    NO_RESPONSE = 0


NO_RESPONSE = NoResponse.NO_RESPONSE


class CloseConnection(Exception):
    """Raised by a handler, or given to `Deferred.fail`, where Kafka hangs up instead of answering.

    last_answer: written before the connection closes
    """

    def __init__(self, reason: str, last_answer: list[Chunk] | None = None) -> None:
        super().__init__(shortened(reason))  # it may quote the request, and is logged
        self.last_answer = last_answer or []


class Parked(Protocol):
    """A request whose answer is not there yet, as its connection sees it."""

    @property
    def size_bytes(self) -> int:
        """Size of the request's frame."""

    @property
    def overlapping_key(self) -> int | None:
        """The API key of the requests that need not wait for this answer."""

    @property
    def waits_for_others(self) -> bool:
        """Whether it waits for time to pass or for other clients, so that a broker that stops does not wait for it."""

    @property
    def is_done(self) -> bool: ...

    def when_done(self, action: Callable[[object], None]) -> None:
        """Runs `action` once, with anything, when the answer is there; at once if it is."""

    def abandon(self) -> None:
        """Forgets the request: the client is gone."""

    def chunks(self) -> list[Chunk]:
        """Encodes the answer, once it is done; empty where there is none. Raises CloseConnection."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplyAround:
    """The part of a `Parked` that is as in the one around which it stands."""

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
    """An answer that is there and waits for earlier ones of its connection."""

    answer: list[Chunk]
    size_bytes: int  # of the request's frame


class Deferred(Generic[M]):
    """One answer, given exactly once; loop thread only. No exception is an answer.

    `overlaps=True` says: all that this request changes has been changed, only the answer waits. Then the next request
    of the same connection and the same API need not wait for it. Answers leave in request order either way.
    """

    __slots__ = ("_on_disconnect", "_on_done", "_outcome", "is_done", "overlaps")

    def __init__(self, *, overlaps: bool = False) -> None:
        self.is_done = False
        self.overlaps = overlaps
        self._outcome: M | Exception  # from the time that it is done
        self._on_done: Callable[[Deferred[M]], None] | None = None
        self._on_disconnect: Callable[[], None] | None = None

    def resolve(self, message: M) -> None:
        self._finish(message)

    def fail(self, error: Exception) -> None:
        """Answers as if the handler had raised it: a `KafkaError` in the API's form, `CloseConnection` hangs up."""
        self._finish(error)

    def settle(self, outcome: M | KafkaError) -> None:
        """Answers with a refusal as `fail` does, with anything else as `resolve` does, for callbacks that get
        either."""
        self._finish(outcome)

    def follow(self, answer: NowOrLater[M]) -> None:
        """Gives this answer: now, or when it is there, which the client may not wait for."""
        if not isinstance(answer, Deferred):
            self.resolve(answer)
            return
        self.on_disconnect(answer.abandon)
        answer.when_done(lambda done: self._finish(done._outcome))

    def on_disconnect(self, action: Callable[[], None]) -> None:
        """Runs `action` if the client goes away before the answer is there: the place to forget a parked request."""
        self._on_disconnect = action

    # The side of the reader, of which there is one: the connection or a coroutine.

    def __await__(self) -> Generator[Deferred[Any], None, M]:
        """Waits in a coroutine that `odradek.broker.runtime.waiting` runs. Raises what `fail` was given."""
        if not self.is_done:
            yield self
        return self.outcome()

    def when_done(self, action: Callable[[Deferred[M]], None]) -> None:
        """Runs `action` when the answer is there; at once if it is."""
        if self.is_done:
            action(self)
        else:
            self._on_done = action

    def outcome(self) -> M:
        """Returns the answer, once it is there; raises what `fail` was given."""
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    def now_or_later(self) -> NowOrLater[M]:
        """Returns the answer itself, if it is there already; raises what `fail` was given."""
        return self.outcome() if self.is_done else self

    def abandon(self) -> None:
        """Forgets the reader, since the client is gone. The answer may still be given."""
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
"""An answer that may be there already."""
