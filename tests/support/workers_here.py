"""A replacement for worker threads that runs jobs in the calling thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from odradek.broker.runtime.workers import JobResult, outcome_of

T = TypeVar("T")


class WorkersHere:
    """Runs each job immediately, in the calling thread."""

    def run(self, job: Callable[[], T], then: Callable[[JobResult[T]], None]) -> None:
        then(outcome_of(job))
