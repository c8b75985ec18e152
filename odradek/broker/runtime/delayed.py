"""A reply that does not exist yet: parked by a handler, resolved by the code that learns the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from odradek.protocol.file_slice import Chunk

M = TypeVar("M")
N = TypeVar("N")


class NoResponse(Enum):
    """What a handler returns when the protocol has no answer (Produce with acks=0)."""

    NO_RESPONSE = 0


NO_RESPONSE = NoResponse.NO_RESPONSE


class CloseConnection(Exception):
    """Raised by a handler, or given to `Deferred.fail`, where Kafka hangs up instead of answering.

    last_answer: written before the connection closes
    """

    def __init__(self, reason: str, last_answer: list[Chunk] | None = None) -> None:
        super().__init__(reason)
        self.last_answer = last_answer or []


class Parked(Protocol):
    """A request whose answer is not there yet, as its connection sees it."""

    @property
    def size_bytes(self) -> int:
        """Of the frame."""

    @property
    def overlapping_key(self) -> int | None:
        """The API key of the requests that need not wait for this answer."""

    @property
    def waits_for_others(self) -> bool:
        """Whether it waits for time to pass or for other clients, so that a broker that stops does not wait for it."""

    @property
    def is_done(self) -> bool: ...

    def when_done(self, action: Callable[[object], None]) -> None:
        """`action` runs once, with anything, when the answer is there; at once if it is."""

    def abandon(self) -> None:
        """The client is gone."""

    def chunks(self) -> list[Chunk]:
        """The answer in bytes, once it is done; empty where there is none. Raises CloseConnection."""


@dataclass(slots=True)
class Answered:
    """An answer that is there and waits for earlier ones of its connection."""

    answer: list[Chunk]
    size_bytes: int  # of the request's frame


class Deferred(Generic[M]):
    """One answer, given exactly once; loop thread only.

    `overlaps=True` says: all that this request changes has been changed, only the answer waits. Then the next request
    of the same connection and the same API need not wait for it. Answers leave in request order either way.
    """

    __slots__ = ("_on_disconnect", "_on_done", "_outcome", "is_done", "overlaps")

    def __init__(self, *, overlaps: bool = False) -> None:
        self.is_done = False
        self.overlaps = overlaps
        self._outcome: M | NoResponse | Exception = NO_RESPONSE
        self._on_done: Callable[[Deferred[M]], None] | None = None
        self._on_disconnect: Callable[[], None] | None = None

    def resolve(self, message: M | NoResponse) -> None:
        self._finish(message)

    def fail(self, error: Exception) -> None:
        """As if the handler had raised it: a `KafkaError` is answered in the API's form, `CloseConnection` hangs up."""
        self._finish(error)

    def follow(self, answer: M | NoResponse | Deferred[M]) -> None:
        """Give this answer: now, or when it is there, which the client may not wait for."""
        if not isinstance(answer, Deferred):
            self.resolve(answer)
            return
        self.on_disconnect(answer.abandon)
        answer.when_done(lambda done: self._finish(done._outcome))

    def on_disconnect(self, action: Callable[[], None]) -> None:
        """`action` runs if the client goes away before the answer is there: the place to forget a parked request."""
        self._on_disconnect = action

    # The connection's side.

    def when_done(self, action: Callable[[Deferred[M]], None]) -> None:
        """At once if the answer is there already. One action only: a reply has one reader."""
        if self.is_done:
            action(self)
        else:
            self._on_done = action

    def then(self, translate: Callable[[M], N]) -> Deferred[N]:
        """The same answer in another form. Its one reader is this; errors are passed on."""
        translated: Deferred[N] = Deferred(overlaps=self.overlaps)

        def done(answer: Deferred[M]) -> None:
            try:
                outcome = answer.outcome()
                translated.resolve(outcome if isinstance(outcome, NoResponse) else translate(outcome))
            except Exception as error:
                translated.fail(error)

        self.when_done(done)
        return translated

    def outcome(self) -> M | NoResponse:
        """The answer; raises what `fail` was given."""
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    def abandon(self) -> None:
        """The client is gone: nobody will read the answer, though it may still be given."""
        self._on_done = None
        action, self._on_disconnect = self._on_disconnect, None
        if action is not None and not self.is_done:
            action()

    def _finish(self, outcome: M | NoResponse | Exception) -> None:
        if self.is_done:
            raise RuntimeError("a request is answered once")
        self.is_done = True
        self._outcome = outcome
        self._on_disconnect = None
        action, self._on_done = self._on_done, None
        if action is not None:
            action(self)
