"""Tests that LeaveGroup removes members from a classic group. A request can remove several members, and may come from a
member or from an administrator."""

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.leave_group_request import MemberIdentity
from tests.support.group_scene import GROUP, Scene


def test_the_last_to_leave_leaves_an_empty_group_of_the_next_generation() -> None:
    scene = Scene()
    (member,) = scene.come("a")
    assert scene.leave(member) == [ErrorCode.NONE]
    assert scene.groups() == {GROUP: "Empty"}
    scene.restart()
    described = scene.describe()
    assert (described.group_state, described.protocol_type, described.members) == ("Empty", "consumer", [])
    again = scene.join()
    scene.advance(0)
    assert again.answer.generation_id == 3


def test_when_the_leader_leaves_another_member_leads() -> None:
    scene = Scene()
    leader, follower = scene.come("a", "b")
    scene.leave(leader)
    again = scene.join(follower)
    assert (again.answer.generation_id, again.answer.leader) == (2, follower)


def test_a_member_that_has_left_is_unknown() -> None:
    scene = Scene()
    (member, _) = scene.come("a", "b")
    scene.leave(member)
    assert scene.heartbeat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.leave(member) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_rebalance_does_not_wait_for_a_member_that_leaves() -> None:
    scene = Scene()
    leader, follower = scene.come("a", "b")
    waiting = scene.join(leader)
    scene.leave(follower)
    assert waiting.answer.generation_id == 2


def test_several_leave_in_one_request_and_there_is_one_rebalance() -> None:
    scene = Scene()
    a, b, c = scene.come("a", "b", "c")
    codes = scene.leave(a, "nobody", b)
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert scene.join(c).answer.generation_id == 2


def test_nobody_known_leaving_changes_nothing() -> None:
    scene = Scene()
    scene.come("a")
    assert scene.leave("nobody", "") == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert scene.groups() == {GROUP: "Stable"}


def test_an_unknown_group_answers_for_each_member() -> None:
    assert Scene().leave("a", "b", group="nowhere") == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_a_member_that_only_has_a_member_id_can_leave() -> None:
    scene = Scene()
    reply = scene.join(version=4)
    assert scene.leave(reply.answer.member_id) == [ErrorCode.NONE]
    assert scene.join(reply.answer.member_id, version=4).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_is_sent_away_by_its_instance_id_alone() -> None:
    scene = Scene()
    scene.come("a", instance="i")
    by_instance = MemberIdentity(member_id="", group_instance_id="i")
    assert scene.leave(by_instance) == [ErrorCode.NONE]
    assert scene.groups() == {GROUP: "Empty"}
    assert scene.leave(by_instance) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_static_member_that_was_replaced_cannot_leave_in_its_successors_name() -> None:
    scene = Scene()
    (old,) = scene.come("a", instance="i")
    scene.join(instance="i")
    assert scene.leave(MemberIdentity(member_id=old, group_instance_id="i")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert scene.leave(MemberIdentity(member_id=old)) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_waiting_join_of_a_removed_member_gets_unknown_member_id() -> None:
    scene = Scene()
    leader, _ = scene.come("a", "b")
    joining = scene.join(leader)
    scene.leave(leader)
    assert joining.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_waiting_sync_of_a_removed_member_gets_unknown_member_id() -> None:
    scene = Scene()
    replies = [scene.join(client=client) for client in ("a", "b")]
    scene.advance(0)
    follower = replies[1].answer.member_id
    waiting = scene.sync(follower, 1)
    scene.leave(follower)
    assert waiting.code is ErrorCode.UNKNOWN_MEMBER_ID
