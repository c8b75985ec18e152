"""A sink's transactional ids (docs/spec/spark.md#s2)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, unquote

DEFAULT_PREFIX = "spark"
RUN_CHARACTERS = 8
_OF_A_TASK = re.compile(r"(?P<sink>.+)\.t\.(?P<run>[^.]*)\.(?P<batch>\d+)\.(?P<partition>\d+)\.(?P<attempt>\d+)\.[^.]+")


@dataclass(frozen=True, slots=True)
class Sink:
    """One query's output. `query` is Spark's query id, or the idempotency key of a batch write."""

    prefix: str
    query: str

    @property
    def name(self) -> str:
        return f"{self.prefix}.{quote(self.query, safe='').replace('.', '%2E')}"

    @property
    def ledger_id(self) -> str:
        return f"{self.name}.ledger"

    def task_id(self, run: str, batch: int, partition: int, attempt: int, random: str) -> str:
        """Returns a transactional id for one transaction. `random` ensures that the id is never used again."""
        return f"{self.task_prefix(run)}{batch}.{partition}.{attempt}.{random}"

    def task_prefix(self, run: str) -> str:
        """Returns the prefix that the transactional ids of all this run's tasks share."""
        return f"{self.name}.t.{shorten(run)}."

    def seal_id(self, run: str) -> str:
        """Returns the transactional id that seals a run. Once the coordinator knows this id, no task of the run can
        open a transaction. No transaction ever begins under the id."""
        return f"{self.name}.sealed.{shorten(run)}"

    def pattern(self, run: str | None = None) -> str:
        """Returns a pattern for ListTransactions that matches the ids of all tasks, or of one run's tasks."""
        return re.escape(f"{self.name}.t." if run is None else self.task_prefix(run)) + ".*"


class TaskName(NamedTuple):
    """The parts of a task's transactional id."""

    sink: str
    run: str
    batch: int
    partition: int
    attempt: int


def shorten(run: str) -> str:
    return run[:RUN_CHARACTERS]


def task_of(transactional_id: str) -> TaskName | None:
    """Parses a task's transactional id. Returns None if the id does not belong to a task."""
    match = _OF_A_TASK.fullmatch(transactional_id)
    if match is None:
        return None
    return TaskName(match["sink"], match["run"], int(match["batch"]), int(match["partition"]), int(match["attempt"]))


def sink_of(name: str) -> Sink:
    """Returns the sink with this name. Raises ValueError if the name does not have the form PREFIX.QUERY."""
    prefix, dot, query = name.rpartition(".")
    if not (prefix and dot and query):
        raise ValueError(f"{name!r} is not the name of a sink, which has the form PREFIX.QUERY")
    return Sink(prefix, unquote(query))
