"""Replies that do not exist yet: parked by a handler, resolved by the code that learns the answer.

Combinators make one of another: `Deferred.then`, `Deferred.otherwise`, and for answers of which some may be there
already, `once` and `all_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, overload

from mypy_extensions import mypyc_attr

from odradek.protocol.errors import KafkaError
from odradek.protocol.file_slice import Chunk
from odradek.protocol.quoting import shortened

F = TypeVar("F")
M = TypeVar("M")
N = TypeVar("N")
R = TypeVar("R")


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

    # The side of the reader, of which there is one: the connection, a combinator, or a coroutine.

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

    # Combinators. What they were given runs even if the client goes away.

    @overload
    def then(self, make: Callable[[M], Deferred[N]]) -> Deferred[N]: ...
    @overload
    def then(self, make: Callable[[M], NowOrLater[N]]) -> Deferred[N]: ...

    def then(self, make: Callable[[M], NowOrLater[N]]) -> Deferred[N]:
        """Makes another answer of this one. Failures, and what `make` raises, are passed on."""
        made: Deferred[N] = Deferred(overlaps=self.overlaps)

        def done(answer: Deferred[M]) -> None:
            try:
                made._take(make(answer.outcome()))
            except Exception as error:
                made.fail(error)

        self.when_done(done)
        return made

    def otherwise(self, make: Callable[[KafkaError], NowOrLater[M]]) -> Deferred[M]:
        """Makes an answer of a refusal; the answer stays as it is where there is one."""
        made: Deferred[M] = Deferred(overlaps=self.overlaps)

        def done(answer: Deferred[M]) -> None:
            outcome = answer._outcome
            if not isinstance(outcome, KafkaError):
                made._finish(outcome)
                return
            try:
                made._take(make(outcome))
            except Exception as error:
                made.fail(error)

        self.when_done(done)
        return made

    def _take(self, answer: NowOrLater[M]) -> None:
        if isinstance(answer, Deferred):
            answer.when_done(lambda done: self._finish(done._outcome))
        else:
            self._finish(answer)

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


def once(answer: NowOrLater[R], make: Callable[[R], NowOrLater[M]]) -> NowOrLater[M]:
    """Makes another answer of this one: now if it is there, else as `Deferred.then` does."""
    return answer.then(make) if isinstance(answer, Deferred) else make(answer)


def all_of(
    answers: Sequence[NowOrLater[R]], otherwise: Callable[[int, KafkaError], F], make: Callable[[list[R | F]], M]
) -> NowOrLater[M]:
    """Makes one answer of all, in their order: now, if all are there, else when the last one has come.

    otherwise  gives what stands for the answer at this index, which was refused; the others still count
    """
    together = _Together[R, F, M](answers, otherwise, make)
    pending = [answer for answer in answers if isinstance(answer, Deferred) and not answer.is_done]
    if not pending:
        return together.made()
    together.left = len(pending)
    for answer in pending:
        answer.when_done(together.one_more)
    return together.answer


class _Together(Generic[R, F, M]):
    """Answers of which one is made. A class, since functions that refer to one another are left to the collector."""

    __slots__ = ("_answers", "_make", "_otherwise", "answer", "left")

    def __init__(
        self,
        answers: Sequence[NowOrLater[R]],
        otherwise: Callable[[int, KafkaError], F],
        make: Callable[[list[R | F]], M],
    ) -> None:
        self._answers = answers
        self._otherwise = otherwise
        self._make = make
        self.answer: Deferred[M] = Deferred()
        self.left = 0  # answers that are missing

    def one_more(self, _: Deferred[R]) -> None:
        self.left -= 1
        if not self.left:
            try:
                self.answer.resolve(self.made())
            except Exception as error:  # a bug of the code that answered; it is logged where the reply is read
                self.answer.fail(error)

    def made(self) -> M:
        return self._make([self._taken(index, answer) for index, answer in enumerate(self._answers)])

    def _taken(self, index: int, answer: NowOrLater[R]) -> R | F:
        if not isinstance(answer, Deferred):
            return answer
        try:
            return answer.outcome()
        except KafkaError as error:
            return self._otherwise(index, error)
