"""Tests that JoinGroup admits members to a classic group, assigns member ids, and starts the next generation."""

import pytest

from odradek.broker.groups.common.group import TimerKind
from odradek.broker.groups.common.outcome import GroupConfig
from odradek.protocol.errors import ErrorCode
from tests.support.group_scene import GROUP, Scene, subscription

RANGE, STICKY = {"range": subscription("t")}, {"sticky": subscription("t")}


def timers(scene: Scene, kind: TimerKind) -> list[int]:
    """Returns the remaining time, in milliseconds, of each timer of the given kind."""
    return sorted(due - scene.now_ms for key, due in scene.due.items() if key.kind is kind)


def test_the_first_member_leads_and_gets_the_metadata_of_all_members() -> None:
    scene = Scene()
    a, b = scene.join(client="a"), scene.join(client="b")
    assert a.is_parked
    assert b.is_parked
    scene.advance(0)
    assert (a.code, a.answer.generation_id, a.answer.protocol_name) == (ErrorCode.NONE, 1, "range")
    assert a.answer.leader == b.answer.leader == a.answer.member_id
    assert [member.member_id for member in a.answer.members] == [a.answer.member_id, b.answer.member_id]
    assert all(member.metadata == subscription("t") for member in a.answer.members)
    assert b.answer.members == []


def test_a_member_id_is_the_client_id_with_a_unique_suffix() -> None:
    scene = Scene()
    first, second = scene.come("app", "app")
    assert first.startswith("app-")
    assert second.startswith("app-")
    assert first != second


# --- A member id is required (version 4 and later).


def test_from_version_4_on_a_dynamic_member_is_sent_back_with_a_member_id() -> None:
    scene = Scene()
    reply = scene.join(client="a", version=4)
    assert reply.code is ErrorCode.MEMBER_ID_REQUIRED
    assert scene.describe().members == []
    back = scene.join(reply.answer.member_id, version=4)
    scene.advance(0)
    assert back.answer.member_id == reply.answer.member_id
    assert back.answer.generation_id == 1


def test_a_static_member_needs_no_second_request() -> None:
    scene = Scene()
    reply = scene.join(instance="i", version=9)
    scene.advance(0)
    assert reply.code is ErrorCode.NONE


def test_a_member_id_that_nobody_was_given_is_unknown() -> None:
    scene = Scene()
    reply = scene.join("made-up")
    assert reply.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert reply.answer.member_id == "made-up"
    assert scene.groups() == {}


def test_a_member_id_that_is_not_used_in_time_is_forgotten() -> None:
    scene = Scene()
    reply = scene.join(version=4, session_timeout_ms=6_000)
    scene.advance(6_000)
    assert scene.join(reply.answer.member_id, version=4).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_a_client_that_has_received_a_member_id() -> None:
    scene = Scene()
    (leader,) = scene.come("a")
    newcomer = scene.join(client="b", version=4)
    rejoined = scene.join(leader)  # A leader that joins again starts a rebalance.
    assert rejoined.is_parked
    scene.join(newcomer.answer.member_id, version=4)
    assert rejoined.answer.generation_id == 2


def test_a_rebalance_waits_at_most_one_session_for_a_client_that_has_received_a_member_id() -> None:
    scene = Scene()
    (leader,) = scene.come("a")
    scene.join(client="b", version=4, session_timeout_ms=7_000)
    rejoined = scene.join(leader)
    scene.advance(7_000)
    assert rejoined.answer.generation_id == 2


# --- The initial rebalance is delayed, so that more members can join.


def delayed(delay_ms: int = 3_000) -> Scene:
    return Scene(GroupConfig(group_initial_rebalance_delay_ms=delay_ms))


def test_the_first_generation_waits_for_the_initial_delay_though_everybody_is_there() -> None:
    scene = delayed()
    reply = scene.join()
    scene.advance(2_999)
    assert reply.is_parked
    scene.advance(1)
    assert reply.answer.generation_id == 1


def test_a_newcomer_extends_the_initial_delay_up_to_the_rebalance_timeout() -> None:
    scene = delayed(3_000)
    first = scene.join(client="a", rebalance_timeout_ms=7_000)
    scene.advance(2_000)
    scene.join(client="b", rebalance_timeout_ms=7_000)
    scene.advance(1_000)
    assert timers(scene, TimerKind.JOIN) == [3_000]
    scene.join(client="c", rebalance_timeout_ms=7_000)
    scene.advance(3_000)
    assert timers(scene, TimerKind.JOIN) == [1_000]  # The delays add up to the rebalance timeout of 7,000 ms.
    scene.join(client="d", rebalance_timeout_ms=7_000)
    scene.advance(1_000)
    assert len(first.answer.members) == 4


def test_a_member_that_joins_during_the_initial_delay_extends_it() -> None:
    scene = delayed(3_000)
    a, b = scene.join(client="a"), scene.join(client="b")
    scene.advance(3_000)
    assert a.is_parked
    scene.advance(3_000)  # No member joined during the second delay.
    assert a.answer.generation_id == b.answer.generation_id == 1


def test_a_group_that_emptied_is_delayed_again() -> None:
    scene = delayed(3_000)
    first = scene.join(client="a")
    scene.advance(3_000)
    scene.leave(first.answer.member_id)
    again = scene.join(client="b")
    scene.advance(2_999)
    assert again.is_parked
    scene.advance(1)
    assert again.answer.generation_id == 3  # The group was at generation 2 when it was empty.


# --- Protocols.


def test_the_protocol_with_most_votes_wins_among_those_that_all_have() -> None:
    scene = Scene()
    both = {"sticky": b"s", "range": b"r"}
    a = scene.join(client="a", protocols={"range": b"r", "sticky": b"s", "own": b"o"})
    scene.join(client="b", protocols=both)
    scene.join(client="c", protocols=both)
    scene.advance(0)
    assert a.answer.protocol_name == "sticky"
    assert {member.metadata for member in a.answer.members} == {b"s"}


def test_a_member_without_a_common_protocol_is_refused() -> None:
    scene = Scene()
    scene.come("a", protocols=RANGE)
    reply = scene.join(client="b", protocols=STICKY)
    assert reply.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert reply.answer.member_id == ""


def test_a_member_of_another_protocol_type_is_refused() -> None:
    scene = Scene()
    scene.come("a")
    assert scene.join(protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_empty_group_asks_for_a_protocol_type_and_a_protocol() -> None:
    assert Scene().join(protocol_type="").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert Scene().join(protocols={}).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_emptied_group_may_change_its_protocol_type() -> None:
    scene = Scene()
    (member,) = scene.come("a")
    scene.leave(member)
    reply = scene.join(protocol_type="connect", protocols={"default": b""})
    scene.advance(0)
    assert reply.answer.protocol_type == "connect"


# --- Session timeouts and group sizes.


@pytest.mark.parametrize(
    ("session_timeout_ms", "accepted"), [(5_999, False), (6_000, True), (9_000, True), (9_001, False)]
)
def test_session_timeouts_have_bounds(session_timeout_ms: int, accepted: bool) -> None:
    scene = Scene(GroupConfig(group_max_session_timeout_ms=9_000))
    reply = scene.join("x", session_timeout_ms=session_timeout_ms)
    assert reply.code is (ErrorCode.UNKNOWN_MEMBER_ID if accepted else ErrorCode.INVALID_SESSION_TIMEOUT)
    assert reply.answer.member_id == "x"


def test_a_group_needs_a_name() -> None:
    assert Scene().join(group="", session_timeout_ms=1).code is ErrorCode.INVALID_GROUP_ID


def test_version_0_uses_the_session_timeout_as_the_rebalance_timeout() -> None:
    scene = Scene()
    a = scene.join(client="a", version=0, rebalance_timeout_ms=-1, session_timeout_ms=8_000)
    scene.advance(0)
    scene.settle([a.answer])
    scene.join(client="b", version=0, rebalance_timeout_ms=-1, session_timeout_ms=8_000)
    assert timers(scene, TimerKind.JOIN) == [8_000]


def test_a_full_group_accepts_no_new_members_but_its_own_may_rejoin() -> None:
    scene = Scene(GroupConfig(group_initial_rebalance_delay_ms=0, group_max_size=2))
    leader, _ = scene.come("a", "b")
    reply = scene.join(client="c")
    assert reply.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert reply.answer.member_id == ""
    assert scene.join(leader).is_parked


def test_in_a_rebalance_of_a_full_group_the_first_members_stay() -> None:
    scene = Scene(GroupConfig(group_initial_rebalance_delay_ms=0, group_max_size=2))
    leader, follower = scene.come("a", "b")
    scene.join(leader)
    newcomer = scene.join(client="c")
    assert newcomer.is_parked  # The follower has not joined again yet, so there is still room for one member.
    assert scene.join(follower).code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert follower not in {member.member_id for member in scene.describe().members}


def test_a_member_id_does_not_reserve_a_place_in_a_full_group() -> None:
    scene = Scene(GroupConfig(group_initial_rebalance_delay_ms=0, group_max_size=1))
    reply = scene.join(client="late", version=4)
    scene.come("a")
    late = scene.join(reply.answer.member_id, version=4)
    assert late.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    # The member id does not reserve a place for a second attempt either.
    assert scene.join(reply.answer.member_id, version=4).code is ErrorCode.GROUP_MAX_SIZE_REACHED


# --- Rebalances.


def test_a_newcomer_makes_the_others_join_again_and_all_are_waited_for() -> None:
    scene = Scene()
    leader, follower = scene.come("a", "b")
    newcomer = scene.join(client="c")
    assert scene.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = [scene.join(leader), scene.join(follower)]
    assert newcomer.answer.generation_id == again[0].answer.generation_id == 2
    assert again[0].answer.leader == leader
    assert len(again[0].answer.members) == 3


def test_a_member_that_does_not_rejoin_within_the_rebalance_timeout_is_removed() -> None:
    scene = Scene()
    leader, follower = scene.come("a", "b", session_timeout_ms=30_000, rebalance_timeout_ms=20_000)
    again = scene.join(follower, protocols=STICKY | RANGE, session_timeout_ms=30_000, rebalance_timeout_ms=20_000)
    scene.advance(19_999)
    assert again.is_parked
    scene.advance(1)
    assert again.answer.leader == follower
    assert scene.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_most_patient_members_rebalance_timeout_counts() -> None:
    scene = Scene()
    scene.join(client="a", rebalance_timeout_ms=10_000)
    b = scene.join(client="b", rebalance_timeout_ms=40_000)
    scene.advance(0)
    scene.settle([b.answer])
    scene.join(client="c", rebalance_timeout_ms=20_000)
    assert timers(scene, TimerKind.JOIN) == [40_000]


def test_a_leader_that_joins_a_stable_group_again_begins_a_rebalance() -> None:
    scene = Scene()
    leader, follower = scene.come("a", "b")
    scene.join(leader)
    assert scene.groups() == {GROUP: "PreparingRebalance"}
    assert scene.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_that_joins_a_stable_group_again_stays_in_its_generation() -> None:
    scene = Scene()
    leader, follower = scene.come("a", "b")
    again = scene.join(follower)
    assert (again.answer.generation_id, again.answer.leader, again.answer.members) == (1, leader, [])
    assert scene.groups() == {GROUP: "Stable"}


def test_a_follower_with_other_protocols_begins_a_rebalance() -> None:
    scene = Scene()
    _, follower = scene.come("a", "b")
    scene.join(follower, protocols={"range": subscription("t", "u")})
    assert scene.groups() == {GROUP: "PreparingRebalance"}


def test_a_lost_answer_is_given_again_while_the_assignment_is_awaited() -> None:
    scene = Scene()
    a = scene.join(client="a")
    scene.advance(0)
    again = scene.join(a.answer.member_id)
    assert again.answer == a.answer


def test_a_join_that_is_repeated_over_another_connection_releases_the_first() -> None:
    scene = Scene()
    leader, _ = scene.come("a", "b")
    lost = scene.join(leader)
    again = scene.join(leader)
    assert lost.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert again.is_parked


def test_a_newcomer_has_more_time_than_a_session_to_wait_for_its_first_generation() -> None:
    """Checks that a new member may wait longer than its session timeout, because it cannot send heartbeats before its
    first generation starts."""
    scene = Scene()
    scene.come("a", session_timeout_ms=200_000, rebalance_timeout_ms=100_000)
    newcomer = scene.join(client="b", session_timeout_ms=6_000, rebalance_timeout_ms=100_000)
    scene.advance(99_999)
    assert newcomer.is_parked
    scene.advance(1)
    assert newcomer.answer.generation_id == 2


def test_a_group_is_recorded_when_somebody_first_asks_for_it() -> None:
    scene = Scene()
    scene.join(client="a", version=4)
    assert len(scene.log) == 1
    scene.restart()
    assert scene.groups() == {GROUP: "Empty"}


def test_a_join_that_cannot_be_recorded_leaves_no_group_behind() -> None:
    scene = Scene()
    scene.writes_fail = True
    with pytest.raises(Exception, match="NOT_COORDINATOR"):
        scene.join(client="a")
    assert scene.groups() == {}
    assert scene.due == {}
