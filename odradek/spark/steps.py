"""The steps of a task and of a commit, at which tests interrupt the work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, auto


class CommitStep(Enum):
    """The points at which a commit can be interrupted."""

    BEGUN = auto()
    LEASED = auto()
    LISTED = auto()
    APPENDED = auto()  # the record is in the log, in an open transaction
    DECIDED = auto()
    ENDING = auto()  # one transaction is about to end; observed once per transaction
    ENDED = auto()  # all transactions have ended; the ledger does not yet record their end
    FINISHED = auto()


Observe = Callable[[CommitStep, int], Awaitable[None]]
"""Called at each step, before the work continues. The second argument is the number of transactions that have ended."""


async def observe_nothing(step: CommitStep, number: int) -> None:
    pass


class TaskStep(Enum):
    """The points at which a task can be interrupted."""

    BEGUN = auto()
    NAMED = auto()  # the transactional id is registered, but the task has not yet checked whether the run is sealed
    OPENED = auto()  # the transaction has begun, but has no records yet
    WRITTEN = auto()  # the rows are in the producer's buffer, but not yet flushed
    PREPARED = auto()


ObserveTask = Callable[[TaskStep], None]
"""Called at each step, before the work continues."""


def observe_no_task(step: TaskStep) -> None:
    pass
