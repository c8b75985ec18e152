"""Which member a heartbeat speaks for, and whether it speaks for its present. docs/spec/consumer-groups.md#s2-2

What Kafka keeps apart is kept apart here: dynamic members are found by member id, static ones by instance id.
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
    """A member of the group as it is. Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
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
    """docs/spec/consumer-groups.md#s2-3"""
    if epoch > member.epoch:
        what = f"The consumer group member has a greater member epoch ({epoch}) than the one known by the group"
    elif epoch < member.epoch:
        # The reply in which it learned of its epoch may have been lost, if it owns nothing that it should not.
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
    """Finds who joins: a member that is there, one that takes the place of another, or a new one, known by its id only.
    A member that is there becomes static by naming an instance id that is free. Raises UNRELEASED_INSTANCE_ID if the
    member that has the instance id has not left. Source: docs/spec/consumer-groups.md#s6, S3 to S5
    """
    group = turn.group
    holder_id = None if instance_id is None else group.static_members.get(instance_id)
    if holder_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    holder = group.members[holder_id]
    both_speak_consumer = not speaks_classic and holder.classic is None
    if both_speak_consumer and not is_away(holder):
        # Also of the same member id, as in Kafka: without its instance id it may join again.
        what = f"Static member {member_id} with instance id {instance_id} cannot join the group"
        what = f"{what} because the instance id is owned by {holder_id} member."
        raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, what)
    if speaks_classic and holder_id == member_id and holder.classic is not None:
        return holder
    return replace_static_member(turn, holder, member_id)


def replace_static_member(turn: ConsumerTurn, holder: ConsumerMember, member_id: str) -> ConsumerMember:
    """The new member id takes over subscription, target and partitions, and must learn of them: its epoch is 0."""
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
