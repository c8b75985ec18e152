"""A consumer group becomes a classic one when its last member of the consumer protocol leaves.

`group.consumer.migration.policy` has to allow it; the remaining members begin a rebalance, with their partitions.
Source: docs/spec/consumer-groups.md#s11-3.
"""

from __future__ import annotations

from collections.abc import Collection

from odradek.broker.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from odradek.broker.groups.classic.member import Member
from odradek.broker.groups.classic.rebalance import prepare_rebalance
from odradek.broker.groups.classic.records import group_metadata_record
from odradek.broker.groups.classic.turn import Turn
from odradek.broker.groups.common.effects import TimerKind
from odradek.broker.groups.consumer.embedded import written_assignment
from odradek.broker.groups.consumer.member import ConsumerMember
from odradek.broker.groups.consumer.records import all_tombstones
from odradek.broker.groups.consumer.turn import ConsumerTurn


def downgrade_if_classic_only(turn: ConsumerTurn, leaving: Collection[ConsumerMember]) -> bool:
    """Whether the group, without those that leave, is a classic one now."""
    left = [member for member in turn.group.members.values() if member not in leaving]
    if not left or not may_downgrade(turn, left):
        return False
    rebalance = downgraded(turn, left)
    prepare_rebalance(rebalance)
    take_over(turn, rebalance)
    return True


def may_downgrade(turn: ConsumerTurn, left: Collection[ConsumerMember]) -> bool:
    return (
        turn.config.migration_policy.allows_downgrade
        and turn.group.has_consumer_protocol_member
        and all(member.classic is not None for member in left)
        and len(left) <= turn.registry.config.group_max_size
    )


def downgraded(turn: ConsumerTurn, left: Collection[ConsumerMember]) -> Turn:
    """The turn of the classic group that takes the consumer group's place, STABLE with those that are left."""
    group = turn.group
    classic = ClassicGroup(
        group.group_id,
        changed_ms=turn.now_ms,
        generation=group.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        members=[_converted(turn, member) for member in left],
    )
    classic.choose_protocol()
    turn.records += all_tombstones(group.group_id, list(group.members), list(group.regexes))
    turn.records.append(
        group_metadata_record(classic, {member.member_id: member.assignment for member in classic.members.values()})
    )
    for member in group.members.values():
        for kind in (TimerKind.SESSION, TimerKind.REVOCATION, TimerKind.REJOIN):
            turn.disarm(kind, member.member_id)
    turn.disarm(TimerKind.REGEX)
    rebalance = Turn(classic, turn.registry.config, turn.now_ms)
    rebalance.timers += [classic.session_timer(member_id) for member_id in classic.members]
    return rebalance


def take_over(turn: ConsumerTurn, rebalance: Turn) -> None:
    turn.classic_group = rebalance.group
    turn.records += rebalance.records
    turn.replies += rebalance.replies
    turn.timers += rebalance.timers


def _converted(turn: ConsumerTurn, member: ConsumerMember) -> Member:
    assert member.classic is not None

    def name_of(topic_id: bytes) -> str | None:
        topic = turn.cluster.topic_of_id(topic_id)
        return None if topic is None else topic.name

    return Member(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=member.classic.supported,
        assignment=written_assignment(member.assigned, name_of),
    )
