"""Tests streams group members that have a group instance id (docs/spec/streams-groups.md#s2-5, #s13-4)."""

from odradek.protocol.errors import ErrorCode
from tests.support.streams_scene import StreamsHeartbeatResult, StreamsScene, refused

E = ErrorCode
OK = E.NONE.value


def one_static() -> StreamsScene:
    scene = StreamsScene()
    scene.member("a1", instance="ia", process="P")
    return scene


def test_scenario_059_an_instance_id_has_one_holder() -> None:
    scene = one_static()
    assert scene.member("a2", instance="ia") == refused(E.UNRELEASED_INSTANCE_ID)
    assert scene.last_error == (
        "Static member a2 with instance id ia cannot join the group because the instance id is owned by a1 member."
    )
    assert scene.beat("a2", 2, instance="ia") == refused(E.FENCED_INSTANCE_ID)
    assert scene.last_error == "Static member a2 with instance id ia was fenced by member a1."
    assert scene.member("a1", instance="ia") == refused(E.UNRELEASED_INSTANCE_ID)
    assert scene.beat("a1", 2, instance="other") == refused(E.UNKNOWN_MEMBER_ID)
    assert scene.last_error == "Instance id other is unknown."
    assert scene.beat("a1", 2) == StreamsHeartbeatResult(OK, 2, None)


def test_scenario_060_a_static_member_that_leaves_temporarily_keeps_its_tasks() -> None:
    scene = one_static()
    since = len(scene.log)
    assert scene.beat("a1", -2, instance="ia") == StreamsHeartbeatResult(OK, -2, None)
    assert scene.keys_written(since) == [22]
    assert scene.beat("a1", -2, instance="ia") == StreamsHeartbeatResult(OK, -2, None)
    assert scene.state == ("Reconciling", 2, 2)
    assert scene.held("a1") == "0:0123"
    assert scene.beat("a1", 2, instance="ia") == refused(E.FENCED_MEMBER_EPOCH)


def test_scenario_061_a_successor_of_a_static_member_takes_over() -> None:
    scene = one_static()
    scene.beat("a1", -2, instance="ia")
    since = len(scene.log)
    assert scene.member("a2", instance="ia", process="P") == StreamsHeartbeatResult(OK, 2, "0:0123")
    assert scene.keys_written(since) == [-22, -21, -19, 19, 21, 22, 22]
    assert scene.state == ("Stable", 2, 2)
    assert scene.beat("a1", 2, instance="ia") == refused(E.FENCED_INSTANCE_ID)
    assert scene.beat("a1", 2) == refused(E.UNKNOWN_MEMBER_ID)


def test_scenario_062_a_successor_in_another_process_causes_a_rebalance() -> None:
    scene = one_static()
    scene.beat("a1", -2, instance="ia")
    assert scene.member("a2", instance="ia", process="Q") == StreamsHeartbeatResult(OK, 3, "0:0123")
    assert scene.state == ("Stable", 3, 3)


def test_scenario_063_a_static_member_may_leave_permanently() -> None:
    scene = one_static()
    assert scene.beat("a1", -1, instance="ia") == StreamsHeartbeatResult(OK, -1, None)
    assert scene.state[0] == "Empty"


def test_only_fields_of_a_static_member_that_affect_the_assignment_raise_the_epoch() -> None:
    scene = one_static()
    assert scene.beat("a1", instance="ia", timeout_ms=5).epoch == 2
    assert scene.beat("a1", instance="ia", endpoint=("h", 1)).epoch == 2
    assert scene.beat("a1", instance="ia", rack="r").epoch == 3
    assert scene.beat("a1", instance="ia", tags={"k": "v"}).epoch == 4
    assert scene.beat("a1", instance="ia", process="Q").epoch == 5


def test_tasks_that_a_static_member_must_revoke_are_free_when_it_leaves_temporarily() -> None:
    scene = one_static()
    scene.member("c")
    scene.beat("a1", instance="ia")
    assert scene.beat("c") == StreamsHeartbeatResult(OK, 3, None)
    scene.beat("a1", -2, instance="ia")
    assert scene.beat("c") == StreamsHeartbeatResult(OK, 3, "0:23")
    assert scene.held("a1") == "0:01"


def test_scenario_064_a_dynamic_member_becomes_static_and_keeps_its_tasks() -> None:
    scene = StreamsScene()
    scene.member("d")
    assert scene.member("d", instance="id").tasks == "0:0123"
    assert scene.member_of("d").instance_id == "id"


def test_scenario_065_the_session_of_a_member_that_is_away_ends() -> None:
    scene = one_static()
    scene.beat("a1", -2, instance="ia")
    scene.advance(45_000)
    assert scene.state[0] == "Empty"


def test_instance_ids_survive_a_restart() -> None:
    scene = one_static()
    scene.beat("a1", -2, instance="ia")
    scene.restart()
    assert scene.member("a2", instance="ia", process="P") == StreamsHeartbeatResult(OK, 2, "0:0123")
