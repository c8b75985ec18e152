"""Finds or creates the member for a joining client. Dynamic members are found by member id, and static members by
instance id.

Source: docs/spec/consumer-groups.md#s2-2.
"""

from __future__ import annotations

from dataclasses import replace

from odradek.broker.groups.common.group import TimerKind
from odradek.broker.groups.common.members import JOIN_EPOCH, is_away
from odradek.broker.groups.consumer.member import ConsumerMember
from odradek.broker.groups.consumer.records import assignment_record, member_record, target_record
from odradek.broker.groups.consumer.turn import ConsumerTurn, tombstones_of


def joining_member(
    turn: ConsumerTurn, member_id: str, instance_id: str | None, *, speaks_classic: bool = False
) -> ConsumerMember:
    """Returns the joining member: an existing member, a replacement for a static member, or a new member that has only
    an id. If the instance id is unused, it is not set in the returned member yet.

    Raises UNRELEASED_INSTANCE_ID if the instance id belongs to a member that has not left. Source:
    docs/spec/consumer-groups.md#s6, S3 to S5
    """
    group = turn.group
    holder_id = None if instance_id is None else group.static_members.get(instance_id)
    if holder_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    holder = group.members[holder_id]
    both_speak_consumer = not speaks_classic and holder.classic is None
    if both_speak_consumer and not is_away(holder):
        assert instance_id is not None
        raise group.not_released(member_id, instance_id, holder_id)
    if speaks_classic and holder_id == member_id and holder.classic is not None:
        return holder
    return replace_static_member(turn, holder, member_id)


def replace_static_member(turn: ConsumerTurn, holder: ConsumerMember, member_id: str) -> ConsumerMember:
    """Replaces a static member with a member that has a different member id. The new member takes over the
    subscription, target and partitions. Its epoch is 0, so that it receives the partitions again."""
    group_id, target = turn.group.group_id, turn.group.target_of(holder.member_id)
    member = replace(holder, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    for kind in (TimerKind.SESSION, TimerKind.REVOCATION, TimerKind.REJOIN):
        turn.disarm(kind, holder.member_id)
    turn.write(
        *tombstones_of(group_id, holder),
        member_record(group_id, member),
        target_record(group_id, member_id, target),
        assignment_record(group_id, member),
    )
    return member
