"""Encodes and decodes the records of consumer groups, which have the types 3 to 8 and 16. Source:
docs/spec/consumer-groups.md#s12-1."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.broker.groups.common.epochs import Partitions
from odradek.broker.groups.common.group import CoordinatorRecord
from odradek.broker.groups.consumer.member import Assigned, ClassicProtocols, ConsumerMember, MemberState
from odradek.protocol.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from odradek.protocol.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from odradek.protocol.messages.consumer_group_current_member_assignment_value import (
    TopicPartitions as CurrentPartitions,
)
from odradek.protocol.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from odradek.protocol.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from odradek.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from odradek.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from odradek.protocol.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from odradek.protocol.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from odradek.protocol.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from odradek.protocol.messages.consumer_group_target_assignment_member_key import ConsumerGroupTargetAssignmentMemberKey
from odradek.protocol.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from odradek.protocol.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from odradek.protocol.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    classic = None
    if member.classic is not None:
        classic = ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.classic.supported
            ],
        )
    return CoordinatorRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
            subscribed_topic_regex=member.regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=classic,
        ),
    )


def member_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def target_epoch_record(group_id: str, epoch: int, computed_ms: int) -> CoordinatorRecord:
    """Returns the record that stores the target assignment's epoch. If `computed_ms` is 0, no computation time is
    stored, and the next target need not wait for the interval."""
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=computed_ms),
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in target.items()
            ]
        ),
    )


def target_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)


def assignment_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state.value,
            assigned_partitions=_stored(member.assigned),
            partitions_pending_revocation=_stored(member.revoking),
        ),
    )


def assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)


def regex_record(
    group_id: str, regex: str, topics: frozenset[str], version: int, resolved_ms: int
) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=resolved_ms),
    )


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def group_tombstones(group_id: str) -> list[CoordinatorRecord]:
    """Returns the tombstones of a group without members. Only Kafka 4.0 wrote records of type 4. Later releases, and
    this broker, still write a tombstone of this type."""
    return [
        CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None),
        CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


def all_tombstones(group_id: str, member_ids: Sequence[str], regexes: Sequence[str]) -> list[CoordinatorRecord]:
    """Returns the tombstones of a group that is becoming a classic group, including those of its members."""
    target_epoch, *rest = group_tombstones(group_id)
    return [
        *(assignment_tombstone(group_id, member_id) for member_id in member_ids),
        *(target_tombstone(group_id, member_id) for member_id in member_ids),
        target_epoch,
        *(member_tombstone(group_id, member_id) for member_id in member_ids),
        *(regex_tombstone(group_id, regex) for regex in regexes),
        *rest,
    ]


# Reading.


def with_subscription(member: ConsumerMember, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    """Returns the member with the fields from a record of type 5. Fields that come from records of type 8 are
    unchanged."""
    stored, classic = value.classic_member_metadata, None
    if stored is not None:
        classic = ClassicProtocols(
            stored.session_timeout_ms,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in stored.supported_protocols),
        )
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=classic,
        epoch=member.epoch,
        previous_epoch=member.previous_epoch,
        state=member.state,
        assigned=member.assigned,
        revoking=member.revoking,
    )


def assigned_of(stored: Sequence[CurrentPartitions], member_epoch: int) -> Assigned:
    """Returns the stored partitions with their epochs. If a record was written by Kafka before 4.3, it contains no
    epochs, and the member's epoch is used instead."""
    return {
        each.topic_id: (
            dict.fromkeys(each.partitions, member_epoch)
            if not each.assignment_epochs
            else dict(zip(each.partitions, each.assignment_epochs, strict=False))
        )
        for each in stored
    }


def _stored(assigned: Assigned) -> list[CurrentPartitions]:
    return [
        CurrentPartitions(
            topic_id=topic_id,
            partitions=sorted(partitions),
            assignment_epochs=[partitions[partition] for partition in sorted(partitions)],
        )
        for topic_id, partitions in assigned.items()
    ]


def state_of(value: ConsumerGroupCurrentMemberAssignmentValue) -> MemberState:
    return MemberState(value.state)
