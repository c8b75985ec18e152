"""Converts groups between the classic and the consumer protocol, if `group.consumer.migration.policy` allows it.

A classic group becomes a consumer group when a member that uses the consumer protocol joins. The policy does not matter
if the classic group has no members. Existing members keep their assignments, and the group keeps its generation. A
consumer group becomes a classic group when its last member that uses the consumer protocol leaves. The remaining
members keep their partitions and begin a rebalance.

Members that use the classic protocol send their subscriptions and assignments in the embedded consumer protocol: a
two-byte version followed by the message. A message with an unknown higher version is read as the highest known version.
Source: docs/spec/consumer-groups.md#s11-1, #s11-3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Mapping

from odradek.broker.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from odradek.broker.groups.classic.join import error_response
from odradek.broker.groups.classic.member import ClassicMember
from odradek.broker.groups.classic.rebalance import prepare_rebalance
from odradek.broker.groups.classic.turn import ClassicTurn, group_metadata_record
from odradek.broker.groups.common.epochs import NO_TIME, Partitions
from odradek.broker.groups.common.group import TimerKind
from odradek.broker.groups.common.outcome import Reply
from odradek.broker.groups.common.registry import ClusterView, GroupRegistry
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.member import ClassicProtocols, ConsumerMember
from odradek.broker.groups.consumer.records import (
    all_tombstones,
    assignment_record,
    group_epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from odradek.broker.groups.consumer.turn import ConsumerTurn
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

SHORT = struct.Struct(">h")
ASSIGNMENT_VERSION = 3


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Decodes the subscription in a classic member's metadata. Raises MalformedMessage if the metadata cannot be
    decoded."""
    version = _version(metadata, ConsumerProtocolSubscription.MAX_VERSION)
    return decode(ConsumerProtocolSubscription, version, metadata, SHORT.size)


class AssignorUserData(Exception):
    """Raised if an assignment contains user data from a custom client-side assignor. The broker's assignors would lose
    the data."""


def read_assignment(assignment: bytes, cluster: ClusterView) -> Partitions:
    """Decodes a classic member's assignment. Topics that no longer exist are omitted. An empty value means an empty
    assignment.

    Raises MalformedMessage if the assignment cannot be decoded, or AssignorUserData if it contains user data.
    """
    if not assignment:
        return {}
    version = _version(assignment, ConsumerProtocolAssignment.MAX_VERSION)
    stored = decode(ConsumerProtocolAssignment, version, assignment, SHORT.size)
    if stored.user_data:
        raise AssignorUserData
    return by_topic_id([(each.topic, each.partitions) for each in stored.assigned_partitions], cluster)


def written_assignment(partitions: Mapping[bytes, Iterable[int]], name_of: Callable[[bytes], str | None]) -> bytes:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=name, partitions=sorted(indexes))
            for topic_id, indexes in partitions.items()
            if (name := name_of(topic_id)) is not None
        ]
    )
    return SHORT.pack(ASSIGNMENT_VERSION) + encode(assignment, ASSIGNMENT_VERSION)


def by_topic_id(named: Iterable[tuple[str, Iterable[int]]], cluster: ClusterView) -> Partitions:
    found: dict[bytes, frozenset[int]] = {}
    for name, partitions in named:
        topic = cluster.topic(name)
        if topic is not None and (indexes := frozenset(partitions)):
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | indexes
    return found


def _version(data: bytes, highest: int) -> int:
    if len(data) < SHORT.size:
        raise MalformedMessage("the metadata of the consumer has no version")
    (version,) = SHORT.unpack_from(data)
    if version < 0:
        raise MalformedMessage(f"the metadata of the consumer has the invalid version {version}")
    return min(int(version), highest)


def upgrade_group(registry: GroupRegistry, classic: ClassicGroup, now_ms: int) -> ConsumerTurn:
    """Returns a turn in which the classic group has become a consumer group. Raises GROUP_ID_NOT_FOUND if the group
    cannot be converted or the policy forbids it."""
    group_id = classic.group_id
    turn = ConsumerTurn(registry, ConsumerGroup(group_id, registry.topic_id_of), now_ms, is_new=True)
    turn.records += classic.tombstones()  # appended directly, because these records are not applied to the turn's group
    for key in classic.running_timers():
        turn.disarm(key.kind, key.member_id)
    if not classic.members:
        return turn
    if not turn.config.migration_policy.allows_upgrade:
        raise _group_id_not_found(
            f"Cannot upgrade classic group {group_id} to consumer group because online upgrade is disabled."
        )
    if not classic.uses_consumer_protocol:
        what = f"Cannot upgrade classic group {group_id} to consumer group because the group does not use the"
        raise _group_id_not_found(f"{what} consumer embedded protocol.")
    try:
        members = [_convert_member(member, classic, registry) for member in classic.members.values()]
    except MalformedMessage:
        what = f"Cannot upgrade classic group {group_id} to consumer group because the embedded consumer protocol"
        raise _group_id_not_found(f"{what} is malformed.") from None
    except AssignorUserData:
        what = f"Cannot upgrade classic group {group_id} to consumer group because an unsupported custom assignor"
        advice = "Please refer to the documentation or switch to a default assignor before re-attempting the upgrade."
        raise _group_id_not_found(f"{what} is in use. {advice}") from None
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


def _convert_member(member: ClassicMember, classic: ClassicGroup, registry: GroupRegistry) -> ConsumerMember:
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
    """Answers waiting JoinGroup and SyncGroup requests with REBALANCE_IN_PROGRESS, so that the members rejoin."""
    again = ErrorCode.REBALANCE_IN_PROGRESS
    for member in classic.members.values():
        if member.awaiting_join is not None:
            turn.replies.append(Reply(member.awaiting_join, error_response(again, member.member_id)))
        if member.awaiting_sync is not None:
            turn.replies.append(Reply(member.awaiting_sync, SyncGroupResponse(error_code=again.value)))


def _group_id_not_found(what: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, what)


def downgrade_if_classic_only(turn: ConsumerTurn, leaving: Collection[ConsumerMember]) -> bool:
    """Converts the group to a classic group if the policy allows it and all remaining members use the classic protocol.
    Returns whether the group was converted."""
    left = [member for member in turn.group.members.values() if member not in leaving]
    if not left or not may_downgrade(turn, left):
        return False
    rebalance = downgrade_group(turn, left)
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


def downgrade_group(turn: ConsumerTurn, left: Collection[ConsumerMember]) -> ClassicTurn:
    """Replaces the group with a STABLE classic group of the remaining members and returns a turn for the classic
    group."""
    group = turn.group
    classic = ClassicGroup(
        group.group_id,
        changed_ms=turn.now_ms,
        generation=group.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        members=[_classic_member(turn, member) for member in left],
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
    rebalance = ClassicTurn(classic, turn.registry.config, turn.now_ms)
    rebalance.timers += [classic.session_timer(member_id) for member_id in classic.members]
    return rebalance


def take_over(turn: ConsumerTurn, rebalance: ClassicTurn) -> None:
    turn.classic_group = rebalance.group
    turn.records += rebalance.records
    turn.replies += rebalance.replies
    turn.timers += rebalance.timers


def _classic_member(turn: ConsumerTurn, member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None

    def name_of(topic_id: bytes) -> str | None:
        topic = turn.cluster.topic_of_id(topic_id)
        return None if topic is None else topic.name

    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=member.classic.supported,
        assignment=written_assignment(member.assigned, name_of),
    )
