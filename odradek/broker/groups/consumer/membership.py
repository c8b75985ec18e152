"""Finds the member that sent a heartbeat, and checks its epoch. docs/spec/consumer-groups.md#s2-2

As in Kafka, dynamic members are identified by member id and static members by instance id.
"""

from __future__ import annotations

from dataclasses import replace

from odradek.broker.groups.common.epochs import Partitions
from odradek.broker.groups.common.group import TimerKind
from odradek.broker.groups.consumer.group import ConsumerGroup, is_away
from odradek.broker.groups.consumer.member import JOIN_EPOCH, ConsumerMember, is_within
from odradek.broker.groups.consumer.records import assignment_record, member_record, target_record
from odradek.broker.groups.consumer.turn import ConsumerTurn, tombstones_of
from odradek.protocol.errors import ErrorCode, KafkaError


def check_room(group: ConsumerGroup, member_id: str, max_size: int) -> None:
    if len(group.members) >= max_size and member_id not in group.members:
        what = f"The consumer group has reached its maximum capacity of {max_size} members."
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, what)


def require_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Returns a member of the group. Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if instance_id is not None:
        holder_id = group.static_members.get(instance_id)
        if holder_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if holder_id != member_id:
            what = f"Static member {member_id} with instance id {instance_id} was fenced by member {holder_id}."
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, what)
    member = group.members.get(member_id)
    if member is None:
        what = f"Member {member_id} is not a member of group {group.group_id}."
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, what)
    return member


def check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """Raises FENCED_MEMBER_EPOCH unless the epoch is current: docs/spec/consumer-groups.md#s2-3"""
    if epoch > member.epoch:
        what = f"The consumer group member has a greater member epoch ({epoch}) than the one known by the group"
    elif epoch < member.epoch:
        # Accepted if the member owns only its assigned partitions: the response with its new epoch may have been lost.
        if epoch == member.previous_epoch and owned is not None and is_within(owned, member.assigned):
            return
        what = f"The consumer group member has a smaller member epoch ({epoch}) than the one known by the group"
    else:
        return
    advice = "The member must abandon all its partitions and rejoin."
    raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, f"{what} coordinator ({member.epoch}). {advice}")


def joining_member(
    turn: ConsumerTurn, member_id: str, instance_id: str | None, *, speaks_classic: bool = False
) -> ConsumerMember:
    """Returns the member that joins: an existing member, a replacement for a static member, or a new member with only
    an id. An existing member becomes static if it names an unused instance id. Raises UNRELEASED_INSTANCE_ID if the
    member that has the instance id has not left. Source: docs/spec/consumer-groups.md#s6, S3 to S5
    """
    group = turn.group
    holder_id = None if instance_id is None else group.static_members.get(instance_id)
    if holder_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    holder = group.members[holder_id]
    both_speak_consumer = not speaks_classic and holder.classic is None
    if both_speak_consumer and not is_away(holder):
        # As in Kafka, this also applies to the same member id; without the instance id the member may rejoin.
        what = f"Static member {member_id} with instance id {instance_id} cannot join the group"
        what = f"{what} because the instance id is owned by {holder_id} member."
        raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, what)
    if speaks_classic and holder_id == member_id and holder.classic is not None:
        return holder
    return replace_static_member(turn, holder, member_id)


def replace_static_member(turn: ConsumerTurn, holder: ConsumerMember, member_id: str) -> ConsumerMember:
    """Replaces a static member by one with another member id. It takes over the subscription, target and partitions,
    and its epoch is 0 so that it receives them again."""
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
