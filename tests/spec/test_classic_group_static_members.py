"""Tests that a member restarting with the same instance id keeps its place in the group (static membership,
KIP-345)."""

import pytest

from odradek.protocol.errors import ErrorCode, KafkaError
from tests.support.group_scene import GROUP, Scene, subscription


def static_group(scene: Scene, *instances: str) -> list[str]:
    """Creates a stable group of static members. Returns the member ids, starting with the leader's."""
    replies = [scene.join(client=instance, instance=instance) for instance in instances]
    scene.advance(0)
    return scene.settle([each.answer for each in replies])


def test_a_member_that_comes_back_gets_a_new_member_id_and_no_rebalance_begins() -> None:
    scene = Scene()
    leader, old = static_group(scene, "a", "b")
    back = scene.join(instance="b")
    new = back.answer.member_id
    assert (back.code, back.answer.generation_id, back.answer.leader) == (ErrorCode.NONE, 1, leader)
    assert new != old
    assert scene.groups() == {GROUP: "Stable"}
    assert scene.heartbeat(leader, 1) is ErrorCode.NONE
    assert scene.sync(new, 1, instance="b").answer.assignment == old.encode()


def test_the_old_member_id_is_fenced() -> None:
    scene = Scene()
    _, old = static_group(scene, "a", "b")
    scene.join(instance="b")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert scene.heartbeat(old, 1, instance="b") is fenced
    assert scene.sync(old, 1, instance="b").code is fenced
    assert scene.join(old, instance="b").code is fenced
    assert scene.commit(1, member_id=old, generation=1, instance="b") is fenced
    # Without the instance id, the old member id is unknown.
    assert scene.heartbeat(old, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_id_without_a_member_is_unknown() -> None:
    scene = Scene()
    static_group(scene, "a")
    assert scene.heartbeat("x", 1, instance="other") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_join_that_waits_under_the_old_member_id_is_fenced() -> None:
    scene = Scene()
    leader, _ = static_group(scene, "a", "b")
    joining = scene.join(leader, instance="a")
    back = scene.join(instance="a")
    assert joining.code is ErrorCode.FENCED_INSTANCE_ID
    assert joining.answer.member_id == leader
    assert back.is_parked


def test_a_sync_that_waits_under_the_old_member_id_is_fenced() -> None:
    scene = Scene()
    replies = [scene.join(client=each, instance=each) for each in ("a", "b")]
    scene.advance(0)
    waiting = scene.sync(replies[1].answer.member_id, 1, instance="b")
    back = scene.join(instance="b")
    assert waiting.code is ErrorCode.FENCED_INSTANCE_ID
    assert back.is_parked  # The group has no assignment yet, so all members join again.
    assert scene.groups() == {GROUP: "PreparingRebalance"}


def test_a_leader_that_comes_back_leads_and_need_not_assign_anew() -> None:
    scene = Scene()
    static_group(scene, "a", "b")
    back = scene.join(instance="a", version=9)
    assert back.answer.skip_assignment
    assert back.answer.leader == back.answer.member_id
    assert {member.group_instance_id for member in back.answer.members} == {"a", "b"}


def test_an_older_leader_that_comes_back_rejoins_as_a_follower() -> None:
    """Checks that the former leader rejoins as a follower. As the leader, it would compute an assignment that the group
    does not wait for."""
    scene = Scene()
    old, _ = static_group(scene, "a", "b")
    back = scene.join(instance="a", version=8)
    assert (back.answer.leader, back.answer.members, back.answer.skip_assignment) == (old, [], False)
    assert scene.describe().members[0].member_id == back.answer.member_id


def test_a_follower_that_comes_back_does_not_lead() -> None:
    scene = Scene()
    leader, _ = static_group(scene, "a", "b")
    back = scene.join(instance="b", version=9)
    assert (back.answer.leader, back.answer.members, back.answer.skip_assignment) == (leader, [], False)


def test_a_member_that_comes_back_with_another_subscription_but_the_same_protocol_begins_no_rebalance() -> None:
    scene = Scene()
    static_group(scene, "a", "b")
    scene.join(instance="b", protocols={"range": subscription("t", "u")})
    assert scene.groups() == {GROUP: "Stable"}


def test_a_member_that_comes_back_and_changes_the_chosen_protocol_begins_a_rebalance() -> None:
    scene = Scene()
    both = {"range": subscription("t"), "sticky": subscription("t")}
    reply = scene.join(instance="a", protocols=both)
    scene.advance(0)
    scene.settle([reply.answer])
    back = scene.join(instance="a", protocols={"sticky": subscription("t")})
    assert back.answer.generation_id == 2  # It is the only member, so the rebalance completes immediately.
    assert back.answer.protocol_name == "sticky"


def test_the_new_member_id_survives_a_restart_of_the_broker() -> None:
    scene = Scene()
    static_group(scene, "a", "b")
    back = scene.join(instance="b")
    scene.restart()
    assert scene.heartbeat(back.answer.member_id, 1, instance="b") is ErrorCode.NONE


def test_a_return_that_cannot_be_recorded_has_not_happened() -> None:
    scene = Scene()
    _, old = static_group(scene, "a", "b")
    scene.writes_fail = True
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        scene.join(instance="b")
    assert scene.heartbeat(old, 1, instance="b") is ErrorCode.NONE


def test_a_rebalance_waits_for_static_members_until_their_session_ends() -> None:
    scene = Scene()
    replies = [
        scene.join(client=each, instance=each, session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
        for each in ("a", "b")
    ]
    scene.advance(0)
    leader, follower = scene.settle([each.answer for each in replies])
    again = scene.join(leader, instance="a", session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
    scene.advance(20_000)
    # A static member that did not join in time is still a member and keeps its part of the assignment.
    assert again.answer.generation_id == 2
    assert {member.member_id for member in again.answer.members} == {leader, follower}


def test_with_only_absent_static_members_the_join_phase_goes_on() -> None:
    scene = Scene()
    replies = [
        scene.join(client=each, instance=each, session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
        for each in ("a", "b")
    ]
    scene.advance(0)
    scene.settle([each.answer for each in replies])
    newcomer = scene.join(client="c", session_timeout_ms=100_000)
    scene.leave(scene.describe().members[-1].member_id)
    assert newcomer.code is ErrorCode.UNKNOWN_MEMBER_ID
    scene.advance(60_000)
    assert scene.groups() == {GROUP: "PreparingRebalance"}
    back = scene.join(instance="a")
    assert back.is_parked


def test_a_static_member_that_joins_with_its_member_id_is_treated_like_a_dynamic_one() -> None:
    scene = Scene()
    leader, follower = static_group(scene, "a", "b")
    assert scene.join(follower, instance="b").answer.generation_id == 1
    assert scene.join(leader, instance="a").is_parked


def test_a_static_member_may_commit_without_naming_its_instance() -> None:
    scene = Scene()
    (member,) = static_group(scene, "a")
    assert scene.commit(1, member_id=member, generation=1) is ErrorCode.NONE
