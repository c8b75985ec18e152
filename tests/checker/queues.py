"""Finds faults in the history of a queue in which each job must produce exactly one result.

lost          a job has no result at the end
repeated      a job has more than one result
made up       a result matches no job, or was seen once and has disappeared
redelivered   a worker received a job long after the job's result was final
left          at the end, a job, an open transaction or a staged acknowledgement still exists

`faults(history)` is empty for every correct history.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

# Maximum time between the completion of a job and a worker's report that it received the job. A worker may still hold
# in memory a job that it received before the broker was killed. After the restart, another worker can receive the same
# job and finish it first. The first worker's acknowledgement is then refused.
LATE_NS = 2_000_000_000


class Fault(Enum):
    LOST = "lost"
    REPEATED = "repeated"
    MADE_UP = "made up"
    REDELIVERED = "redelivered"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class JobsTaken:
    """A worker received the jobs. `at_ns` comes from a clock that all processes share."""

    at_ns: int
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobsFinished:
    """A worker learned that the jobs' transaction had been committed."""

    at_ns: int
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueHistory:
    """The history of a queue.

    results  the job of each result that a reader of committed records sees at the end
    seen     the job of each result that a reader saw while the workers were running
    left     the jobs, open transactions and staged acknowledgements that the cluster still has at the end
    """

    jobs: Sequence[str]
    results: Sequence[str]
    seen: Sequence[str]
    taken: Sequence[JobsTaken] = ()
    finished: Sequence[JobsFinished] = ()
    left: Sequence[str] = field(default_factory=tuple)


def faults(history: QueueHistory) -> list[tuple[Fault, str]]:
    return list(_faults(history))


def _faults(history: QueueHistory) -> Iterator[tuple[Fault, str]]:
    results = Counter(history.results)
    for job in history.jobs:
        if results[job] == 0:
            yield Fault.LOST, job
        elif results[job] > 1:
            yield Fault.REPEATED, f"{job}: {results[job]} results"
    for result in sorted(results.keys() - set(history.jobs)):
        yield Fault.MADE_UP, result
    for result, count in (Counter(history.seen) - results).items():
        yield Fault.MADE_UP, f"{result}: seen {count} times more than it is there"
    finished_at = {job: each.at_ns for each in history.finished for job in each.jobs}
    for each in history.taken:
        for job in each.jobs:
            if each.at_ns > finished_at.get(job, each.at_ns) + LATE_NS:
                yield Fault.REDELIVERED, job
    for what in history.left:
        yield Fault.LEFT, what
