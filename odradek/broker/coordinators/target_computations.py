"""Computes the target assignments of large groups in slices.

A member can send a topology of any size, and assigning many tasks takes a long time, so the broker handles other
requests during the computation. Only one target is computed at a time, to limit the memory used by computations.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from odradek.broker.runtime.slices import Steps, run_to_end, work_in_slices
from odradek.protocol.quoting import quoted

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_UNSLICED: Final = 1_000  # maximum number of tasks and members to assign without slicing; takes 2 to 5 ms


class Tasks:
    """Runs steps in slices in a task on the running event loop."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None  # The event loop itself holds only a weak reference to the task.

    def run(self, steps: Iterator[None]) -> None:
        self._task = asyncio.get_running_loop().create_task(work_in_slices(steps))


class TargetComputations:
    def __init__(self, max_unsliced: int = MAX_UNSLICED, run: Callable[[Iterator[None]], None] | None = None) -> None:
        """Creates an object that runs no computation yet.

        max_unsliced  the maximum amount of work that is done within the request that needs the target
        run           runs all steps later, interleaved with the event loop's other work; by default `Tasks.run`
        """
        self._max_unsliced = max_unsliced
        self._run = Tasks().run if run is None else run
        self._notify: Callable[[str, Any], None] = _ignore_result
        # by group, in the order of the requests; only the first computation is running
        self._steps: dict[str, Steps[Any]] = {}
        self._is_running = False

    def when_computed(self, notify: Callable[[str, Any], None]) -> None:
        """Registers a callback for computations whose `compute` call returned None. The callback receives the group's
        id and the result when a computation finishes."""
        self._notify = notify

    def compute(self, group_id: str, work: int, steps: Steps[T]) -> T | None:
        """Computes a group's target; see `ClusterView.compute_target`."""
        if work <= self._max_unsliced:
            return run_to_end(steps)
        if group_id not in self._steps:
            self._steps[group_id] = steps
            if not self._is_running:
                self._is_running = True
                self._run(self._all_steps())
        return None

    def _all_steps(self) -> Iterator[None]:
        while self._steps:
            group_id, steps = next(iter(self._steps.items()))
            result = None
            try:
                result = yield from steps
            except Exception:  # An exception here is a bug. The group's next heartbeat restarts the computation.
                logger.exception("the target assignment of group %s cannot be computed", quoted(group_id))
            del self._steps[group_id]
            if result is not None:
                self._notify(group_id, result)
            yield
        self._is_running = False


def _ignore_result(group_id: str, result: object) -> None:
    """Ignores the result of a computation. Used until `when_computed` registers a callback."""
