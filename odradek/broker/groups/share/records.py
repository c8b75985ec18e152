"""Members of share groups, and the records of types 10 to 15 that store share groups. Source:
docs/spec/share-groups.md#s2-9."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from odradek.broker.groups.common.epochs import Partitions, stored_partitions
from odradek.broker.groups.common.group import CoordinatorRecord
from odradek.protocol.messages.share_group_current_member_assignment_key import ShareGroupCurrentMemberAssignmentKey
from odradek.protocol.messages.share_group_current_member_assignment_value import (
    ShareGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from odradek.protocol.messages.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from odradek.protocol.messages.share_group_member_metadata_value import ShareGroupMemberMetadataValue
from odradek.protocol.messages.share_group_metadata_key import ShareGroupMetadataKey
from odradek.protocol.messages.share_group_metadata_value import ShareGroupMetadataValue
from odradek.protocol.messages.share_group_state_partition_metadata_key import ShareGroupStatePartitionMetadataKey
from odradek.protocol.messages.share_group_state_partition_metadata_value import (
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)
from odradek.protocol.messages.share_group_target_assignment_member_key import ShareGroupTargetAssignmentMemberKey
from odradek.protocol.messages.share_group_target_assignment_member_value import (
    ShareGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from odradek.protocol.messages.share_group_target_assignment_metadata_key import ShareGroupTargetAssignmentMetadataKey
from odradek.protocol.messages.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue,
)

STABLE = 0  # the state of every member, because share groups have no revocation


class StatePartitions(NamedTuple):
    """The partitions that have share state. A partition is in at most one of the three collections. `names` contains
    the names of their topics by topic id.

    initializing  partitions whose state the share coordinator has been asked to initialise
    initialized   partitions whose state the share coordinator has initialised
    deleting      topics whose state the share coordinator has been asked to delete
    """

    names: Mapping[bytes, str]
    initializing: Partitions
    initialized: Partitions
    deleting: frozenset[bytes]

    def contains(self, topic_id: bytes, partition: int) -> bool:
        return partition in self.initialized.get(topic_id, ()) or partition in self.initializing.get(topic_id, ())


NO_STATE = StatePartitions({}, {}, {}, frozenset())


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupMetadataKey(group_id=group_id), ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    )


def member_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
        ),
    )


def with_subscription(member: ShareMember, value: Any) -> ShareMember:
    return replace(
        member,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
    )


def target_epoch_record(group_id: str, epoch: int, computed_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
        ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=computed_ms),
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ShareGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TopicPartition(topic_id=topic_id, partitions=sorted(indexes)) for topic_id, indexes in target.items()
            ]
        ),
    )


def assignment_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=STABLE,
            assigned_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in member.assigned.items()
            ],
        ),
    )


def state_record(group_id: str, state: StatePartitions) -> CoordinatorRecord:
    def infos(partitions: Partitions) -> list[TopicPartitionsInfo]:
        return [
            TopicPartitionsInfo(topic_id=topic_id, topic_name=state.names[topic_id], partitions=sorted(indexes))
            for topic_id, indexes in partitions.items()
            if indexes
        ]

    return CoordinatorRecord(
        ShareGroupStatePartitionMetadataKey(group_id=group_id),
        ShareGroupStatePartitionMetadataValue(
            initializing_topics=infos(state.initializing),
            initialized_topics=infos(state.initialized),
            deleting_topics=[
                TopicInfo(topic_id=topic_id, topic_name=state.names[topic_id]) for topic_id in sorted(state.deleting)
            ],
        ),
    )


def state_of(value: Any) -> StatePartitions:
    if value is None:
        return NO_STATE
    named = [*value.initializing_topics, *value.initialized_topics, *value.deleting_topics]
    return StatePartitions(
        {each.topic_id: each.topic_name for each in named},
        stored_partitions(value.initializing_topics),
        stored_partitions(value.initialized_topics),
        frozenset(each.topic_id for each in value.deleting_topics),
    )


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    return [
        CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str) -> list[CoordinatorRecord]:
    """Returns the tombstones of a group without members."""
    return [
        CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), None),
        CoordinatorRecord(ShareGroupMetadataKey(group_id=group_id), None),
    ]


JOIN_EPOCH = 0
LEAVE_EPOCH = -1


@dataclass(frozen=True, slots=True)
class ShareMember:
    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""  # an address in Java's format, such as "/127.0.0.1"
    topics: frozenset[str] = frozenset()
    # The following fields come from the record of type 14.
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = field(default_factory=dict)


def partitions_of(pairs: Iterable[tuple[bytes, int]]) -> Partitions:
    found: dict[bytes, set[int]] = {}
    for topic_id, partition in pairs:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}


def pairs_of(partitions: Partitions) -> list[tuple[bytes, int]]:
    return [(topic_id, partition) for topic_id, indexes in partitions.items() for partition in sorted(indexes)]
