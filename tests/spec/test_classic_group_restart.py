"""Tests that a classic group keeps its members, generation and offsets across a broker restart. Only members that were
waiting for a response must send their requests again."""

from odradek.broker.groups.common.outcome import GroupConfig
from odradek.protocol.errors import ErrorCode
from tests.support.group_scene import GROUP, Scene


def test_members_go_on_in_their_generation() -> None:
    scene = Scene()
    leader, follower = scene.come("a", "b")
    scene.commit(5, member_id=leader, generation=1)
    scene.restart()
    assert scene.groups() == {GROUP: "Stable"}
    assert scene.heartbeat(leader, 1) is ErrorCode.NONE
    assert scene.commit(6, member_id=follower, generation=1) is ErrorCode.NONE
    assert scene.sync(follower, 1).answer.assignment == follower.encode()


def test_the_description_is_the_same() -> None:
    scene = Scene()
    scene.come("a", "b")
    before = scene.describe()
    scene.restart()
    assert scene.describe() == before


def test_members_have_one_session_to_be_heard_of() -> None:
    scene = Scene()
    leader, follower = scene.come("a", "b", session_timeout_ms=10_000)
    scene.advance(9_000)
    scene.restart()
    scene.advance(9_999)
    assert scene.heartbeat(leader, 1) is ErrorCode.NONE
    scene.advance(1)
    assert scene.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_that_was_under_way_is_begun_by_its_members_again() -> None:
    scene = Scene()
    leader, follower = scene.come("a", "b")
    scene.join(client="c")
    scene.restart()
    # The last recorded generation is the current one. The new member was not recorded, so it must join again.
    assert scene.heartbeat(leader, 1) is ErrorCode.NONE
    newcomer = scene.join(client="c")
    again = [scene.join(leader), scene.join(follower)]
    assert newcomer.answer.generation_id == again[0].answer.generation_id == 2


def test_a_generation_whose_assignment_was_not_recorded_is_given_again() -> None:
    scene = Scene()
    (leader,) = scene.come("a")
    scene.join(client="b")
    scene.join(leader)  # Generation 2 starts, and both members learn of it.
    scene.restart()
    assert scene.heartbeat(leader, 2) is ErrorCode.ILLEGAL_GENERATION
    again = scene.join(leader)
    assert again.answer.generation_id == 2


def test_a_first_generation_that_was_not_recorded_leaves_an_empty_group() -> None:
    scene = Scene()
    reply = scene.join(client="a")
    scene.advance(0)
    scene.restart()
    assert scene.groups() == {GROUP: "Empty"}
    assert scene.sync(reply.answer.member_id, 1).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.join(reply.answer.member_id).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_id_that_was_given_and_not_used_is_lost() -> None:
    scene = Scene()
    reply = scene.join(version=4)
    scene.restart()
    assert scene.join(reply.answer.member_id, version=4).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_leader_leads_after_a_restart() -> None:
    scene = Scene()
    leader, follower = scene.come("a", "b")
    scene.restart()
    assert scene.join(follower).answer.leader == leader


def test_a_static_member_keeps_its_place() -> None:
    scene = Scene()
    (member,) = scene.come("a", instance="i")
    scene.restart()
    back = scene.join(instance="i")
    assert (back.code, back.answer.generation_id) == (ErrorCode.NONE, 1)
    assert scene.heartbeat(member, 1, instance="i") is ErrorCode.FENCED_INSTANCE_ID


def test_a_group_that_became_larger_than_is_now_allowed_is_rebalanced() -> None:
    scene = Scene()
    a, b, c = scene.come("a", "b", "c")
    scene.config = GroupConfig(group_initial_rebalance_delay_ms=0, group_max_size=2)
    scene.restart()
    assert scene.commit(1, member_id=c, generation=1) is ErrorCode.NONE
    assert scene.heartbeat(a, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert [scene.join(each).is_parked for each in (a, b)] == [True, True]
    assert scene.join(c).code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_waiting_members_get_not_coordinator_when_the_coordinator_unloads() -> None:
    scene = Scene()
    replies = [scene.join(client=each) for each in ("a", "b")]
    scene.advance(0)
    syncing = scene.sync(replies[1].answer.member_id, 1)
    joining = scene.join(client="c", group="other")
    for reply in scene.core.unload(ErrorCode.NOT_COORDINATOR):
        reply.token.resolve(reply.message)  # type: ignore[attr-defined]
    assert syncing.code is ErrorCode.NOT_COORDINATOR
    assert joining.code is ErrorCode.NOT_COORDINATOR
