"""The `sticky` assignor. It distributes tasks evenly and leaves members their current tasks where an even distribution
allows it.

The load of a process is the number of its tasks divided by the number of its members. The standby tasks of an active
task are assigned to other processes. Ties are resolved as in Kafka, where the result depends on the order of hash
tables and of Java's priority queue. Source: docs/spec/streams-groups.md#s5-1, B1 to B8.

Because computing the assignment of a large group takes a while, the assignor is a generator that yields periodically to
let the caller do other work.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator
from typing import Generic, TypeVar

from odradek.broker.groups.common.java_order import (
    compared_as_java_does,
    hash_of_text,
    in_hash_order,
    in_timeline_order,
    spread,
)
from odradek.broker.groups.streams.assignors.group_view import GroupView, TargetAssignment
from odradek.broker.groups.streams.tasks import TaskRoles, Tasks

TASKS_PER_STEP = 100  # number of tasks to assign between two yields; takes a few tenths of a millisecond

Task = int
"""A task as a number: its partition times the number of subtopologies, plus the index of its subtopology in the sorted
list. Tasks therefore sort by partition first. Numbers are hashed and compared faster than tuples."""


class _Process:
    """An application instance, and the tasks assigned to it so far.

    load  the number of the process's tasks divided by the number of its members
    """

    __slots__ = ("load", "members", "tasks")

    def __init__(self) -> None:
        self.members: list[_Member] = []
        self.tasks: set[Task] = set()
        self.load = 0.0


class _Member:
    """A member, and the tasks assigned to it so far.

    load  the number of tasks assigned so far
    """

    __slots__ = ("active", "load", "member_id", "process", "standby")

    def __init__(self, member_id: str, process: _Process) -> None:
        self.member_id = member_id
        self.process = process
        self.active: list[Task] = []
        self.standby: list[Task] = []
        self.load = 0

    def add(self, task: Task, tasks: list[Task]) -> None:
        process = self.process
        tasks.append(task)
        self.load += 1
        process.tasks.add(task)
        process.load = len(process.tasks) / len(process.members)


class _Quota:
    """The target number of tasks per member. When a member reaches the quota, the remaining tasks are divided among the
    remaining members."""

    __slots__ = ("_members", "_tasks", "each")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self._divide()

    def count(self, member_tasks: int) -> None:
        """Updates the quota after a member has received a task. `member_tasks` is the member's new number of tasks."""
        if member_tasks == self.each:
            self._tasks -= member_tasks
            self._members -= 1
            self._divide()

    def _divide(self) -> None:
        self.each = -(-self._tasks // self._members) if self._members > 0 else 0


Loaded = TypeVar("Loaded", _Process, _Member)


class _Queue(Generic[Loaded]):
    """A priority queue of processes or members, lowest load first. Equal elements come out in the same order as in
    Java's `PriorityQueue`, a binary heap in which an element moves only past strictly greater elements."""

    __slots__ = ("_heap",)

    def __init__(self, elements: Iterable[Loaded]) -> None:
        self._heap: list[Loaded] = []
        for each in elements:
            self.push(each)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def push(self, added: Loaded) -> None:
        heap, load = self._heap, added.load
        place = len(heap)
        heap.append(added)
        while place > 0:
            parent = (place - 1) // 2
            if load >= heap[parent].load:
                break
            heap[place] = heap[parent]
            place = parent
        heap[place] = added

    def pop(self) -> Loaded:
        heap = self._heap
        moved = heap.pop()
        if not heap:
            return moved
        least = heap[0]
        place, size, load = 0, len(heap), moved.load
        while (child := 2 * place + 1) < size:
            if child + 1 < size and heap[child].load > heap[child + 1].load:
                child += 1
            if load <= heap[child].load:
                break
            heap[place] = heap[child]
            place = child
        heap[place] = moved
        return least


class _LeastLoaded:
    """Assigns tasks to the process with the lowest load, and within the process to the member with the fewest tasks."""

    __slots__ = ("_members", "_processes")

    def __init__(self, processes: Iterable[_Process]) -> None:
        self._processes = _Queue(processes)
        self._members: dict[_Process, _Queue[_Member]] = {}

    def place(self, task: Task, *, standby: bool) -> _Member | None:
        """Assigns the task to a member of a process that does not have the task yet. Returns the member, or None if
        every process already has the task."""
        passed = []
        member = None
        while member is None and self._processes:
            process = self._processes.pop()
            passed.append(process)
            if task not in process.tasks:
                member = self._add(task, process, standby=standby)
        for process in reversed(passed):
            self._processes.push(process)
        return member

    def _add(self, task: Task, process: _Process, *, standby: bool) -> _Member:
        members = self._members.get(process)
        if members is None:
            members = self._members[process] = _Queue(process.members)
        member = members.pop()
        member.add(task, member.standby if standby else member.active)
        members.push(member)
        return member


class _Assignment:
    __slots__ = (
        "active_quota",
        "group",
        "members",
        "owners",
        "places",
        "processes",
        "standbys",
        "subtopologies",
        "task_quota",
    )

    def __init__(self, group: GroupView) -> None:
        self.group = group
        self.subtopologies = sorted(group.task_counts, key=compared_as_java_does)
        self.places = {subtopology_id: place for place, subtopology_id in enumerate(self.subtopologies)}
        self.members: list[_Member] = []
        self.owners: dict[Task, _Member] = {}
        self.standbys: dict[Task, list[_Member]] = {}
        self.processes: list[_Process] = []
        active = sum(group.task_counts.values())
        replicas = sum(group.task_counts[each] for each in group.stateful) * group.standby_replicas
        self.active_quota = _Quota(active, len(group.members))
        self.task_quota = _Quota(active + replicas, len(group.members))

    # The members' current tasks.

    def read_members(self) -> Iterator[None]:
        group = self.group
        processes: dict[str, _Process] = {}
        reported: dict[Task, list[tuple[int, _Member]]] = {}
        for member_id in in_hash_order(_in_member_order(group), hash_of_text):
            view = group.members[member_id]
            process = processes.setdefault(view.process_id, _Process())
            member = _Member(member_id, process)
            process.members.append(member)
            self.members.append(member)
            for task in self._numbered(view.active):
                self.owners[task] = member
            for task in self._numbered(view.standby):
                self.standbys.setdefault(task, []).append(member)
            for (subtopology_id, partition), offset in view.task_offsets.items():
                if subtopology_id in self.places:
                    task = partition * len(self.places) + self.places[subtopology_id]
                    reported.setdefault(task, []).append((offset, member))
            yield
        for task, offsets in reported.items():
            offsets.sort(key=lambda each: -each[0])
            holders = self.standbys.setdefault(task, [])
            holders += [member for _, member in offsets if member not in holders]
        self.processes = [processes[each] for each in _in_table_order([*processes], len(self.members))]

    def _numbered(self, tasks: Tasks) -> list[Task]:
        width = len(self.places)
        return [
            partition * width + self.places[subtopology_id]
            for subtopology_id, partitions in tasks.items()
            if subtopology_id in self.places
            for partition in partitions
        ]

    def _tasks(self, subtopologies: Collection[str]) -> list[Task]:
        """Returns all tasks of the given subtopologies, sorted by partition and then by subtopology."""
        width, counts = len(self.places), self.group.task_counts
        tasks: list[Task] = []
        for subtopology_id in subtopologies:
            place = self.places[subtopology_id]
            tasks += range(place, counts[subtopology_id] * width + place, width)
        tasks.sort()
        return tasks

    def _place_of(self, task: Task) -> int:
        """Returns a key that sorts tasks by subtopology. A stable sort leaves the tasks of each subtopology sorted by
        partition."""
        return task % len(self.places)

    # Active tasks.

    def assign_active(self) -> Iterator[None]:
        remaining = []
        for number, task in enumerate(self._tasks(self.subtopologies)):
            if number % TASKS_PER_STEP == 0:
                yield
            owner = self.owners.get(task)
            if owner is not None and owner.load < self.active_quota.each:
                self._activate(task, owner)
            else:
                remaining.append(task)
        unseen = []
        for number, task in enumerate(remaining):
            if number % TASKS_PER_STEP == 0:
                yield
            holders = self.standbys.get(task)
            member = None if holders is None else _least_loaded(holders)
            if member is not None and member.load < self.active_quota.each:
                self._activate(task, member)
            else:
                unseen.append(task)
        others = _LeastLoaded(self.processes)
        for number, task in enumerate(sorted(unseen, key=self._place_of)):
            if number % TASKS_PER_STEP == 0:
                yield
            member = others.place(task, standby=False)
            if member is not None:
                self.task_quota.count(member.load)

    def _activate(self, task: Task, member: _Member) -> None:
        member.add(task, member.active)
        self.active_quota.count(member.load)
        self.task_quota.count(member.load)

    # Standby tasks.

    def assign_standby(self) -> Iterator[None]:
        replicas = self.group.standby_replicas
        remaining: list[tuple[Task, int]] = []
        for number, task in enumerate(reversed(self._tasks(self.group.stateful))):
            if number % TASKS_PER_STEP == 0:
                yield
            for replica in range(replicas):
                member = self._previous(task)
                if member is None:
                    remaining.append((task, replicas - replica))
                    break
                self._stand_by(task, member)
        others = _LeastLoaded(self.processes)
        by_place = sorted(remaining, key=lambda each: self._place_of(each[0]), reverse=True)
        for number, (task, missing) in enumerate(by_place):
            if number % TASKS_PER_STEP == 0:
                yield
            for _ in range(missing):
                if others.place(task, standby=True) is None:
                    break  # there are fewer processes than replicas

    def _previous(self, task: Task) -> _Member | None:
        """Returns a member that previously had the task in any role and can now get it as a standby task, or None if no
        member qualifies."""
        owner = self.owners.get(task)
        if owner is not None and task not in owner.process.tasks and owner.load < self.task_quota.each:
            return owner
        standby = _least_loaded(member for member in self.standbys.get(task, ()) if task not in member.process.tasks)
        if standby is not None and standby.load < self.task_quota.each:
            return standby
        return None

    def _stand_by(self, task: Task, member: _Member) -> None:
        member.add(task, member.standby)
        self.task_quota.count(member.load)

    # The result.

    def target(self) -> Generator[None, None, TargetAssignment]:
        target = {}
        for member in self.members:
            target[member.member_id] = TaskRoles(self._by_id(member.active), self._by_id(member.standby))
            yield
        return target

    def _by_id(self, tasks: list[Task]) -> Tasks:
        partitions: dict[str, set[int]] = {}
        for task in tasks:
            partition, place = divmod(task, len(self.places))
            partitions.setdefault(self.subtopologies[place], set()).add(partition)
        return {subtopology_id: frozenset(found) for subtopology_id, found in partitions.items()}


def _in_member_order(group: GroupView) -> list[str]:
    """Returns the member ids in Kafka's order. A joining member comes last."""
    ordered = in_timeline_order(member_id for member_id in group.members if member_id != group.joining)
    return ordered if group.joining is None else [*ordered, group.joining]


def _in_table_order(process_ids: Collection[str], members: int) -> list[str]:
    """Sorts processes in the order of a Java hash table whose size is determined by the number of members.

    The table begins with two slots. Before an entry is added, the number of slots is doubled if the table is more than
    three quarters full. Within a slot, the entry that was added last comes first.
    """
    places = 2
    for entries in range(members):
        if entries * 4 > places * 3:
            places *= 2
    last_first = [*process_ids][::-1]
    return sorted(last_first, key=lambda each: spread(hash_of_text(each)) & (places - 1))


def assign_sticky(group: GroupView) -> Generator[None, None, TargetAssignment]:
    """Computes and returns the target assignment. Yields periodically so that the caller can do other work."""
    if not group.members:
        return {}
    assignment = _Assignment(group)
    yield from assignment.read_members()
    yield from assignment.assign_active()
    if group.standby_replicas > 0:
        yield from assignment.assign_standby()
    return (yield from assignment.target())


def _least_loaded(members: Iterable[_Member]) -> _Member | None:
    """Returns the member whose process has the lowest load. Ties go to the member with the fewest tasks, then to the
    first member."""
    return min(members, key=lambda member: (member.process.load, member.load), default=None)
