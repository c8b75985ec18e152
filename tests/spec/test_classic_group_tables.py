"""Tests that the tables of the classic group protocol are complete and lead only to permitted states."""

from collections.abc import Mapping

import pytest

from odradek.broker.groups.classic.tables import (
    DELETE_GROUP,
    HEARTBEAT,
    JOIN_BY_MEMBER,
    JOIN_BY_RETURNING_STATIC_MEMBER,
    NEXT,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    SYNC,
    TXN_OFFSET_COMMIT,
    GroupState,
    GroupVerdict,
    join_verdict,
    offset_commit_verdict,
)
from odradek.broker.groups.common.group import GroupType
from odradek.protocol.errors import ErrorCode

GRIDS = [JOIN_BY_MEMBER, SYNC, HEARTBEAT, OFFSET_COMMIT, TXN_OFFSET_COMMIT, OFFSET_DELETE, DELETE_GROUP]
WITH_MEMBERS = [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE, GroupState.STABLE]


@pytest.mark.parametrize("grid", [*GRIDS, NEXT])
def test_every_state_has_a_row(grid: Mapping[GroupState, object]) -> None:
    assert set(grid) == set(GroupState)


def test_a_static_member_can_return_wherever_there_are_members() -> None:
    assert set(JOIN_BY_RETURNING_STATIC_MEMBER) == set(WITH_MEMBERS)


def test_every_state_can_be_reached_from_empty_and_every_state_can_die() -> None:
    reached = {GroupState.EMPTY}
    for _ in GroupState:
        reached |= {following for state in reached for following in NEXT[state]}
    assert reached == set(GroupState)
    assert all(GroupState.DEAD in following for following in NEXT.values())


def test_a_group_is_stable_only_after_its_assignment_was_awaited() -> None:
    before = {state for state, following in NEXT.items() if GroupState.STABLE in following}
    assert before == {GroupState.COMPLETING_REBALANCE}


def test_a_dead_group_answers_that_its_coordinator_is_gone_or_that_it_is_not_there() -> None:
    for grid in GRIDS:
        row = grid[GroupState.DEAD]
        codes = set(row) if isinstance(row, tuple) else {row}
        assert codes <= {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.GROUP_ID_NOT_FOUND}


@pytest.mark.parametrize(
    ("state", "is_leader", "same_protocols", "verdict"),
    [
        (GroupState.STABLE, True, True, GroupVerdict.REBALANCE),  # A leader rejoins to request a new assignment.
        (GroupState.STABLE, False, True, GroupVerdict.SAME_GENERATION),
        (GroupState.STABLE, False, False, GroupVerdict.REBALANCE),
        (GroupState.COMPLETING_REBALANCE, True, True, GroupVerdict.SAME_GENERATION),
        (GroupState.COMPLETING_REBALANCE, False, False, GroupVerdict.REBALANCE),
        (GroupState.PREPARING_REBALANCE, False, True, GroupVerdict.REBALANCE),
        (GroupState.EMPTY, False, True, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_rejoin_has_the_verdict_of_its_row(
    state: GroupState, is_leader: bool, same_protocols: bool, verdict: GroupVerdict | ErrorCode
) -> None:
    assert join_verdict(state, is_leader=is_leader, same_protocols=same_protocols) is verdict


@pytest.mark.parametrize(
    ("state", "generation", "is_anonymous", "plain", "transactional"),
    [
        (GroupState.EMPTY, -1, True, GroupVerdict.ACCEPT, GroupVerdict.ACCEPT),
        (GroupState.EMPTY, -1, False, GroupVerdict.ACCEPT, GroupVerdict.ACCEPT),
        (GroupState.EMPTY, 3, False, GroupVerdict.MEMBER_ONLY, GroupVerdict.MEMBER_ONLY),
        (GroupState.STABLE, -1, True, ErrorCode.UNKNOWN_MEMBER_ID, GroupVerdict.ACCEPT),
        (GroupState.STABLE, -1, False, GroupVerdict.MEMBER_ONLY, GroupVerdict.MEMBER_ONLY),
        (GroupState.STABLE, 3, False, GroupVerdict.MEMBER_ONLY, GroupVerdict.MEMBER_ONLY),
        (GroupState.PREPARING_REBALANCE, 3, False, GroupVerdict.MEMBER_ONLY, GroupVerdict.MEMBER_ONLY),
        (GroupState.COMPLETING_REBALANCE, 3, False, GroupVerdict.MEMBER_WAITS, GroupVerdict.MEMBER_ONLY),
        (GroupState.COMPLETING_REBALANCE, -1, True, ErrorCode.UNKNOWN_MEMBER_ID, GroupVerdict.ACCEPT),
    ],
)
def test_the_state_decides_which_members_may_commit_offsets(
    state: GroupState,
    generation: int,
    is_anonymous: bool,
    plain: GroupVerdict | ErrorCode,
    transactional: GroupVerdict | ErrorCode,
) -> None:
    arguments = {"generation": generation, "is_anonymous": is_anonymous}
    assert offset_commit_verdict(state, **arguments, transactional=False) is plain  # type: ignore[arg-type]
    assert offset_commit_verdict(state, **arguments, transactional=True) is transactional  # type: ignore[arg-type]


def test_the_names_of_states_are_those_that_clients_are_shown() -> None:
    names = [state.value for state in GroupState]
    assert names == ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"]
    assert [group_type.value for group_type in GroupType] == ["classic", "consumer", "share", "streams"]
