"""Requests that wait, written from top to bottom as coroutines that are stepped by hand.

`started` runs a coroutine up to its first wait. If it does not wait, its result is returned at once, and no task of the
event loop was created. If it waits, the awaited object continues it: a `Deferred` in the turn in which it resolves, a
future of asyncio in a turn of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from odradek.broker.runtime.delayed import Deferred, NowOrLater
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.runtime.clock import Timers
    from odradek.broker.runtime.workers import JobResult, Workers

M = TypeVar("M")

log = logging.getLogger("odradek.waiting")

Awaited: TypeAlias = "Deferred[Any] | asyncio.Future[Any] | None"
"""What a coroutine yields when it waits. None means that it only gives way to others for a turn
(`asyncio.sleep(0)`)."""


def started(coroutine: Coroutine[Awaited, None, M], *, ends_with_client: bool = False) -> NowOrLater[M]:
    """Runs a coroutine up to its first wait, and returns its result if it never waits. An error before the first wait
    is raised; a later error becomes the error of the answer.

    ends_with_client   if the client disconnects, the coroutine is closed where it waits, so that its `finally` blocks
                       run; otherwise it continues to its end
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration as end:
        result: M = end.value
        return result
    return _SteppedCoroutine(coroutine, awaited, ends_with_client).reply


def deferred(coroutine: Coroutine[Awaited, None, M]) -> Deferred[M]:
    """Like `started`, for callers that need a Deferred in any case. If the coroutine never waits, the Deferred is
    already resolved, or failed, when this returns."""
    try:
        answer = started(coroutine)
    except Exception as error:
        failed: Deferred[M] = Deferred()
        failed.fail(error)
        return failed
    if isinstance(answer, Deferred):
        return answer
    done: Deferred[M] = Deferred()
    done.resolve(answer)
    return done


def unattended(coroutine: Coroutine[Awaited, None, object]) -> None:
    """Runs a coroutine whose result nobody waits for. Raises an error that occurs before the first wait; a later one is
    a bug, and is logged."""
    answer = started(coroutine)
    if isinstance(answer, Deferred):
        answer.when_done(_log_failure)


def _log_failure(ended: Deferred[object]) -> None:
    try:
        ended.outcome()
    except Exception:
        log.exception("Work that continued after a wait, and for which no request waits, has failed. This is a bug.")


class _SteppedCoroutine(Generic[M]):
    """A coroutine that waits, and the answer for its result."""

    __slots__ = ("_coroutine", "reply")

    def __init__(self, coroutine: Coroutine[Awaited, None, M], awaited: Awaited, ends_with_client: bool) -> None:
        self.reply: Deferred[M] = Deferred()
        self._coroutine: Coroutine[Awaited, None, M] | None = coroutine  # None once it has ended
        if ends_with_client:
            self.reply.on_disconnect(self._close)
        self._wait_for(awaited)

    def _wait_for(self, awaited: Awaited) -> None:
        if isinstance(awaited, Deferred):
            awaited.when_done(self._go_on)
        elif awaited is None:
            asyncio.get_running_loop().call_soon(self._go_on, None)
        else:
            awaited._asyncio_future_blocking = False  # tells the future that its `await` was understood, as a task does
            awaited.add_done_callback(self._go_on)

    def _go_on(self, _: object) -> None:
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


async def arrived(answer: NowOrLater[M]) -> M:
    """Waits for an answer, unless it is ready. Raises the answer's error."""
    return await answer if isinstance(answer, Deferred) else answer


async def each_of(answers: Sequence[NowOrLater[M]]) -> list[M | KafkaError]:
    """Waits for all answers, and returns them in order, with the KafkaError in place of an answer that failed."""
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
    """Runs the job in a thread and waits for it. Returns its result, or raises its error."""
    ended: Deferred[JobResult[M]] = Deferred()
    workers.run(job, ended.resolve)
    return (await ended).result()


def after(timers: Timers, delay_ms: float) -> Deferred[None]:
    """Returns an answer that resolves by itself after the delay: `await after(…)` sleeps."""
    passed: Deferred[None] = Deferred()
    timers.after(delay_ms, lambda: passed.resolve(None))
    return passed
