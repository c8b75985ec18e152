"""Deferred answers, and the coroutines that wait for them.

A handler returns an unresolved `Deferred`, and the code that determines the answer resolves it. Code that needs an
answer before it can continue is written as a coroutine, so that it reads from top to bottom. Such a coroutine does not
need an event loop task: `start_coroutine` runs it up to its first wait. If the coroutine never waits, its result is
returned immediately. If it waits, the awaited object resumes it: a `Deferred` in the turn that resolves it, an asyncio
future in a later turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.runtime.clock import Timers
    from odradek.broker.runtime.workers import JobResult, Workers

M = TypeVar("M")

log = logging.getLogger("odradek.waiting")


class Deferred(Generic[M]):
    """An answer that is given exactly once, possibly later. Only the loop thread may use this object. The answer can be
    an exception.

    `overlaps=True` means that the request has made all its changes, and only its answer is delayed. The connection's
    next request of the same API then does not have to wait for the answer. Answers are always sent in the order of the
    requests.
    """

    __slots__ = ("_on_disconnect", "_on_done", "_outcome", "is_done", "overlaps")

    def __init__(self, *, overlaps: bool = False) -> None:
        self.is_done = False
        self.overlaps = overlaps
        self._outcome: M | Exception  # set if `is_done`
        self._on_done: Callable[[Deferred[M]], None] | None = None
        self._on_disconnect: Callable[[], None] | None = None

    def resolve(self, message: M) -> None:
        self._finish(message)

    def fail(self, error: Exception) -> None:
        """Answers as if the handler had raised the error: a `KafkaError` becomes a response of the API,
        `CloseConnection` closes the connection."""
        self._finish(error)

    def complete(self, outcome: M | KafkaError) -> None:
        """Answers with `fail` if the outcome is a `KafkaError`, and with `resolve` otherwise. Use it in callbacks that
        may receive either."""
        self._finish(outcome)

    def follow(self, answer: NowOrLater[M]) -> None:
        """Resolves or fails like `answer`, either now or when `answer` is ready. If the client disconnects first,
        `answer` is abandoned."""
        if not isinstance(answer, Deferred):
            self.resolve(answer)
            return
        self.on_disconnect(answer.abandon)
        answer.when_done(lambda done: self._finish(done._outcome))

    def on_disconnect(self, action: Callable[[], None]) -> None:
        """Calls `action` if the client disconnects before the answer is ready. Use it to drop a waiting request."""
        self._on_disconnect = action

    # Methods for the reader of the answer. There is only one reader, which is the connection or a coroutine.

    def __await__(self) -> Generator[Deferred[Any], None, M]:
        """Waits for the answer in a coroutine started by `start_coroutine`. Raises the error passed to `fail`."""
        if not self.is_done:
            yield self
        return self.outcome()

    def when_done(self, action: Callable[[Deferred[M]], None]) -> None:
        """Calls `action` as soon as the answer is ready. The call may happen immediately."""
        if self.is_done:
            action(self)
        else:
            self._on_done = action

    def outcome(self) -> M:
        """Returns the answer, which must be ready, or raises the error passed to `fail`."""
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    def now_or_later(self) -> NowOrLater[M]:
        """Returns the answer if it is ready, otherwise this object. Raises the error passed to `fail`."""
        return self.outcome() if self.is_done else self

    def abandon(self) -> None:
        """Drops the reader, because the client has disconnected. A later answer is ignored."""
        self._on_done = None
        action, self._on_disconnect = self._on_disconnect, None
        if action is not None and not self.is_done:
            action()

    def _finish(self, outcome: M | Exception) -> None:
        if self.is_done:
            raise RuntimeError("the request has already been answered")
        self.is_done = True
        self._outcome = outcome
        self._on_disconnect = None
        action, self._on_done = self._on_done, None
        if action is not None:
            action(self)


NowOrLater: TypeAlias = M | Deferred[M]
"""An answer, or a `Deferred` that will provide it."""

Awaited: TypeAlias = Deferred[Any] | asyncio.Future[Any] | None
"""The value that a coroutine yields when it waits. None means that the coroutine only lets other work run for one turn
(`asyncio.sleep(0)`)."""


def start_coroutine(coroutine: Coroutine[Awaited, None, M], *, ends_with_client: bool = False) -> NowOrLater[M]:
    """Runs a coroutine up to its first wait. Returns the result if the coroutine never waits, and a Deferred otherwise.
    If the coroutine raises before its first wait, so does this function; a later exception fails the Deferred.

    ends_with_client  if the client disconnects, the coroutine is closed where it waits, so that its `finally` blocks
                      run; otherwise it continues to its end
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration as end:
        result: M = end.value
        return result
    return _SteppedCoroutine(coroutine, awaited, ends_with_client).reply


def start_deferred(coroutine: Coroutine[Awaited, None, M]) -> Deferred[M]:
    """Like `start_coroutine`, for callers that always need a Deferred. If the coroutine never waits, the returned
    Deferred has already been resolved or has failed."""
    try:
        answer = start_coroutine(coroutine)
    except Exception as error:
        failed: Deferred[M] = Deferred()
        failed.fail(error)
        return failed
    if isinstance(answer, Deferred):
        return answer
    done: Deferred[M] = Deferred()
    done.resolve(answer)
    return done


def start_unattended(coroutine: Coroutine[Awaited, None, object]) -> None:
    """Runs a coroutine whose result is not needed. Raises an error that occurs before the first wait. A later error is
    a bug, and is logged."""
    answer = start_coroutine(coroutine)
    if isinstance(answer, Deferred):
        answer.when_done(_log_failure)


def _log_failure(ended: Deferred[object]) -> None:
    try:
        ended.outcome()
    except Exception:
        log.exception("Work that continued after a wait, and for which no request waits, has failed. This is a bug.")


class _SteppedCoroutine(Generic[M]):
    """A coroutine that has had to wait, and the Deferred for its result."""

    __slots__ = ("_coroutine", "reply")

    def __init__(self, coroutine: Coroutine[Awaited, None, M], awaited: Awaited, ends_with_client: bool) -> None:
        self.reply: Deferred[M] = Deferred()
        self._coroutine: Coroutine[Awaited, None, M] | None = coroutine  # None once the coroutine has finished
        if ends_with_client:
            self.reply.on_disconnect(self._close)
        self._wait_for(awaited)

    def _wait_for(self, awaited: Awaited) -> None:
        if isinstance(awaited, Deferred):
            awaited.when_done(self._resume)
        elif awaited is None:
            asyncio.get_running_loop().call_soon(self._resume, None)
        else:
            awaited._asyncio_future_blocking = False  # marks the future as awaited, as a task does
            awaited.add_done_callback(self._resume)

    def _resume(self, _: object) -> None:
        coroutine = self._coroutine
        if coroutine is None:
            return
        try:
            awaited = coroutine.send(None)
        except StopIteration as end:
            self._coroutine = None
            self.reply.resolve(end.value)
        except Exception as error:
            self._coroutine = None
            self.reply.fail(error)
        else:
            self._wait_for(awaited)

    def _close(self) -> None:
        coroutine, self._coroutine = self._coroutine, None
        if coroutine is not None:
            coroutine.close()


async def wait_for_answer(answer: NowOrLater[M]) -> M:
    """Returns an answer, after waiting for it if necessary. Raises the answer's error."""
    return await answer if isinstance(answer, Deferred) else answer


async def wait_for_all(answers: Sequence[NowOrLater[M]]) -> list[M | KafkaError]:
    """Waits for all answers and returns them in order. In place of an answer that failed, the list contains the
    KafkaError."""
    found: list[M | KafkaError] = []
    for answer in answers:
        if isinstance(answer, Deferred):
            try:
                found.append(await answer)
            except KafkaError as refusal:
                found.append(refusal)
        else:
            found.append(answer)
    return found


async def in_thread(workers: Workers, job: Callable[[], M]) -> M:
    """Runs the job in a thread and waits for it. Returns the job's result or raises its error."""
    ended: Deferred[JobResult[M]] = Deferred()
    workers.run(job, ended.resolve)
    return (await ended).result()


def sleep(timers: Timers, delay_ms: float) -> Deferred[None]:
    """Returns a Deferred that resolves after the delay, for use as `await sleep(…)`."""
    passed: Deferred[None] = Deferred()
    timers.after(delay_ms, lambda: passed.resolve(None))
    return passed
