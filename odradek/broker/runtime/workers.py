"""Worker threads. The few jobs that would block the loop run on `Workers`, which passes their results back to the
loop."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread, current_thread
from time import perf_counter
from typing import Final, Generic, Protocol, TypeVar

T = TypeVar("T")

# Maximum total size of the compressed batches waiting for decompression or being decompressed.
MAX_OPENED_BYTES: Final = 256 * 1024 * 1024
# An idle thread exits after this time, because a process can contain many brokers that do not need threads.
IDLE_S: Final = 2.0
# Maximum time that one turn of the loop spends on the results of jobs before other work is done.
SETTLING_S: Final = 0.005


class JobResult(Generic[T]):
    """The outcome of a job. `result()` returns the job's value or raises its error."""

    __slots__ = ("_error", "_value")

    def __init__(self, value: T | None, error: Exception | None) -> None:
        self._value = value
        self._error = error

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # no error means that the job returned a T


class Workers(Protocol):
    """Runs jobs in threads, in parallel with the loop: fdatasync, cold reads, large batches, deletions."""

    def run(self, job: Callable[[], T], then: Callable[[JobResult[T]], None]) -> None:
        """Runs `job` in a thread, then calls `then` with the result on the loop thread. Jobs may finish out of
        order."""


def outcome_of(job: Callable[[], T]) -> JobResult[T]:
    try:
        return JobResult(job(), None)
    except Exception as error:
        return JobResult(None, error)


def in_thread(workers: Workers, job: Callable[[], T]) -> asyncio.Future[T]:
    """Runs `job` in a thread. Returns a future for its result, which the caller may cancel."""
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(outcome: JobResult[T]) -> None:
        if answer.cancelled():  # the caller is no longer waiting
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
    """Runs jobs on a limited number of threads, which are started as needed and exit after IDLE_S without a job. The
    loop handles results in batches, because waking up the loop costs more than most of the follow-up work. A batch that
    takes longer than SETTLING_S is split over several turns.

    `close` waits for jobs submitted before the call. Later jobs run in the caller's thread. Their results are handled
    like those of all jobs, in the next turns of the loop.
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
        """Creates workers without starting a thread. `watched` wraps the function that handles results on the loop, so
        that its duration is measured."""
        self._now_s = now_s
        self._idle_s = idle_s
        self._start = start
        self._loop = loop
        self._watched = watched
        self._name = name
        self._most = threads
        self._threads: list[Thread] = []
        self._changing = Lock()  # held while a thread decides whether to exit, and while a job is added
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()  # None makes a thread exit
        self._ended: deque[Callable[[], None]] = deque()
        self._unsettled = 0  # jobs whose `then` has not been called yet
        self._is_woken = False
        self._is_closed = False

    def run(self, job: Callable[[], T], then: Callable[[JobResult[T]], None]) -> None:
        self._unsettled += 1
        if self._is_closed:
            self._do(job, then)
            self._wake()
            return

        with self._changing:
            self._jobs.put(partial(self._do, job, then))
            if len(self._threads) >= min(self._unsettled, self._most):
                return
            # The threads are daemons, because a process that exits after an error without calling `close` must not wait
            # for them.
            thread = Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
        try:
            self._start(thread)
        # The system refuses another thread. The existing threads run the job. If there are none, this thread runs it.
        except RuntimeError:
            with self._changing:
                self._threads.remove(thread)
                is_alone = not self._threads
            if is_alone:
                self._jobs.get()  # removes this job: it is the only one, because no thread exits while a job is waiting
                self._do(job, then)
                self._wake()

    def _do(self, job: Callable[[], T], then: Callable[[JobResult[T]], None]) -> None:
        self._ended.append(partial(then, outcome_of(job)))

    @property
    def thread_count(self) -> int:
        return len(self._threads)

    @property
    def is_idle(self) -> bool:
        """Whether all jobs are done and their results have been handled."""
        return self._unsettled == 0

    def close(self) -> None:
        """Waits for the threads to exit. The results of their last jobs are handled in the next turn of the loop."""
        join(self.end())

    def end(self) -> list[Thread]:
        """Like `close`, but does not wait. Returns the threads, which complete the submitted jobs and then exit."""
        self._is_closed = True
        with self._changing:
            threads = list(self._threads)
        for _ in threads:
            self._jobs.put(None)
        return threads

    def _next(self) -> Callable[[], None] | None:
        """Waits for a job. Returns None if the thread must exit."""
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
            del work  # otherwise, a waiting thread would keep the files and buffers of its last job open
            self._wake()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._watched(self._settle))

    def _settle(self) -> None:
        # The flag is cleared first. A result that a thread adds after this line is then either handled below or wakes
        # the loop again.
        self._is_woken = False
        ended, began_s = self._ended, self._now_s()
        while ended:
            self._unsettled -= 1
            try:
                ended.popleft()()
            except Exception as error:  # this is a bug, but the remaining results must still be handled
                self._loop.call_exception_handler(
                    {"message": "the result of a worker thread could not be handled", "exception": error}
                )
            if ended and self._now_s() - began_s >= SETTLING_S:
                self._is_woken = True
                self._loop.call_soon(self._watched(self._settle))
                return


class DecompressionWorkers:
    """Workers that decompress batches. The total size of waiting batches is limited, because a batch remains in memory
    even after its client has disconnected, in case it is part of a Produce request with acks=0."""

    __slots__ = ("_held_bytes", "_max_bytes", "_workers")

    def __init__(self, workers: Workers, max_bytes: int = MAX_OPENED_BYTES) -> None:
        self._workers = workers
        self._max_bytes = max_bytes
        self._held_bytes = 0

    def run(self, size_bytes: int, job: Callable[[], T], then: Callable[[JobResult[T]], None]) -> bool:
        """Like `Workers.run`, for a job that needs `size_bytes` of memory. Returns False and runs nothing if the total
        would become too large."""
        if self._held_bytes and self._held_bytes + size_bytes > self._max_bytes:
            return False
        self._held_bytes += size_bytes
        self._workers.run(job, partial(self._ended, size_bytes, then))
        return True

    def _ended(self, size_bytes: int, then: Callable[[JobResult[T]], None], outcome: JobResult[T]) -> None:
        self._held_bytes -= size_bytes
        then(outcome)
