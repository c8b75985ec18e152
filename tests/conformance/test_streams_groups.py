"""Tests the epochs and tasks of streams groups, with raw frames to Kafka and to Odradek:
docs/spec/streams-groups.md#s13-1."""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.streams_group_heartbeat_request import Endpoint, KeyValue, TaskIds
from tests.conformance.streams_scene import (
    ALL,
    DELAYED,
    NOTHING,
    Member,
    Scene,
    Tasks,
    revoke_tasks,
    subtopology,
    topology,
    with_two_members,
)
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka


def with_a_store(scene: Scene, source: str = "i4") -> None:
    """Gives the subtopology a changelog, so its tasks can have standby tasks."""
    scene.topology = topology(subtopology("0", [source], changelogs=[scene.named("store-changelog")]))


def joined(member: Member) -> tuple[int, Tasks | None]:
    """Joins and waits for tasks if internal topics must be created first. Returns the member epoch and active tasks."""
    return member.beat_for_tasks().epoch_and_tasks if member.join().statuses else (member.epoch, None)


def test_scenarios_001_and_002_and_003_and_004_a_task_is_given_up_before_another_member_gets_it(scene: Scene) -> None:
    a, c = scene.member("a"), scene.member("c")
    assert a.join().epoch_and_tasks == (2, ALL)
    assert scene.state == ("Stable", 2, 2)
    assert c.join().epoch_and_tasks == (3, NOTHING)
    assert scene.state == ("Reconciling", 3, 3)
    assert a.target == {"0": [0, 1]}
    assert a.beat().epoch_and_tasks == (2, {"0": [0, 1]})
    assert c.beat().epoch_and_tasks == (3, None)


def test_scenarios_005_and_006_and_007_a_member_reports_the_tasks_that_it_has_revoked(scene: Scene) -> None:
    a, c = scene.member("a"), scene.member("c")
    a.join()
    revoke_tasks(scene, a, c)
    assert a.beat(ALL).epoch_and_tasks == (2, scene.reported_again({"0": [0, 1]}))
    assert a.beat({"0": [0, 1]}).epoch_and_tasks == (3, None)
    assert c.beat().epoch_and_tasks == (3, {"0": [2, 3]})
    assert scene.state == ("Stable", 3, 3)
    assert c.beat().epoch_and_tasks == (3, None)


def test_scenario_008_a_heartbeat_whose_answer_was_lost_is_repeated(scene: Scene) -> None:
    a, _ = with_two_members(scene)
    assert a.beat({"0": [0, 1]}, member_epoch=2).epoch_and_tasks == (3, None)
    assert a.beat(member_epoch=2).code is ErrorCode.FENCED_MEMBER_EPOCH
    code, message = a.beat(ALL, member_epoch=2).refused
    assert code is ErrorCode.FENCED_MEMBER_EPOCH
    assert message == (
        "The streams group member has a smaller member epoch (2) than the one known by the group coordinator (3). "
        "The member must abandon all its partitions and rejoin."
    )


def test_scenarios_009_and_010_a_member_leaves(scene: Scene) -> None:
    a, c = with_two_members(scene)
    left = c.leave()
    assert left.epoch_and_tasks == (-1, None)
    response = left.response
    assert (response.heartbeat_interval_ms, response.task_offset_interval_ms) == (0, 0)
    assert response.acceptable_recovery_lag == -1
    assert (response.member_id, response.status) == ("c", [])
    assert scene.state == ("Assigning", 4, 3)
    assert a.beat().epoch_and_tasks == (4, ALL)


def test_scenarios_011_and_012_and_015_no_target_is_computed_within_the_interval(scene: Scene) -> None:
    scene.configure(assignment_interval_ms=1000)
    a, c = scene.member("a"), scene.member("c")
    a.join()
    waits = c.join()
    assert waits.epoch_and_tasks == (2, NOTHING)
    assert waits.statuses == [DELAYED]
    assert waits.details == ["Assignment delayed due to the configured assignment interval."]
    also_waits = a.beat()
    assert (also_waits.epoch_and_tasks, also_waits.statuses) == ((2, None), [DELAYED])
    more = [scene.member(name) for name in ("d", "e", "f")]
    assert [each.join().epoch_and_tasks for each in more] == [(2, NOTHING)] * 3
    assert scene.state == ("Assigning", 6, 2)
    for each in more:
        each.leave()
    assert c.beat_until(lambda reply: not reply.statuses).epoch_and_tasks == (9, None)
    assert a.beat().epoch_and_tasks == (2, {"0": [0, 1]})
    assert a.beat({"0": [0, 1]}).epoch_and_tasks == (9, None)
    assert c.beat().epoch_and_tasks == (9, {"0": [2, 3]})


def test_scenario_013_each_changed_field_of_a_member_raises_the_epoch(scene: Scene) -> None:
    a = scene.member("a")
    a.join()
    assert a.beat(rack_id="r1").epoch_and_tasks == (3, None)
    assert a.beat(rack_id="r1").epoch_and_tasks == (3, None)
    assert a.beat(process_id="another").epoch_and_tasks == (4, None)
    assert a.beat(client_tags=[KeyValue(key="zone", value="1")]).epoch_and_tasks == (5, None)
    assert a.beat(client_tags=[]).epoch_and_tasks == (6, None)
    assert a.beat(rebalance_timeout_ms=1234).epoch_and_tasks == (7, None)
    assert a.beat(user_endpoint=Endpoint(host="h", port=1)).epoch_and_tasks == (8, None)


def test_scenario_014_a_member_that_rejoins_by_another_client_id_raises_the_epoch(scene: Scene) -> None:
    a = scene.member("a")
    a.join()
    scene.talk = scene.talk.also("another client")
    assert a.join().epoch_and_tasks == (3, ALL)
    assert scene.state == ("Stable", 3, 3)


def test_scenario_016_a_task_that_returns_to_its_owner_is_assigned_one_heartbeat_later(scene: Scene) -> None:
    a, c = scene.member("a"), scene.member("c")
    a.join()
    revoke_tasks(scene, a, c)
    c.leave()
    assert a.beat(ALL).epoch_and_tasks == (2, scene.reported_again({"0": [0, 1]}))
    assert a.beat({"0": [0, 1]}).epoch_and_tasks == (4, None)
    assert a.beat().epoch_and_tasks == (4, ALL)


def test_scenario_017_a_member_that_rejoins_owns_nothing(scene: Scene) -> None:
    a, c = scene.member("a"), scene.member("c")
    a.join()
    revoke_tasks(scene, a, c)
    assert a.join().epoch_and_tasks == (3, {"0": [0, 1]})
    assert c.beat().epoch_and_tasks == (3, {"0": [2, 3]})


def test_scenario_018_a_stable_member_may_report_fewer_tasks(scene: Scene) -> None:
    a = scene.member("a")
    a.join()
    assert a.beat({"0": [1]}).epoch_and_tasks == (2, scene.reported_again(ALL))
    assert a.beat({}).epoch_and_tasks == (2, scene.reported_again(ALL))
    assert a.assigned == (ALL, {})
    assert scene.state == ("Stable", 2, 2)


def test_scenario_019_members_may_have_no_process_id(scene: Scene) -> None:
    a, c = scene.member("a", process_id=None), scene.member("c", process_id=None)
    a.join()
    c.join()
    assert [a.described().process_id, c.described().process_id] == ["", ""]


def test_scenario_020_standby_tasks_that_are_configured_later_are_assigned(scene: Scene) -> None:
    with_a_store(scene)
    members = [scene.member(name, process_id=process) for name, process in zip("abcd", "PPQQ", strict=True)]
    members[0].join()
    members[0].beat_for_tasks()
    for each in members[1:]:
        each.join()
    while scene.state[0] != "Stable":
        for each in members:
            each.beat(*each.assigned)
    _, epoch, _ = scene.state
    owned = {each.name: each.assigned[0] for each in members}
    scene.configure(num_standby_replicas=1)
    latest_reply = members[0].beat_until(lambda reply: reply.standby is not None)
    assert latest_reply.epoch == epoch + 1
    assert latest_reply.standby is not None
    assert sum(map(len, latest_reply.standby.values())) == 1
    assert latest_reply.active == owned["a"]
    for each in members[1:]:
        each.beat()
    assert {each.name: each.assigned[0] for each in members} == owned
    for process in "PQ":
        of_process = [each for each in members if each.described().process_id == process]
        active = [index for each in of_process for index in (each.assigned[0] or {})["0"]]
        standby = [index for each in of_process for index in (each.assigned[1] or {})["0"]]
        assert sorted(active + standby) == [0, 1, 2, 3]


def test_scenario_021_an_active_task_becomes_a_standby_in_one_answer(scene: Scene) -> None:
    with_a_store(scene)
    scene.configure(num_standby_replicas=1)
    a, c = scene.member("a"), scene.member("c")
    a.join()
    # Kafka may apply the new setting and the changelog topic in one group epoch or in two.
    alone, *tasks = a.beat_for_tasks().roles
    assert tasks == [ALL, {}]
    assert c.join().roles == (alone + 1, {}, {"0": [0, 1]})
    assert a.beat().roles == (alone, {"0": [0, 1]}, {"0": [2, 3]})
    assert a.beat({"0": [0, 1]}, {"0": [2, 3]}).epoch_and_tasks == (alone + 1, None)
    assert c.beat().roles == (alone + 1, {"0": [2, 3]}, {"0": [0, 1]})
    assert scene.state[0] == "Stable"


def test_a_standby_task_becomes_active_in_place_when_its_active_task_is_free(scene: Scene) -> None:
    """A standby task whose active task is free becomes active without being revoked. Kafka 4.3.1 revokes the standby
    task first, so the client closes the task's store."""
    with_a_store(scene)
    scene.configure(num_standby_replicas=1)
    a, c = scene.member("a"), scene.member("c")
    a.join()
    a.beat_for_tasks()
    c.join()
    a.beat()
    a.beat({"0": [0, 1]}, {"0": [2, 3]})
    assert c.beat().roles[1:] == ({"0": [2, 3]}, {"0": [0, 1]})
    c.beat({"0": [2, 3]}, {"0": [0, 1]})
    a.leave()
    assert c.beat().roles[1:] == (ALL, {})


def test_scenario_123_no_process_has_a_task_in_two_roles(scene: Scene) -> None:
    with_a_store(scene)
    scene.configure(num_standby_replicas=1)
    a, q, c = scene.member("a", process_id="P"), scene.member("q", process_id="Q"), scene.member("c", process_id="P")
    a.join()
    a.beat_for_tasks()
    q.join()
    a.beat()
    a.beat(*a.assigned)
    assert q.beat().active is not None
    assert scene.state[0] == "Stable"
    c.join()
    for each in (a, q, c) * 4:
        each.beat(*each.assigned)
        of_p = [index for member in (a, c) for role in member.assigned for index in (role or {}).get("0", [])]
        assert len(of_p) == len(set(of_p))
    assert scene.state[0] == "Stable"
    assert sum(len((each.assigned[0] or {})["0"]) for each in (a, q, c)) == 4
    assert (c.assigned[0] or {}) != {}


def test_scenario_124_standby_tasks_are_given_up_like_active_ones(scene: Scene) -> None:
    with_a_store(scene)
    scene.configure(num_standby_replicas=1)
    a, c = scene.member("a"), scene.member("c")
    a.join()
    alone = a.beat_for_tasks().epoch
    c.join()
    a.beat()
    a.beat({"0": [0, 1]}, {"0": [2, 3]})
    c.beat()
    scene.configure(num_standby_replicas=0)
    without = a.beat_until(lambda reply: reply.standby == {})
    assert without.roles == (alone + 1, {"0": [0, 1]}, {})
    assert a.beat({"0": [0, 1]}).epoch_and_tasks == (alone + 2, None)


def test_scenario_022_the_last_member_leaves_and_comes_again(scene: Scene) -> None:
    a, c = with_two_members(scene)
    c.leave()
    a.leave()
    assert scene.state == ("Empty", 5, 5)
    assert a.join().epoch_and_tasks == (6, ALL)


def test_scenario_125_the_target_may_change_while_tasks_are_revoked(scene: Scene) -> None:
    scene.topology = topology(subtopology("0", ["i7"]))
    a, c, d = scene.member("a"), scene.member("c"), scene.member("d")
    a.join()
    c.join()
    assert a.beat().epoch_and_tasks == (2, {"0": [0, 1, 2, 3]})
    d.join()
    assert a.beat({"0": [0, 1, 2, 3]}).epoch_and_tasks == (3, {"0": [0, 1, 2]})
    assert a.beat({"0": [0, 1, 2]}).epoch_and_tasks == (4, None)


def test_scenario_126_a_list_may_name_a_subtopology_twice(scene: Scene) -> None:
    a, c = scene.member("a"), scene.member("c")
    a.join()
    revoke_tasks(scene, a, c)
    twice = [TaskIds(subtopology_id="0", partitions=[0]), TaskIds(subtopology_id="0", partitions=[1])]
    reply = a.beat(active_tasks=twice, standby_tasks=[], warmup_tasks=[])
    if scene.is_kafka:
        assert reply.code is ErrorCode.UNKNOWN_SERVER_ERROR
    else:  # Odradek merges the entries.
        assert reply.epoch_and_tasks == (3, None)


@pytest.mark.parametrize("leaver", ["a", "b", "c", "d"])
def test_the_tasks_of_a_member_that_left_go_to_the_others(scene: Scene, leaver: str) -> None:
    scene.topology = topology(subtopology("0", ["i7"]))
    members = {name: scene.member(name) for name in "abcd"}
    for each in members.values():
        each.join()
        settle(scene, [one for one in members.values() if one.epoch])
    members.pop(leaver).leave()
    settle(scene, list(members.values()))
    owned = sorted(index for each in members.values() for index in (each.assigned[0] or {}).get("0", []))
    assert owned == list(range(7))


def settle(scene: Scene, members: list[Member]) -> None:
    """Makes the members report their assigned tasks in turn until the group is stable."""
    for _ in range(10):
        for each in members:
            each.beat(*each.assigned)
        if scene.state[0] == "Stable":
            return
    raise AssertionError(scene.state)
