"""Tests static members and timeouts in streams groups: docs/spec/streams-groups.md#s13-4."""

import time

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.streams_group_heartbeat_request import Endpoint, KeyValue
from tests.conformance.streams_scene import (
    ALL,
    DELAYED,
    NOTHING,
    Member,
    Scene,
    revoke_tasks,
    with_two_members,
)
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

INITIAL_DELAY = "Assignment delayed due to the configured initial rebalance delay."


def static(scene: Scene, name: str, instance: str = "ia", process: str = "P") -> Member:
    return scene.member(name, instance_id=instance, process_id=process)


def on_leave(scene: Scene) -> Member:
    """Returns the static member a1, which has left temporarily. The group also has a member c and is stable at epoch
    3."""
    a, c = static(scene, "a1"), scene.member("c")
    a.join()
    revoke_tasks(scene, a, c)
    a.beat({"0": [0, 1]})
    c.beat()
    left = a.leave(-2, instance_id="ia")
    assert left.epoch_and_tasks == (-2, None)
    assert left.response.heartbeat_interval_ms == 0
    return a


def test_scenario_059_an_instance_id_has_one_member(scene: Scene) -> None:
    a1, a2 = static(scene, "a1"), static(scene, "a2")
    a1.join()
    owned = "Static member a2 with instance id ia cannot join the group because the instance id is owned by a1 member."
    assert a2.join().refused == (ErrorCode.UNRELEASED_INSTANCE_ID, owned)
    assert a2.beat(member_epoch=2, instance_id="ia").refused == (
        ErrorCode.FENCED_INSTANCE_ID,
        "Static member a2 with instance id ia was fenced by member a1.",
    )
    assert a1.join().code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert a1.beat(member_epoch=2, instance_id="q").refused == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        "Instance id q is unknown.",
    )
    assert a1.beat(member_epoch=2).epoch_and_tasks == (2, None)


def test_scenario_060_a_static_member_leaves_temporarily(scene: Scene) -> None:
    a = on_leave(scene)
    assert scene.state == ("Reconciling", 3, 3)
    assert (a.described().member_epoch, a.assigned, a.target) == (-2, ({"0": [0, 1]}, {}), {"0": [0, 1]})
    assert a.leave(-2, instance_id="ia").epoch_and_tasks == (-2, None)
    assert a.beat(member_epoch=3, instance_id="ia").refused == (
        ErrorCode.FENCED_MEMBER_EPOCH,
        (
            "The streams group member has a greater member epoch (3) than the one known by the group coordinator (-2). "
            "The member must abandon all its partitions and rejoin."
        ),
    )


def test_scenario_061_a_successor_of_a_static_member_takes_over(scene: Scene) -> None:
    a1 = on_leave(scene)
    a2 = static(scene, "a2")
    assert a2.join().epoch_and_tasks == (3, {"0": [0, 1]})
    assert scene.state == ("Stable", 3, 3)
    assert a1.beat(member_epoch=3, instance_id="ia").code is ErrorCode.FENCED_INSTANCE_ID
    assert a1.beat(member_epoch=3).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_scenarios_062_and_063_a_successor_in_another_process_raises_the_epoch(scene: Scene) -> None:
    on_leave(scene)
    a2 = static(scene, "a2")
    a2.join()
    a2.leave(-2, instance_id="ia")
    a3 = static(scene, "a3", process="another")
    assert a3.join().epoch_and_tasks == (4, {"0": [0, 1]})
    assert a3.leave(-1, instance_id="ia").epoch_and_tasks == (-1, None)
    assert [each.member_id for each in scene.described().members] == ["c"]


def test_scenario_131_few_fields_of_a_static_member_raise_the_epoch(scene: Scene) -> None:
    a = static(scene, "a")
    a.join()
    assert a.beat(instance_id="ia", rebalance_timeout_ms=1234).epoch == 2
    assert a.beat(instance_id="ia", user_endpoint=Endpoint(host="h", port=1)).epoch == 2
    endpoint = a.described().user_endpoint
    assert endpoint is not None
    assert endpoint.port == 1
    assert a.beat(instance_id="ia", rack_id="r").epoch == 3
    assert a.beat(instance_id="ia", client_tags=[KeyValue(key="k", value="v")]).epoch == 4
    assert a.beat(instance_id="ia", process_id="another").epoch == 5


def test_scenario_131_a_heartbeat_without_the_instance_id_counts_as_dynamic(scene: Scene) -> None:
    a = static(scene, "a")
    a.join()
    assert a.beat(rebalance_timeout_ms=1234).epoch == 3
    assert a.described().instance_id == "ia"


def test_scenario_132_tasks_that_a_static_member_must_revoke_are_free_when_it_leaves_temporarily(
    scene: Scene,
) -> None:
    a, c = static(scene, "a"), scene.member("c")
    a.join()
    revoke_tasks(scene, a, c)
    assert c.beat().active is None
    assert a.leave(-2, instance_id="ia").epoch_and_tasks == (-2, None)
    assert c.beat().epoch_and_tasks == (3, {"0": [2, 3]})
    assert a.assigned == ({"0": [0, 1]}, {})


def test_scenario_064_a_member_becomes_static_and_keeps_its_tasks(scene: Scene) -> None:
    a, _ = with_two_members(scene)
    joined = a.join(instance_id="new")
    assert joined.active == {"0": [0, 1]}
    assert a.described().instance_id == "new"


def test_scenario_065_a_static_member_that_does_not_come_back_is_removed(scene: Scene) -> None:
    scene.configure(session_timeout_ms=1500)
    a = static(scene, "a")
    a.join()
    a.leave(-2, instance_id="ia")
    assert scene.wait_for_state("Empty") == ("Empty", 3, 3)


def test_scenario_066_a_silent_member_is_removed(scene: Scene) -> None:
    scene.configure(session_timeout_ms=1500)
    a, c = with_two_members(scene)
    assert c.beat_for_tasks().epoch_and_tasks == (4, ALL)
    assert a.beat().code is ErrorCode.UNKNOWN_MEMBER_ID


def test_scenario_067_a_member_that_does_not_give_up_its_tasks_is_removed(scene: Scene) -> None:
    a, c = scene.member("a", rebalance_timeout_ms=600), scene.member("c")
    a.join()
    revoke_tasks(scene, a, c)
    reported_at = time.monotonic()
    removed = a.beat_until(lambda reply: reply.code is not ErrorCode.NONE, active=ALL)
    assert removed.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert time.monotonic() - reported_at >= 0.5
    assert c.beat_for_tasks().epoch_and_tasks == (4, ALL)


def test_scenarios_068_and_069_and_070_the_first_members_wait_for_one_another(scene: Scene) -> None:
    scene.configure(initial_rebalance_delay_ms=1000)
    a, c = scene.member("a"), scene.member("c")
    first = a.join()
    assert (first.epoch_and_tasks, first.statuses, first.details) == ((1, NOTHING), [DELAYED], [INITIAL_DELAY])
    second = c.join()
    assert (second.epoch_and_tasks, second.statuses, second.details) == ((1, NOTHING), [DELAYED], [INITIAL_DELAY])
    assert a.beat().statuses == [DELAYED]
    assert scene.state[0] == "Assigning"
    _state, epoch, assignment_epoch = scene.wait_for_state("Reconciling")  # This happens without a heartbeat.
    assert epoch == assignment_epoch == 3
    tasks = [a.beat().active, c.beat().active]
    assert sorted(index for each in tasks for index in (each or {})["0"]) == [0, 1, 2, 3]
    assert [len((each or {})["0"]) for each in tasks] == [2, 2]
    a.leave()
    c.leave()
    again = a.join()
    assert (again.epoch_and_tasks, again.statuses, again.details) == ((5, NOTHING), [DELAYED], [INITIAL_DELAY])


def test_scenario_071_a_timer_that_finds_the_group_empty_does_nothing(scene: Scene) -> None:
    scene.configure(initial_rebalance_delay_ms=300)
    a = scene.member("a")
    a.join()
    a.leave()
    after = scene.state
    assert after[0] == "Empty"
    until_s = time.monotonic() + 0.5
    while time.monotonic() < until_s:
        assert scene.state == after
