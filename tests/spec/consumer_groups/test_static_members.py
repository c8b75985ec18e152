"""Tests consumer group members that have a group instance id (docs/spec/consumer-groups.md#s15-3)."""

from odradek.protocol.errors import ErrorCode
from tests.support.consumer_scene import ConsumerScene, HeartbeatResult, refused

E = ErrorCode
OK = E.NONE.value


def one_static() -> ConsumerScene:
    scene = ConsumerScene()
    scene.member("A", "T3", instance="ia")
    return scene


def test_scenario_042_an_instance_id_has_one_holder() -> None:
    scene = one_static()
    assert scene.member("C", "T3", instance="ia") == refused(E.UNRELEASED_INSTANCE_ID)
    assert scene.last_error == (
        "Static member C with instance id ia cannot join the group because the instance id is owned by A member."
    )
    assert scene.beat("A") == HeartbeatResult(OK, 2, None)


def test_scenario_043_a_restarted_static_member_keeps_its_partitions() -> None:
    scene = one_static()
    assert scene.beat("A", -2, instance="ia") == HeartbeatResult(OK, -2, None)
    assert scene.beat("A", 2) == refused(E.FENCED_MEMBER_EPOCH)
    assert scene.beat("A", -2, instance="ia") == HeartbeatResult(OK, -2, None)
    assert scene.state == ("Reconciling", 2, 2)
    assert scene.held("A") == "T3 012"
    assert scene.member_of("A").member_epoch == -2


def test_scenario_044_its_successor_takes_over_and_the_old_process_is_fenced() -> None:
    scene = ConsumerScene()
    scene.member("A", "T3", instance="ia")
    scene.beat("A", -2, instance="ia")
    assert scene.member("B2", "T6") == HeartbeatResult(OK, 3, "T6 012345")
    since = len(scene.log)
    assert scene.member("C", "T3", instance="ia") == HeartbeatResult(OK, 3, "T3 012")
    assert scene.keys_written(since) == [-8, -7, -5, 5, 7, 8, 8]
    assert scene.state[1] == 3
    assert scene.beat("A", 2) == refused(E.UNKNOWN_MEMBER_ID)
    assert scene.beat("A", 2, instance="ia") == refused(E.FENCED_INSTANCE_ID)
    assert scene.beat("A", -1, instance="ia") == refused(E.FENCED_INSTANCE_ID)


def test_scenario_045_the_same_member_comes_back() -> None:
    scene = one_static()
    scene.beat("A", -2, instance="ia")
    assert scene.member("A", "T3", instance="ia") == HeartbeatResult(OK, 2, "T3 012")
    assert scene.state == ("Stable", 2, 2)


def test_scenario_046_a_successor_with_another_subscription_causes_a_rebalance() -> None:
    scene = one_static()
    scene.beat("A", -2, instance="ia")
    assert scene.member("N", "T6", instance="ia") == HeartbeatResult(OK, 3, "T6 012345")
    assert scene.state == ("Stable", 3, 3)


def test_scenario_047_a_static_member_that_stays_away_for_a_session_is_removed() -> None:
    scene = ConsumerScene()
    scene.cluster.defaults["consumer.session.timeout.ms"] = 2_000
    scene.member("S", "T3", instance="is")
    scene.beat("S", -2, instance="is")
    scene.advance(2_000)
    assert scene.state == ("Empty", 3, 3)
    assert scene.member("N", "T3", instance="is") == HeartbeatResult(OK, 4, "T3 012")


def test_scenario_048_a_dynamic_member_cannot_use_another_or_an_unknown_instance_id() -> None:
    scene = one_static()
    scene.member("X", "T3")
    assert scene.beat("X", -2, instance="nope") == refused(E.UNKNOWN_MEMBER_ID)
    assert scene.beat("X", -2, instance="ia") == refused(E.FENCED_INSTANCE_ID)
    assert scene.beat("X", instance="ia") == refused(E.FENCED_INSTANCE_ID)


def test_scenario_049_a_static_member_need_not_say_its_instance_id() -> None:
    scene = one_static()
    assert scene.beat("A") == HeartbeatResult(OK, 2, None)
    assert scene.beat("A", instance="nope") == refused(E.UNKNOWN_MEMBER_ID)


def test_scenario_050_a_dynamic_member_becomes_static_and_keeps_its_partitions() -> None:
    scene = ConsumerScene()
    scene.member("A", "T6")
    scene.member("B2", "T6")
    scene.settle("A", "B2")
    before = scene.state
    assert scene.member("B2", "T6", instance="newinst") == HeartbeatResult(OK, 3, "T6 345")
    assert scene.member_of("B2").instance_id == "newinst"
    assert scene.state == before


def test_a_static_member_that_takes_over_another_instance_id_releases_the_one_that_it_had() -> None:
    """C4: another member may use the released instance id (docs/spec/kafka-4.4.md#s5-1)."""
    scene = ConsumerScene()
    scene.member("A", "T3", instance="first")
    assert scene.member("A", "T3", instance="second").code == OK
    assert scene.member_of("A").instance_id == "second"
    assert scene.member("B", "T3", instance="first").code == OK
