"""The steps of a task and of a commit, where a test interrupts them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, auto


class CommitStep(Enum):
    """Points at which a commit can be interrupted."""

    BEGUN = auto()
    LEASED = auto()
    LISTED = auto()
    APPENDED = auto()  # the record is in the log, in an open transaction
    DECIDED = auto()
    ENDING = auto()  # of one transaction; comes once for each
    ENDED = auto()  # all of them; the ledger does not say so yet
    FINISHED = auto()


Observe = Callable[[CommitStep, int], Awaitable[None]]
"""Is told of each step before the work goes on; the number counts the transactions that are ended."""


async def observe_nothing(step: CommitStep, number: int) -> None:
    pass


class TaskStep(Enum):
    """Points at which a task can be interrupted."""

    BEGUN = auto()
    NAMED = auto()  # the coordinator knows its transactional id; whether the run is sealed has not been asked yet
    OPENED = auto()  # its transaction, which has no records yet
    WRITTEN = auto()  # the rows are handed to the producer, and not flushed
    PREPARED = auto()


ObserveTask = Callable[[TaskStep], None]
"""Is told of each step before the work goes on."""


def observe_no_task(step: TaskStep) -> None:
    pass
