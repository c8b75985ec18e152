"""The input and the output of streams group assignors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.broker.groups.streams.tasks import TaskRoles, Tasks

TargetAssignment = Mapping[str, TaskRoles]
"""Member id → its tasks. Contains every member."""


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member, with the fields that assignors use.

    process_id       identifies the application instance; each of its threads is a separate member
    active, standby  the tasks that the member currently has, which may differ from its target
    task_offsets     the sums of the changelog offsets reported by the member, by subtopology and partition
    """

    process_id: str
    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    task_offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupView:
    """The members of a group, and the tasks to assign.

    members           the members by id, in the order in which they joined
    joining           the id of the member whose first heartbeat triggers the assignment, or None
    task_counts       the number of tasks of each subtopology
    stateful          the subtopologies whose tasks can have standby tasks
    standby_replicas  the number of standby tasks for each active task
    """

    members: Mapping[str, MemberView]
    task_counts: Mapping[str, int]
    stateful: frozenset[str] = frozenset()
    standby_replicas: int = 0
    joining: str | None = None
