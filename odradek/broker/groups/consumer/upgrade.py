"""A classic group becomes a consumer group when a member of the consumer protocol joins it.

Without members always; with members where `group.consumer.migration.policy` allows it: each of them stays, with its
assignment, at the group's generation. Source: docs/spec/consumer-groups.md#s11-1.
"""

from __future__ import annotations

from odradek.broker.groups.classic.group import ClassicGroup
from odradek.broker.groups.classic.join import refused
from odradek.broker.groups.classic.member import Member
from odradek.broker.groups.common.effects import TimerKind
from odradek.broker.groups.common.outcome import Reply
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.broker.groups.consumer.embedded import AssignorUserData, read_assignment, read_subscription
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.member import ClassicProtocols, ConsumerMember
from odradek.broker.groups.consumer.records import (
    assignment_record,
    group_epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from odradek.broker.groups.consumer.turn import ConsumerTurn
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

NO_TIME = 0  # of the last target: the next need not wait


def upgraded(registry: GroupRegistry, classic: ClassicGroup, now_ms: int) -> ConsumerTurn:
    """A turn that has converted the group. Raises GROUP_ID_NOT_FOUND."""
    group_id = classic.group_id
    turn = ConsumerTurn(registry, ConsumerGroup(group_id, registry.topic_id_of), now_ms, is_new=True)
    turn.records += classic.tombstones()  # not of this group: the turn's does not see it
    for key in classic.running_timers():
        turn.disarm(key.kind, key.member_id)
    if not classic.members:
        return turn
    if not turn.config.migration_policy.allows_upgrade:
        raise _refused(f"Cannot upgrade classic group {group_id} to consumer group because online upgrade is disabled.")
    if not classic.uses_consumer_protocol:
        what = f"Cannot upgrade classic group {group_id} to consumer group because the group does not use the"
        raise _refused(f"{what} consumer embedded protocol.")
    try:
        members = [_converted(member, classic, registry) for member in classic.members.values()]
    except MalformedMessage:
        what = f"Cannot upgrade classic group {group_id} to consumer group because the embedded consumer protocol"
        raise _refused(f"{what} is malformed.") from None
    except AssignorUserData:
        what = f"Cannot upgrade classic group {group_id} to consumer group because an unsupported custom assignor"
        advice = "Please refer to the documentation or switch to a default assignor before re-attempting the upgrade."
        raise _refused(f"{what} is in use. {advice}") from None
    for member in members:
        turn.write(member_record(group_id, member))
    turn.write(group_epoch_record(group_id, classic.generation, turn.metadata_hash()))
    for member in members:
        target = {topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()}
        turn.write(target_record(group_id, member.member_id, target))
    turn.write(target_epoch_record(group_id, classic.generation, NO_TIME))
    for member in members:
        turn.write(assignment_record(group_id, member))
        turn.begin_session(member)
    turn.disarm(TimerKind.JOIN)
    turn.disarm(TimerKind.SYNC)
    _end_waiting(turn, classic)
    return turn


def _converted(member: Member, classic: ClassicGroup, registry: GroupRegistry) -> ConsumerMember:
    metadata = member.metadata(classic.protocol_name) if classic.protocol_name else member.protocols[0][1]
    subscription = read_subscription(metadata)
    assigned = read_assignment(member.assignment, registry.cluster)
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicProtocols(member.session_timeout_ms, member.protocols),
        epoch=classic.generation,
        assigned={topic_id: dict.fromkeys(partitions, classic.generation) for topic_id, partitions in assigned.items()},
    )


def _end_waiting(turn: ConsumerTurn, classic: ClassicGroup) -> None:
    """Whoever joins or syncs begins anew, in the consumer group."""
    again = ErrorCode.REBALANCE_IN_PROGRESS
    for member in classic.members.values():
        if member.awaiting_join is not None:
            turn.replies.append(Reply(member.awaiting_join, refused(again, member.member_id)))
        if member.awaiting_sync is not None:
            turn.replies.append(Reply(member.awaiting_sync, SyncGroupResponse(error_code=again.value)))


def _refused(what: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, what)
