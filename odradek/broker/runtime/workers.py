"""Threads, passed in from outside: the few jobs that would block the loop run on `Workers` and report back to it."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread, current_thread
from time import perf_counter
from typing import Final, Generic, Protocol, TypeVar

T = TypeVar("T")

MOST_OPENED_BYTES: Final = 256 * 1024 * 1024  # compressed, that wait or are being opened
IDLE_S: Final = 2.0  # so long a thread waits for another job: a process may hold many brokers that need none
SETTLING_S: Final = 0.005  # of a turn of the loop, for what ended jobs lead to; then others have theirs


class JobResult(Generic[T]):
    """The end of a job: `result()` returns its value, or raises what it raised."""

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


def in_thread(workers: Workers, job: Callable[[], T]) -> asyncio.Future[T]:
    """Runs `job` in some thread, for a coroutine that waits for it, or has gone by then."""
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(outcome: JobResult[T]) -> None:
        if answer.cancelled():  # the one who asked has gone
            return
        try:
            answer.set_result(outcome.result())
        except Exception as error:
            answer.set_exception(error)

    workers.run(job, done)
    return answer


def join(threads: Iterable[Thread]) -> None:
    for thread in threads:
        thread.join()


class ThreadWorkers:
    """A bounded number of threads, started as they are needed; after IDLE_S without a job they end. What they have done
    is settled by the loop together, as waking it costs more than most of what follows, and in several turns if that
    takes longer than SETTLING_S.

    `close` waits for the jobs that were given before; later ones run in the thread that asks.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        threads: int,
        name: str = "worker",
        watched: Callable[[Callable[[], None]], Callable[[], None]] = lambda settle: settle,
        now_s: Callable[[], float] = perf_counter,
        idle_s: float = IDLE_S,
        start: Callable[[Thread], None] = Thread.start,
    ) -> None:
        """watched: makes of what the loop does about ended jobs something that is timed"""
        self._now_s = now_s
        self._idle_s = idle_s
        self._start = start
        self._loop = loop
        self._watched = watched
        self._name = name
        self._most = threads
        self._threads: list[Thread] = []
        self._changing = Lock()  # held where a thread may end, and where a job may need it
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()  # None: the thread may end
        self._ended: deque[Callable[[], None]] = deque()
        self._unsettled = 0  # jobs whose `then` has not been called
        self._is_woken = False
        self._is_closed = False

    def run(self, job: Callable[[], T], then: Callable[[JobResult[T]], None]) -> None:
        if self._is_closed:
            then(outcome_of(job))
            return

        self._unsettled += 1
        with self._changing:
            self._jobs.put(partial(self._do, job, then))
            if len(self._threads) >= min(self._unsettled, self._most):
                return
            # A daemon: a process that ends without `close`, by an error, must not wait for it.
            thread = Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
        try:
            self._start(thread)
        except RuntimeError:  # the system has no room for another one: those that are there do it, else the loop waits
            with self._changing:
                self._threads.remove(thread)
                is_alone = not self._threads
            if is_alone:
                self._jobs.get()  # this one: no thread ends as long as a job waits
                self._do(job, then)
                self._wake()

    def _do(self, job: Callable[[], T], then: Callable[[JobResult[T]], None]) -> None:
        self._ended.append(partial(then, outcome_of(job)))

    @property
    def thread_count(self) -> int:
        return len(self._threads)

    @property
    def is_idle(self) -> bool:
        """Whether all that was given is done and settled."""
        return self._unsettled == 0

    def close(self) -> None:
        """Waits for the threads; what their jobs lead to still waits for the loop's next turn."""
        join(self.end())

    def end(self) -> list[Thread]:
        """Does what `close` does, but for the waiting: returns the threads that still do what was given before."""
        self._is_closed = True
        with self._changing:
            threads = list(self._threads)
        for _ in threads:
            self._jobs.put(None)
        return threads

    def _next(self) -> Callable[[], None] | None:
        """Waits for a job; None if the thread is to end."""
        while True:
            try:
                return self._jobs.get(timeout=self._idle_s)
            except Empty:
                with self._changing:
                    if self._jobs.empty():
                        self._threads.remove(current_thread())
                        return None

    def _work(self) -> None:
        while (work := self._next()) is not None:
            work()
            self._wake()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._watched(self._settle))

    def _settle(self) -> None:
        self._is_woken = False  # first: what a thread adds from here on is seen below, or wakes the loop again
        ended, began_s = self._ended, self._now_s()
        while ended:
            self._unsettled -= 1
            try:
                ended.popleft()()
            except Exception as error:  # a bug; the others must not be forgotten over it
                self._loop.call_exception_handler({"message": "a job of a thread ended", "exception": error})
            if ended and self._now_s() - began_s >= SETTLING_S:
                self._is_woken = True
                self._loop.call_soon(self._watched(self._settle))
                return


class Openers:
    """Workers that decompress. What waits for them stays in memory, also when its client has gone, as it may be the
    records of a Produce with acks=0: so all of it together has a bound.
    """

    __slots__ = ("_held_bytes", "_most_bytes", "_workers")

    def __init__(self, workers: Workers, most_bytes: int = MOST_OPENED_BYTES) -> None:
        self._workers = workers
        self._most_bytes = most_bytes
        self._held_bytes = 0

    def run(self, size_bytes: int, job: Callable[[], T], then: Callable[[JobResult[T]], None]) -> bool:
        """Runs a job that holds so much, as `Workers.run` does. Returns False, and runs nothing, if it is too much."""
        if self._held_bytes and self._held_bytes + size_bytes > self._most_bytes:
            return False
        self._held_bytes += size_bytes
        self._workers.run(job, partial(self._ended, size_bytes, then))
        return True

    def _ended(self, size_bytes: int, then: Callable[[JobResult[T]], None], outcome: JobResult[T]) -> None:
        self._held_bytes -= size_bytes
        then(outcome)
