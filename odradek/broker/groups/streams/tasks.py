"""The tasks of a streams group. A task is one partition of a subtopology, and a member holds it in one of three
roles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from odradek.protocol.errors import ErrorCode, KafkaError

Tasks = Mapping[str, frozenset[int]]
"""Subtopology id → partitions. A subtopology without partitions is omitted."""

Since = Mapping[str, Mapping[int, int]]
"""Subtopology id → partition → the epoch at which the member received this active task. A subtopology without
partitions is omitted."""

NO_TASKS: Tasks = {}


@dataclass(frozen=True, slots=True)
class TaskRoles:
    """Tasks by role, either in a target assignment or as reported by a member."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)


@dataclass(frozen=True, slots=True)
class HeldTasks:
    """The tasks that the coordinator has given to a member, by role. For each active task, the epoch at which the
    member received it is stored, because an offset commit may use an older epoch if the member already had the task at
    that epoch."""

    active: Since = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    @property
    def roles(self) -> TaskRoles:
        return TaskRoles(
            {subtopology_id: frozenset(since) for subtopology_id, since in self.active.items()},
            self.standby,
            self.warmup,
        )


class TaskIdsStruct(Protocol):
    """The struct `TaskIds` of a request, a response or a record."""

    subtopology_id: str
    partitions: list[int]


def tasks_of(listed: Iterable[TaskIdsStruct]) -> Tasks:
    """Converts a list of task ids. If a subtopology has more than one entry, the entries are merged. Kafka fails in
    this case."""
    tasks: dict[str, frozenset[int]] = {}
    for each in listed:
        if each.partitions:
            tasks[each.subtopology_id] = tasks.get(each.subtopology_id, frozenset()).union(each.partitions)
    return tasks


def reported_tasks(
    active: Iterable[TaskIdsStruct] | None,
    standby: Iterable[TaskIdsStruct] | None,
    warmup: Iterable[TaskIdsStruct] | None,
) -> TaskRoles | None:
    """Returns the tasks that a heartbeat reports, or None if the heartbeat contains no lists of tasks.

    Raises INVALID_REQUEST if the heartbeat contains only some of the three lists.
    """
    if active is None and standby is None and warmup is None:
        return None
    if active is None or standby is None or warmup is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "If one task-type is non-null, all must be non-null.")
    return TaskRoles(tasks_of(active), tasks_of(standby), tasks_of(warmup))


def is_within(tasks: Tasks, others: Mapping[str, Mapping[int, int]] | Tasks) -> bool:
    """Returns whether `others` contains all of the tasks."""
    return all(
        partition in others.get(subtopology_id, ())
        for subtopology_id, partitions in tasks.items()
        for partition in partitions
    )


def overlaps(tasks: Tasks, others: Mapping[str, Mapping[int, int]] | Tasks) -> bool:
    """Returns whether `others` contains any of the tasks."""
    return any(not partitions.isdisjoint(others.get(each, ())) for each, partitions in tasks.items())
