"""Tests the `sticky` assignor (docs/spec/streams-groups.md#s5-1). Ties are broken by member id, so the tests use the
member ids that the groups had on Kafka.

`targets_of_kafka.json` contains target assignments that Kafka 4.4.0 computed for groups of random size, and the tasks
that their members owned at that time.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.groups.streams.assignors.group_view import GroupView, MemberView, TargetAssignment
from odradek.broker.groups.streams.assignors.sticky import assign_sticky
from odradek.broker.groups.streams.tasks import TaskRoles, Tasks
from odradek.broker.runtime.slices import run_to_end

TARGETS_OF_KAFKA = json.loads(Path(__file__).with_name("targets_of_kafka.json").read_text())


def assigned(group: GroupView) -> TargetAssignment:
    return run_to_end(assign_sticky(group))


class Application:
    """A group whose members adopt each new target assignment immediately."""

    def __init__(self, tasks: Mapping[str, int], *, stateful: str = "", standby: int = 0) -> None:
        self.group = GroupView({}, tasks, frozenset(stateful), standby)

    def join(self, *members: str) -> str:
        """Adds members and returns the new assignment. `m1` names a member in a process of the same name, and `m1@P`
        names a member in process P."""
        joined = {}
        for member in members:
            member_id, _, process = member.partition("@")
            joined[member_id] = MemberView(process or member_id)
        return self._assign({**self.group.members, **joined})

    def leave(self, member_id: str) -> str:
        return self._assign({each: view for each, view in self.group.members.items() if each != member_id})

    def _assign(self, members: Mapping[str, MemberView]) -> str:
        self.group = replace(self.group, members=members)
        target = assigned(self.group)
        self.group = replace(
            self.group,
            members={
                member_id: replace(view, active=target[member_id].active, standby=target[member_id].standby)
                for member_id, view in members.items()
            },
        )
        return "; ".join(f"{member_id} {written(target[member_id])}" for member_id in sorted(target))


def written(roles: TaskRoles) -> str:
    active, standby = written_tasks(roles.active), written_tasks(roles.standby)
    return f"{active} | {standby}" if standby else active


def written_tasks(tasks: Tasks) -> str:
    return " ".join(f"{each}:{''.join(map(str, sorted(tasks[each])))}" for each in sorted(tasks))


# --- The examples of the rule book.


def test_members_that_join_take_over_what_is_above_the_quota() -> None:
    app = Application({"0": 7})
    assert app.join("m1") == "m1 0:0123456"
    assert app.join("m2") == "m1 0:0123; m2 0:456"
    assert app.join("m3") == "m1 0:012; m2 0:45; m3 0:36"
    assert app.join("m4") == "m1 0:01; m2 0:45; m3 0:36; m4 0:2"
    assert app.leave("m1") == "m2 0:145; m3 0:36; m4 0:02"


def test_tasks_of_two_stateless_subtopologies_are_balanced() -> None:
    app = Application({"0": 7, "1": 3})
    app.join("m1")
    assert app.join("m2") == "m1 0:012 1:01; m2 0:3456 1:2"
    assert app.join("m3") == "m1 0:01 1:01; m2 0:34 1:2; m3 0:256"


def test_standby_tasks_of_two_subtopologies_are_balanced() -> None:
    app = Application({"0": 4, "1": 3}, stateful="01", standby=1)
    assert app.join("m1") == "m1 0:0123 1:012"
    assert app.join("m2") == "m1 0:01 1:01 | 0:23 1:2; m2 0:23 1:2 | 0:01 1:01"
    assert app.join("m3") == "m1 0:01 1:0 | 0:2 1:2; m2 0:2 1:2 | 0:13 1:1; m3 0:3 1:1 | 0:0 1:0"


def test_threads_of_a_process_share_its_tasks() -> None:
    app = Application({"0": 7})
    app.join("m1@P")
    assert app.join("m2@P") == "m1 0:0123; m2 0:456"
    assert app.join("m3@Q") == "m1 0:012; m2 0:45; m3 0:36"


def test_members_of_a_new_group_take_turns() -> None:
    assert Application({"0": 4}).join("m1", "m2") == "m1 0:02; m2 0:13"


# --- The steps of the algorithm.


def test_b3_a_standby_task_becomes_active_where_it_is() -> None:
    group = GroupView(
        {"a": MemberView("a", standby={"0": frozenset({1})}), "b": MemberView("b", {"0": frozenset({0})})},
        {"0": 2},
        frozenset({"0"}),
        1,
    )
    assert written(assigned(group)["a"]) == "0:1 | 0:0"


@pytest.mark.parametrize(("of_b", "of_c", "owner"), [(100, 50, "b"), (50, 100, "c"), (-9, -7, "c")])
def test_b3_a_task_goes_to_the_member_with_most_reported_offsets(of_b: int, of_c: int, owner: str) -> None:
    group = GroupView(
        {
            "b": MemberView("b", {"0": frozenset({2})}, task_offsets={("0", 0): of_b}),
            "c": MemberView("c", {"0": frozenset({1})}, task_offsets={("0", 0): of_c}),
        },
        {"0": 3},
    )
    assert 0 in assigned(group)[owner].active["0"]


def test_b7_and_r20_standby_tasks_without_a_process_for_them_are_left_out() -> None:
    assert Application({"0": 4}, stateful="0", standby=2).join("m1@P", "m2@P") == "m1 0:02; m2 0:13"
    app = Application({"0": 2}, stateful="0", standby=2)
    app.join("m1")
    assert app.join("m2") == "m1 0:0 | 0:1; m2 0:1 | 0:0"


def test_tasks_that_no_longer_exist_are_forgotten() -> None:
    old = {"0": frozenset({0, 5}), "gone": frozenset({1})}
    assert written(assigned(GroupView({"a": MemberView("a", old)}, {"0": 1}))["a"]) == "0:0"


def test_members_without_tasks_have_an_empty_target() -> None:
    assert assigned(GroupView({"a": MemberView("a")}, {})) == {"a": TaskRoles()}
    assert assigned(GroupView({}, {"0": 3})) == {}


# --- Decisions observed in Kafka.


def tasks(listed: Mapping[str, list[int]]) -> Tasks:
    return {subtopology_id: frozenset(partitions) for subtopology_id, partitions in listed.items()}


@pytest.mark.parametrize("case", TARGETS_OF_KAFKA, ids=map(str, range(len(TARGETS_OF_KAFKA))))
def test_the_targets_are_the_same_as_kafkas(case: Mapping[str, Any]) -> None:
    members = {
        member_id: MemberView(
            member["process"],
            tasks(member["active"]),
            tasks(member["standby"]),
            {(subtopology_id, partition): offset for subtopology_id, partition, offset in member.get("offsets", ())},
        )
        for member_id, member in case["members"].items()
    }
    group = GroupView(
        members, case["tasks"], frozenset(case["stateful"]), case["standby_replicas"], case.get("joining")
    )
    expected = {
        member_id: TaskRoles(*(tasks(listed) for listed in member["target"]))
        for member_id, member in case["members"].items()
    }
    assert assigned(group) == expected


# --- Properties that hold for every group.

NAMES = st.text("abcdefgh", min_size=1, max_size=3)


@st.composite
def groups(draw: st.DrawFn) -> GroupView:
    task_counts = draw(st.dictionaries(st.sampled_from(["0", "1", "2", "10"]), st.integers(1, 12), min_size=1))
    members = draw(st.dictionaries(NAMES, st.sampled_from("PQRS"), min_size=1, max_size=9))
    stateful = draw(st.frozensets(st.sampled_from(sorted(task_counts))))
    return GroupView(
        {member_id: MemberView(process) for member_id, process in members.items()},
        task_counts,
        stateful,
        draw(st.integers(0, 2)),
    )


def taken_over(group: GroupView, target: TargetAssignment) -> GroupView:
    members = {
        member_id: replace(view, active=target[member_id].active, standby=target[member_id].standby)
        for member_id, view in group.members.items()
    }
    return replace(group, members=members)


def placed(tasks: Tasks) -> list[tuple[str, int]]:
    return [(subtopology_id, partition) for subtopology_id, partitions in tasks.items() for partition in partitions]


def assert_sound(group: GroupView, target: TargetAssignment) -> None:
    everything = [(each, partition) for each, count in group.task_counts.items() for partition in range(count)]
    active = [task for roles in target.values() for task in placed(roles.active)]
    assert sorted(active) == sorted(everything)
    processes: dict[str, list[tuple[str, int]]] = {}
    for member_id, roles in target.items():
        tasks = processes.setdefault(group.members[member_id].process_id, [])
        tasks += placed(roles.active) + placed(roles.standby)
        assert roles.standby.keys() <= group.stateful
        assert not roles.warmup
    for tasks in processes.values():
        assert len(tasks) == len(set(tasks)), "two roles of one task in a process"
    replicas = min(group.standby_replicas, len(processes) - 1)
    standby = [task for roles in target.values() for task in placed(roles.standby)]
    assert sorted(standby) == sorted(task for task in everything if task[0] in group.stateful for _ in range(replicas))


@given(groups())
def test_each_task_has_one_owner_and_its_standby_tasks_other_processes(group: GroupView) -> None:
    target = assigned(group)
    assert_sound(group, target)
    assert_sound(group, assigned(taken_over(group, target)))


@given(groups())
def test_members_of_processes_of_one_member_get_equally_many_active_tasks(group: GroupView) -> None:
    alone = {member_id: replace(view, process_id=member_id) for member_id, view in group.members.items()}
    target = assigned(replace(group, members=alone))
    counts = [len(placed(roles.active)) for roles in target.values()]
    assert max(counts) - min(counts) <= 1


@given(groups(), NAMES)
def test_a_member_that_leaves_moves_no_active_task_of_the_others(group: GroupView, leaving: str) -> None:
    settled = taken_over(group, assigned(replace(group, standby_replicas=0)))
    left = {member_id: view for member_id, view in settled.members.items() if member_id != leaving}
    target = assigned(replace(settled, members=left))
    for member_id, view in left.items():
        assert {*placed(view.active)} <= {*placed(target[member_id].active)}
