"""Threads, passed in from outside: the few jobs that would block the loop run on `Workers` and report back to it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class JobResult(Generic[T]):
    """How a job ended: `result()` returns its value, or raises what it raised."""

    __slots__ = ("_error", "_value")

    def __init__(self, value: T | None, error: Exception | None) -> None:
        self._value = value
        self._error = error

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # no error means that the job returned a T


class Workers(Protocol):
    """Runs jobs beside the loop: fdatasync, cold reads, large batches, deletions."""

    def run(self, job: Callable[[], T], then: Callable[[JobResult[T]], None]) -> None:
        """Run `job` in some thread; afterwards `then`, on the loop thread. Jobs may overtake one another."""


def outcome_of(job: Callable[[], T]) -> JobResult[T]:
    try:
        return JobResult(job(), None)
    except Exception as error:
        return JobResult(None, error)


class ThreadWorkers:
    """A bounded pool of threads. `close` waits for the jobs that have begun; later ones run in the thread that asks."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="worker")
        self._is_closed = False

    def run(self, job: Callable[[], T], then: Callable[[JobResult[T]], None]) -> None:
        if self._is_closed:
            then(outcome_of(job))
        else:
            self._pool.submit(self._work, job, then)

    def close(self) -> None:
        """What the jobs lead to still waits for the loop's next turn."""
        self._is_closed = True
        self._pool.shutdown(wait=True)

    def _work(self, job: Callable[[], T], then: Callable[[JobResult[T]], None]) -> None:
        self._loop.call_soon_threadsafe(then, outcome_of(job))


class WorkersHere:
    """Runs each job at once, in the calling thread: for start-up and shutdown, when nobody is being served."""

    def run(self, job: Callable[[], T], then: Callable[[JobResult[T]], None]) -> None:
        then(outcome_of(job))
