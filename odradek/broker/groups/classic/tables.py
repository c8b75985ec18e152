"""The states of a classic group as tables: state transitions, and the effect of each request in each state.

Each table has one row for each state. Rules that do not fit into a table, such as the rules for membership and protocol
selection, are in `group.py`, `join.py` and `rebalance.py`.
"""

from collections.abc import Mapping
from enum import Enum, auto

from odradek.protocol.errors import ErrorCode


class GroupState(Enum):
    """The state of a classic group. The value is the name that ListGroups and DescribeGroups return."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupVerdict(Enum):
    """The action in a table cell that does not contain an error code."""

    ACCEPT = auto()
    MEMBER_ONLY = auto()  # accept the request from a member of the current generation and refuse all others
    # Like MEMBER_ONLY, but respond with REBALANCE_IN_PROGRESS because there is no assignment yet.
    MEMBER_WAITS = auto()
    REBALANCE = auto()  # begin the join phase or continue the current one
    SAME_GENERATION = auto()  # nothing has changed, so return the member's current generation
    KEEP_ASSIGNMENT = auto()  # a static member has returned; rebalance only if the chosen protocol changes
    PARK = auto()  # respond once the leader has sent the assignment
    SUBSCRIBED_TOPICS_STAY = auto()  # delete offsets, except those of subscribed topics


S, E, V = GroupState, ErrorCode, GroupVerdict
Answer = GroupVerdict | ErrorCode

NEXT: Mapping[GroupState, frozenset[GroupState]] = {
    S.EMPTY: frozenset({S.PREPARING_REBALANCE, S.DEAD}),
    S.PREPARING_REBALANCE: frozenset({S.COMPLETING_REBALANCE, S.EMPTY, S.DEAD}),
    S.COMPLETING_REBALANCE: frozenset({S.STABLE, S.PREPARING_REBALANCE, S.DEAD}),
    S.STABLE: frozenset({S.PREPARING_REBALANCE, S.DEAD}),
    S.DEAD: frozenset({S.DEAD}),
}

# fmt: off
JOIN_BY_MEMBER: Mapping[GroupState, tuple[Answer, Answer, Answer, Answer]] = {
    # JoinGroup of a member:    leader                                    follower
    # its protocols are:        as before            other                as before            other
    S.EMPTY:                   (E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID),
    S.PREPARING_REBALANCE:     (V.REBALANCE,         V.REBALANCE,         V.REBALANCE,         V.REBALANCE),
    S.COMPLETING_REBALANCE:    (V.SAME_GENERATION,   V.REBALANCE,         V.SAME_GENERATION,   V.REBALANCE),
    S.STABLE:                  (V.REBALANCE,         V.REBALANCE,         V.SAME_GENERATION,   V.REBALANCE),
    S.DEAD:                    (E.COORDINATOR_NOT_AVAILABLE,) * 4,
}

JOIN_BY_RETURNING_STATIC_MEMBER: Mapping[GroupState, Answer] = {
    # JoinGroup with a known instance id but without its member id. EMPTY has no row, because an empty group has no
    # member that could return. DEAD has no row, because a dead group refuses every JoinGroup.
    S.PREPARING_REBALANCE:  V.REBALANCE,
    S.COMPLETING_REBALANCE: V.REBALANCE,
    S.STABLE:               V.KEEP_ASSIGNMENT,
}

SYNC: Mapping[GroupState, Answer] = {
    S.EMPTY:                E.UNKNOWN_MEMBER_ID,
    S.PREPARING_REBALANCE:  E.REBALANCE_IN_PROGRESS,
    S.COMPLETING_REBALANCE: V.PARK,
    S.STABLE:               V.SAME_GENERATION,
    S.DEAD:                 E.COORDINATOR_NOT_AVAILABLE,
}

HEARTBEAT: Mapping[GroupState, ErrorCode] = {
    S.EMPTY:                E.UNKNOWN_MEMBER_ID,
    S.PREPARING_REBALANCE:  E.REBALANCE_IN_PROGRESS,
    S.COMPLETING_REBALANCE: E.NONE,
    S.STABLE:               E.NONE,
    S.DEAD:                 E.COORDINATOR_NOT_AVAILABLE,
}

OFFSET_COMMIT: Mapping[GroupState, tuple[Answer, Answer, Answer]] = {
    # generation:            -1                           -1                           0 or more
    # member or instance id: neither                      given                        any
    S.EMPTY:                (V.ACCEPT,                    V.ACCEPT,                    V.MEMBER_ONLY),
    S.PREPARING_REBALANCE:  (E.UNKNOWN_MEMBER_ID,         V.MEMBER_ONLY,               V.MEMBER_ONLY),
    S.COMPLETING_REBALANCE: (E.UNKNOWN_MEMBER_ID,         V.MEMBER_WAITS,              V.MEMBER_WAITS),
    S.STABLE:               (E.UNKNOWN_MEMBER_ID,         V.MEMBER_ONLY,               V.MEMBER_ONLY),
    S.DEAD:                 (E.COORDINATOR_NOT_AVAILABLE,) * 3,
}

TXN_OFFSET_COMMIT: Mapping[GroupState, tuple[Answer, Answer, Answer]] = {
    # The columns are those of OFFSET_COMMIT. In this table, however, a commit without member information is accepted in
    # every state except DEAD, and a rebalance in progress does not prevent the commit.
    S.EMPTY:                (V.ACCEPT,                    V.ACCEPT,                    V.MEMBER_ONLY),
    S.PREPARING_REBALANCE:  (V.ACCEPT,                    V.MEMBER_ONLY,               V.MEMBER_ONLY),
    S.COMPLETING_REBALANCE: (V.ACCEPT,                    V.MEMBER_ONLY,               V.MEMBER_ONLY),
    S.STABLE:               (V.ACCEPT,                    V.MEMBER_ONLY,               V.MEMBER_ONLY),
    S.DEAD:                 (E.COORDINATOR_NOT_AVAILABLE,) * 3,
}

OFFSET_DELETE: Mapping[GroupState, tuple[Answer, Answer]] = {
    # protocol type:         "consumer"                  another, or none
    S.EMPTY:                (V.SUBSCRIBED_TOPICS_STAY,   V.SUBSCRIBED_TOPICS_STAY),
    S.PREPARING_REBALANCE:  (V.SUBSCRIBED_TOPICS_STAY,   E.NON_EMPTY_GROUP),
    S.COMPLETING_REBALANCE: (V.SUBSCRIBED_TOPICS_STAY,   E.NON_EMPTY_GROUP),
    S.STABLE:               (V.SUBSCRIBED_TOPICS_STAY,   E.NON_EMPTY_GROUP),
    S.DEAD:                 (E.GROUP_ID_NOT_FOUND,       E.GROUP_ID_NOT_FOUND),
}

DELETE_GROUP: Mapping[GroupState, ErrorCode] = {
    S.EMPTY:                E.NONE,
    S.PREPARING_REBALANCE:  E.NON_EMPTY_GROUP,
    S.COMPLETING_REBALANCE: E.NON_EMPTY_GROUP,
    S.STABLE:               E.NON_EMPTY_GROUP,
    S.DEAD:                 E.GROUP_ID_NOT_FOUND,
}
# fmt: on


def offset_commit_verdict(state: GroupState, *, generation: int, is_anonymous: bool, transactional: bool) -> Answer:
    """Returns the error code or the action for an offset commit.

    generation    -1 if the request has none
    is_anonymous  True if the request has neither a member id nor an instance id
    """
    nobody, somebody, of_a_generation = (TXN_OFFSET_COMMIT if transactional else OFFSET_COMMIT)[state]
    if generation >= 0:
        return of_a_generation
    return nobody if is_anonymous else somebody


def join_verdict(state: GroupState, *, is_leader: bool, same_protocols: bool) -> Answer:
    leader_same, leader_other, follower_same, follower_other = JOIN_BY_MEMBER[state]
    if is_leader:
        return leader_same if same_protocols else leader_other
    return follower_same if same_protocols else follower_other
