"""An event loop and threads under the test's control: work runs only when the test runs it."""

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from odradek.broker.runtime.workers import JobResult

T = TypeVar("T")


class ManualTick:
    """A replacement for `loop.call_soon`."""

    def __init__(self) -> None:
        self._actions: deque[Callable[[], None]] = deque()

    def __call__(self, action: Callable[[], None]) -> None:
        self._actions.append(action)

    def __len__(self) -> int:
        return len(self._actions)

    def run(self) -> None:
        """Runs one tick: all callbacks scheduled before this call, but none that they schedule in turn."""
        for _ in range(len(self._actions)):
            self._actions.popleft()()


class ManualWorkers:
    """A replacement for threads. Jobs run when the test calls `finish_one` or `finish_all`."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[Callable[[], Any], Callable[[JobResult[Any]], None]]] = deque()

    def run(self, job: Callable[[], T], then: Callable[[JobResult[T]], None]) -> None:
        self.jobs.append((job, then))

    def finish_one(self) -> None:
        job, then = self.jobs.popleft()
        outcome: JobResult[Any]
        try:
            outcome = JobResult(job(), None)
        except Exception as error:
            outcome = JobResult(None, error)
        then(outcome)

    def finish_all(self) -> None:
        while self.jobs:
            self.finish_one()
