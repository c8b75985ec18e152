"""Encodes and decodes the records of streams groups, which have the types 17 and 19 to 23. Source:
docs/spec/streams-groups.md#s11."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from odradek.broker.groups.common.group import CoordinatorRecord, PreparedRecord
from odradek.broker.groups.records import encode_record
from odradek.broker.groups.streams.member import Endpoint, StreamsMember, StreamsMemberState
from odradek.broker.groups.streams.tasks import HeldTasks, Since, TaskRoles, Tasks, tasks_of
from odradek.broker.groups.streams.topology import Topology, topology_value
from odradek.protocol.messages.streams_group_current_member_assignment_key import StreamsGroupCurrentMemberAssignmentKey
from odradek.protocol.messages.streams_group_current_member_assignment_value import (
    StreamsGroupCurrentMemberAssignmentValue,
)
from odradek.protocol.messages.streams_group_current_member_assignment_value import TaskIds as CurrentTaskIds
from odradek.protocol.messages.streams_group_member_metadata_key import StreamsGroupMemberMetadataKey
from odradek.protocol.messages.streams_group_member_metadata_value import Endpoint as StoredEndpoint
from odradek.protocol.messages.streams_group_member_metadata_value import KeyValue, StreamsGroupMemberMetadataValue
from odradek.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from odradek.protocol.messages.streams_group_metadata_value import LastAssignmentConfig, StreamsGroupMetadataValue
from odradek.protocol.messages.streams_group_target_assignment_member_key import StreamsGroupTargetAssignmentMemberKey
from odradek.protocol.messages.streams_group_target_assignment_member_value import (
    StreamsGroupTargetAssignmentMemberValue,
)
from odradek.protocol.messages.streams_group_target_assignment_member_value import TaskIds as TargetTaskIds
from odradek.protocol.messages.streams_group_target_assignment_metadata_key import (
    StreamsGroupTargetAssignmentMetadataKey,
)
from odradek.protocol.messages.streams_group_target_assignment_metadata_value import (
    StreamsGroupTargetAssignmentMetadataValue,
)
from odradek.protocol.messages.streams_group_topology_key import StreamsGroupTopologyKey

NO_TOPOLOGY_EPOCH = -1
"""Stored instead of a topology epoch if no topology has been validated, or if no description has been stored or
refused."""
BEING_STORED = -2
"""Stored instead of a topology epoch while a topology description is being stored or removed."""


class GroupMetadata(NamedTuple):
    """The content of the record of type 17.

    validated_topology_epoch  epoch of the topology whose topics were all found; NO_TOPOLOGY_EPOCH if some are missing
    assignment_settings       the settings of the last target assignment, by name without the prefix `streams.`
    described_topology_epoch  epoch of the topology whose description is stored; BEING_STORED if the result of storing
                              it is not known yet
    refused_topology_epoch    epoch of the topology whose description was refused permanently
    """

    epoch: int
    metadata_hash: int = 0
    validated_topology_epoch: int = NO_TOPOLOGY_EPOCH
    assignment_settings: Mapping[str, str] = {}
    described_topology_epoch: int = NO_TOPOLOGY_EPOCH
    refused_topology_epoch: int = NO_TOPOLOGY_EPOCH

    @property
    def assignment_inputs(self) -> tuple[object, ...]:
        """The inputs of the target assignment, except for the members."""
        return self.metadata_hash, self.validated_topology_epoch, self.assignment_settings


def group_record(group_id: str, metadata: GroupMetadata) -> CoordinatorRecord:
    return CoordinatorRecord(
        StreamsGroupMetadataKey(group_id=group_id),
        StreamsGroupMetadataValue(
            epoch=metadata.epoch,
            metadata_hash=metadata.metadata_hash,
            validated_topology_epoch=metadata.validated_topology_epoch,
            last_assignment_configs=[
                LastAssignmentConfig(key=name, value=text) for name, text in metadata.assignment_settings.items()
            ],
            stored_description_topology_epoch=metadata.described_topology_epoch,
            failed_description_topology_epoch=metadata.refused_topology_epoch,
        ),
    )


def metadata_of(value: StreamsGroupMetadataValue) -> GroupMetadata:
    return GroupMetadata(
        value.epoch,
        value.metadata_hash,
        value.validated_topology_epoch,
        {each.key: each.value for each in value.last_assignment_configs or ()},
        value.stored_description_topology_epoch,
        value.failed_description_topology_epoch,
    )


def member_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    endpoint = member.user_endpoint
    return CoordinatorRecord(
        StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        StreamsGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            topology_epoch=member.topology_epoch,
            process_id=member.process_id,
            user_endpoint=None if endpoint is None else StoredEndpoint(host=endpoint.host, port=endpoint.port),
            client_tags=[KeyValue(key=name, value=text) for name, text in member.client_tags.items()],
        ),
    )


def with_metadata(member: StreamsMember, value: StreamsGroupMemberMetadataValue) -> StreamsMember:
    """Returns the member with the fields from a record of type 19. Fields that come from records of type 22 are
    unchanged."""
    endpoint = value.user_endpoint
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags={each.key: each.value for each in value.client_tags},
    )


def target_epoch_record(group_id: str, epoch: int, computed_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        StreamsGroupTargetAssignmentMetadataKey(group_id=group_id),
        StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=computed_ms),
    )


def target_record(group_id: str, member_id: str, target: TaskRoles) -> CoordinatorRecord:
    return CoordinatorRecord(
        StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        StreamsGroupTargetAssignmentMemberValue(
            active_tasks=_target_tasks(target.active),
            standby_tasks=_target_tasks(target.standby),
            warmup_tasks=_target_tasks(target.warmup),
        ),
    )


def prepared_target_record(group_id: str, member_id: str, target: TaskRoles) -> CoordinatorRecord:
    """Returns the record of a member's target assignment, with its encoded form and with the content that a replay
    would decode. A target can contain very many tasks, so this work is done before the decision that writes and replays
    the record."""
    record = target_record(group_id, member_id, target)
    key, value = encode_record(record)
    assert isinstance(record.value, StreamsGroupTargetAssignmentMemberValue)
    assert value is not None
    return replace(record, prepared=PreparedRecord(key, value, target_of(record.value)))


def _target_tasks(tasks: Tasks) -> list[TargetTaskIds]:
    return [TargetTaskIds(subtopology_id=each, partitions=sorted(tasks[each])) for each in sorted(tasks)]


def target_of(value: StreamsGroupTargetAssignmentMemberValue) -> TaskRoles:
    return TaskRoles(tasks_of(value.active_tasks), tasks_of(value.standby_tasks), tasks_of(value.warmup_tasks))


def assignment_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    assigned, revoking = member.assigned, member.revoking
    return CoordinatorRecord(
        StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state.value,
            active_tasks=_active_tasks(assigned.active),
            standby_tasks=_passive_tasks(assigned.standby),
            warmup_tasks=_passive_tasks(assigned.warmup),
            active_tasks_pending_revocation=_active_tasks(revoking.active),
            standby_tasks_pending_revocation=_passive_tasks(revoking.standby),
            warmup_tasks_pending_revocation=_passive_tasks(revoking.warmup),
        ),
    )


def _active_tasks(since: Since) -> list[CurrentTaskIds]:
    return [
        CurrentTaskIds(
            subtopology_id=each,
            partitions=sorted(since[each]),
            assignment_epochs=[since[each][partition] for partition in sorted(since[each])],
        )
        for each in sorted(since)
    ]


def _passive_tasks(tasks: Tasks) -> list[CurrentTaskIds]:
    return [CurrentTaskIds(subtopology_id=each, partitions=sorted(tasks[each])) for each in sorted(tasks)]


def with_assignment(member: StreamsMember, value: StreamsGroupCurrentMemberAssignmentValue) -> StreamsMember:
    """Returns the member with the fields from a record of type 22. Fields that come from records of type 19 are
    unchanged."""
    epoch = value.member_epoch
    return replace(
        member,
        epoch=epoch,
        previous_epoch=value.previous_member_epoch,
        state=StreamsMemberState(value.state),
        assigned=HeldTasks(
            _since(value.active_tasks, epoch), tasks_of(value.standby_tasks), tasks_of(value.warmup_tasks)
        ),
        revoking=HeldTasks(
            _since(value.active_tasks_pending_revocation, epoch),
            tasks_of(value.standby_tasks_pending_revocation),
            tasks_of(value.warmup_tasks_pending_revocation),
        ),
    )


def _since(stored: Sequence[CurrentTaskIds], member_epoch: int) -> Since:
    """Returns stored active tasks with their epochs. If the record contains no epochs, the member's epoch is used."""
    return {
        each.subtopology_id: (
            dict(zip(each.partitions, each.assignment_epochs, strict=False))
            if each.assignment_epochs
            else dict.fromkeys(each.partitions, member_epoch)
        )
        for each in stored
        if each.partitions
    }


def topology_record(group_id: str, topology: Topology) -> CoordinatorRecord:
    return CoordinatorRecord(StreamsGroupTopologyKey(group_id=group_id), topology_value(topology))


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    return [
        CoordinatorRecord(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str) -> list[CoordinatorRecord]:
    """Returns the tombstones of a group without members."""
    return [
        CoordinatorRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        CoordinatorRecord(StreamsGroupMetadataKey(group_id=group_id), None),
        CoordinatorRecord(StreamsGroupTopologyKey(group_id=group_id), None),
    ]
