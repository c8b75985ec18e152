"""Moves a member of a streams group towards its target, one step per heartbeat.

A member first gives up tasks, and then receives tasks that no other member holds. The members of a process never have
the same task in two roles. Source: docs/spec/streams-groups.md#s5-2, R1 to R10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from odradek.broker.groups.streams.member import StreamsMember, StreamsMemberState
from odradek.broker.groups.streams.tasks import HeldTasks, Since, TaskRoles, Tasks, overlaps


class TaskGoal(NamedTuple):
    """The state towards which a member moves.

    epoch             epoch of the target assignment
    target            the member's part of the target assignment
    unreleased_tasks  returns the tasks that the member cannot receive yet; called only if the member needs tasks
    """

    epoch: int
    target: TaskRoles
    unreleased_tasks: Callable[[], UnreleasedTasks]


class UnreleasedTasks(NamedTuple):
    """The tasks that a member cannot receive yet, by subtopology id. `active` contains the tasks that it cannot receive
    as active tasks, and `standby` contains the tasks that it cannot receive as standby tasks."""

    active: Mapping[str, set[int]]
    standby: Mapping[str, set[int]]


def unreleased_tasks(members: Iterable[StreamsMember], receiver: StreamsMember) -> UnreleasedTasks:
    """Returns the tasks that `receiver`, which is one of the members, cannot receive yet.

    A task that a member must give up remains unavailable until the member confirms giving it up. This rule also applies
    to tasks of `receiver` itself.
    """
    active: dict[str, set[int]] = {}
    standby: dict[str, set[int]] = {}
    for member in members:
        in_process, is_other = member.process_id == receiver.process_id, member.member_id != receiver.member_id
        for held in (member.assigned, member.revoking):
            _add(active, held.active)
            if in_process:
                _add(standby, held.standby, held.warmup)
                if is_other:
                    _add(active, held.standby, held.warmup)
                    _add(standby, held.active)
    return UnreleasedTasks(active, standby)


def _add(found: dict[str, set[int]], *held: Tasks | Since) -> None:
    for tasks in held:
        for subtopology_id, partitions in tasks.items():
            found.setdefault(subtopology_id, set()).update(partitions)


def reconcile(member: StreamsMember, goal: TaskGoal, owned: TaskRoles | None) -> StreamsMember:
    """Returns the member as it is after this heartbeat, possibly unchanged. `owned` contains the tasks that the member
    reports or is None if the request does not list them."""
    match member.state:
        case StreamsMemberState.STABLE:
            return (
                member if member.epoch == goal.epoch else _move_towards_target(member, goal, owned, has_revoked=False)
            )
        case StreamsMemberState.UNREVOKED_TASKS:
            if owned is None or _overlaps_any_role(owned, member.revoking):
                return member
            return _move_towards_target(member, goal, owned, has_revoked=True)
        case StreamsMemberState.UNRELEASED_TASKS:
            return _move_towards_target(member, goal, owned, has_revoked=False)


def _move_towards_target(
    member: StreamsMember, goal: TaskGoal, owned: TaskRoles | None, *, has_revoked: bool
) -> StreamsMember:
    assigned, target = member.assigned, goal.target
    active = _intersection(assigned.active, target.active)
    # A standby task that will become active is kept until the active task is free.
    standby = _union(_intersection(assigned.standby, target.standby), _intersection(assigned.standby, target.active))
    warmup = _union(_intersection(assigned.warmup, target.warmup), _intersection(assigned.warmup, target.active))
    revoking = HeldTasks(
        _with_epochs(_difference(assigned.active, target.active), assigned.active),
        _difference(assigned.standby, standby),
        _difference(assigned.warmup, warmup),
    )
    if revoking and (owned is None or _overlaps_any_role(owned, revoking)):
        # An active task that will become a standby task of the same member is available immediately, because no other
        # member holds it.
        standby = _union(standby, _intersection(revoking.active, target.standby))
        return replace(
            member,
            # If a member has just given up tasks and must give up more, the second revocation has a new epoch.
            epoch=member.epoch + 1 if has_revoked else member.epoch,
            previous_epoch=member.epoch,
            state=StreamsMemberState.UNREVOKED_TASKS,
            assigned=HeldTasks(_with_epochs(active, assigned.active), standby, warmup),
            revoking=revoking,
        )
    missing, missing_standby = _difference(target.active, active), _difference(target.standby, standby)
    state, received = StreamsMemberState.STABLE, HeldTasks()
    if missing or missing_standby:
        holders = goal.unreleased_tasks()
        given, given_standby = _difference(missing, holders.active), _difference(missing_standby, holders.standby)
        if given != missing or given_standby != missing_standby:
            state = StreamsMemberState.UNRELEASED_TASKS
        new = {each: dict.fromkeys(sorted(given[each]), goal.epoch) for each in given}
        received = HeldTasks(new, given_standby)
    return replace(
        member,
        epoch=goal.epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=HeldTasks(
            _merge_epochs(_with_epochs(active, assigned.active), received.active),
            _union(_difference(standby, received.active), received.standby),
            _difference(warmup, received.active),
        ),
        revoking=HeldTasks(),
    )


def _overlaps_any_role(owned: TaskRoles, held: HeldTasks) -> bool:
    return (
        overlaps(owned.active, held.active)
        or overlaps(owned.standby, held.standby)
        or overlaps(owned.warmup, held.warmup)
    )


def _intersection(tasks: Tasks | Since, others: Tasks | Since) -> Tasks:
    return {each: found for each in tasks if (found := frozenset(tasks[each]).intersection(others.get(each, ())))}


def _difference(tasks: Tasks | Since, others: Tasks | Since | Mapping[str, set[int]]) -> Tasks:
    return {each: left for each in tasks if (left := frozenset(tasks[each]).difference(others.get(each, ())))}


def _union(tasks: Tasks, others: Tasks) -> Tasks:
    return {each: tasks.get(each, frozenset()) | others.get(each, frozenset()) for each in {**tasks, **others}}


def _with_epochs(tasks: Tasks, since: Since) -> Since:
    return {each: {partition: since[each][partition] for partition in sorted(tasks[each])} for each in tasks}


def _merge_epochs(since: Since, received: Since) -> Since:
    return {each: {**since.get(each, {}), **received.get(each, {})} for each in {**since, **received}}
