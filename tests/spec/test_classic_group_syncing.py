"""Tests that SyncGroup gives each member of a generation its assignment, and that Heartbeat keeps a member in its
classic group."""

import pytest

from odradek.broker.groups.common.outcome import GroupConfig
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.support.group_scene import GROUP, Scene, subscription


def generation_of(scene: Scene, *clients: str) -> tuple[str, ...]:
    """Makes members join without syncing. Returns their member ids, starting with the leader's."""
    replies = [scene.join(client=client) for client in clients]
    scene.advance(0)
    return tuple(each.answer.member_id for each in replies)


# --- The assignment.


def test_all_members_get_their_assignment_once_the_leader_has_synced() -> None:
    scene = Scene()
    leader, follower = generation_of(scene, "a", "b")
    waiting = scene.sync(follower, 1)
    assert waiting.is_parked
    decided = scene.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert (decided.code, decided.answer.assignment) == (ErrorCode.NONE, b"L")
    assert (waiting.code, waiting.answer.assignment) == (ErrorCode.NONE, b"F")
    assert (decided.answer.protocol_type, decided.answer.protocol_name) == ("consumer", "range")
    assert scene.groups() == {GROUP: "Stable"}


def test_a_sync_after_the_assignment_is_answered_at_once() -> None:
    scene = Scene()
    leader, follower = generation_of(scene, "a", "b")
    scene.sync(leader, 1, {follower: b"F"})
    assert scene.sync(follower, 1).answer.assignment == b"F"
    assert scene.sync(leader, 1).answer.assignment == b""  # The leader assigned nothing to itself.


def test_the_assignment_is_recorded_before_anybody_learns_it() -> None:
    scene = Scene()
    leader, follower = generation_of(scene, "a", "b")
    waiting = scene.sync(follower, 1)
    scene.writes_fail = True
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        scene.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert waiting.is_parked
    assert scene.groups() == {GROUP: "CompletingRebalance"}
    scene.writes_fail = False
    again = scene.join(leader)  # A leader joins again after it has looked up its coordinator.
    assert again.answer.generation_id == 1
    scene.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert waiting.answer.assignment == b"F"


def test_a_rebalance_ends_the_wait_for_the_old_assignment() -> None:
    scene = Scene()
    _, follower = generation_of(scene, "a", "b")
    waiting = scene.sync(follower, 1)
    scene.join(client="c")
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_sync_that_is_repeated_over_another_connection_releases_the_first() -> None:
    scene = Scene()
    leader, follower = generation_of(scene, "a", "b")
    lost = scene.sync(follower, 1)
    again = scene.sync(follower, 1)
    assert lost.code is ErrorCode.REBALANCE_IN_PROGRESS
    scene.sync(leader, 1, {follower: b"F"})
    assert again.answer.assignment == b"F"


def test_while_members_are_joining_there_is_nothing_to_sync() -> None:
    scene = Scene()
    leader, _ = scene.come("a", "b")
    scene.join(client="c")
    assert scene.sync(leader, 1).code is ErrorCode.REBALANCE_IN_PROGRESS


def test_unknown_members_and_groups_may_not_sync() -> None:
    scene = Scene()
    (member,) = scene.come("a")
    assert scene.sync(member, 1, group="nowhere").code is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.sync("nobody", 1).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.sync(member, 0).code is ErrorCode.ILLEGAL_GENERATION
    assert scene.sync(member, 2).code is ErrorCode.ILLEGAL_GENERATION
    assert scene.sync(member, 1, instance="i").code is ErrorCode.UNKNOWN_MEMBER_ID
    scene.leave(member)
    assert scene.sync(member, 2).code is ErrorCode.UNKNOWN_MEMBER_ID  # The group is empty.


def test_the_member_is_checked_before_its_generation_and_that_before_its_protocol() -> None:
    scene = Scene()
    (member,) = scene.come("a")
    assert scene.sync("nobody", 9, protocol_name="other").code is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.sync(member, 9, protocol_name="other").code is ErrorCode.ILLEGAL_GENERATION
    assert scene.sync(member, 1, protocol_name="other").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.sync(member, 1, protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.sync(member, 1, protocol_type="consumer", protocol_name="range").code is ErrorCode.NONE


# --- Members that never request their assignment.


def test_members_that_do_not_sync_within_the_rebalance_timeout_are_removed() -> None:
    scene = Scene()
    replies = [
        scene.join(client=client, session_timeout_ms=100_000, rebalance_timeout_ms=20_000) for client in ("a", "b")
    ]
    scene.advance(0)
    leader, follower = (each.answer.member_id for each in replies)
    scene.sync(leader, 1, {leader: b"L", follower: b"F"})
    scene.advance(20_000)
    assert scene.groups() == {GROUP: "PreparingRebalance"}
    assert [member.member_id for member in scene.describe().members] == [leader]


def test_a_leader_that_does_not_sync_is_removed_and_the_others_rejoin() -> None:
    scene = Scene()
    replies = [
        scene.join(client=client, session_timeout_ms=100_000, rebalance_timeout_ms=20_000) for client in ("a", "b")
    ]
    scene.advance(0)
    _, follower = (each.answer.member_id for each in replies)
    waiting = scene.sync(follower, 1)
    scene.advance(20_000)
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS
    again = scene.join(follower, session_timeout_ms=100_000)
    assert (again.answer.generation_id, again.answer.leader) == (2, follower)


def test_once_all_have_synced_nobody_is_waited_for() -> None:
    scene = Scene()
    scene.come("a", "b", session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
    scene.advance(20_000)
    assert scene.groups() == {GROUP: "Stable"}


# --- Heartbeats.


def test_a_heartbeat_keeps_a_member_in() -> None:
    scene = Scene()
    (member,) = scene.come("a", session_timeout_ms=10_000)
    for _ in range(5):
        scene.advance(9_999)
        assert scene.heartbeat(member, 1) is ErrorCode.NONE
    scene.advance(10_000)
    assert scene.heartbeat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.groups() == {GROUP: "Empty"}


def test_a_commit_keeps_a_member_in_as_a_heartbeat_does() -> None:
    scene = Scene()
    (member,) = scene.come("a", session_timeout_ms=10_000)
    scene.advance(9_999)
    assert scene.commit(1, member_id=member, generation=1) is ErrorCode.NONE
    scene.advance(9_999)
    assert scene.heartbeat(member, 1) is ErrorCode.NONE


def test_a_heartbeat_during_a_rebalance_says_so_and_still_counts() -> None:
    scene = Scene()
    leader, follower = scene.come("a", "b", session_timeout_ms=10_000)
    scene.join(leader, session_timeout_ms=10_000)
    scene.advance(9_999)
    assert scene.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    scene.advance(9_999)
    assert scene.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_heartbeat_while_the_assignment_is_awaited_succeeds() -> None:
    scene = Scene()
    (member,) = generation_of(scene, "a")
    assert scene.heartbeat(member, 1) is ErrorCode.NONE


def test_heartbeats_of_unknown_members_and_old_generations_are_refused() -> None:
    scene = Scene()
    (member,) = scene.come("a")
    assert scene.heartbeat(member, 1, group="nowhere") is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.heartbeat("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.heartbeat(member, 2) is ErrorCode.ILLEGAL_GENERATION
    assert scene.heartbeat(member, -1) is ErrorCode.ILLEGAL_GENERATION
    assert scene.heartbeat(member, 1, instance="i") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_with_a_waiting_join_need_not_send_heartbeats() -> None:
    scene = Scene(GroupConfig(group_initial_rebalance_delay_ms=0))
    leader, follower = scene.come("a", "b", session_timeout_ms=10_000, rebalance_timeout_ms=60_000)
    waiting = scene.join(leader, session_timeout_ms=10_000)
    for _ in range(5):
        scene.advance(9_999)
        scene.heartbeat(follower, 1)
    assert waiting.is_parked
    scene.join(follower, protocols={"range": subscription("t")})
    assert waiting.answer.generation_id == 2


def test_a_silent_member_makes_the_other_members_rejoin() -> None:
    scene = Scene()
    leader, follower = scene.come("a", "b", session_timeout_ms=10_000)
    scene.advance(5_000)
    scene.heartbeat(leader, 1)
    scene.advance(5_000)
    assert scene.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.join(leader).answer.generation_id == 2
    assert scene.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_that_ends_while_nothing_can_be_written_ends_as_soon_as_it_can() -> None:
    scene = Scene()
    (member,) = scene.come("a", session_timeout_ms=10_000)
    scene.writes_fail = True
    scene.advance(60_000)  # The session has expired, but the new generation of the empty group cannot be recorded.
    assert scene.groups() == {GROUP: "Stable"}
    scene.writes_fail = False
    scene.advance(1_000)
    assert scene.groups() == {GROUP: "Empty"}
    assert scene.heartbeat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID
