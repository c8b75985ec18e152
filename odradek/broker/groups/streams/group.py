"""A streams group (KIP-1071), with the topology, members, epochs and target assignment that its records store.

Source: docs/spec/streams-groups.md#s2, #s11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

from odradek.broker.groups.common.epochs import EpochMemory
from odradek.broker.groups.common.group import CoordinatorRecord, GroupType, TimerKey, TimerKind
from odradek.broker.groups.common.members import ReconciledGroup
from odradek.broker.groups.streams.configured_topology import ConfiguredTopology
from odradek.broker.groups.streams.member import StreamsMember, StreamsMemberState
from odradek.broker.groups.streams.records import (
    NO_TOPOLOGY_EPOCH,
    GroupMetadata,
    group_tombstones,
    metadata_of,
    target_of,
    with_assignment,
    with_metadata,
)
from odradek.broker.groups.streams.tasks import HeldTasks, TaskRoles
from odradek.broker.groups.streams.topology import Topology, topology_of
from odradek.protocol.messages.streams_group_target_assignment_member_key import StreamsGroupTargetAssignmentMemberKey
from odradek.protocol.messages.streams_group_topology_description_update_request import TopologyDescription


class ReportedOffset(NamedTuple):
    """The sum of a task's changelog offsets, as reported by a member."""

    subtopology_id: str
    partition: int
    offset: int


class FailedCreation(NamedTuple):
    """An internal topic that could not be created. Until `until_ms`, the reason is reported to members and the creation
    is not retried."""

    reason: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class StreamsMemory(EpochMemory):
    """The part of a streams group's state that is not recorded.

    configured        the result of comparing the topology with the existing topics; None before the first comparison
    is_delayed        whether the first target waits for the end of `streams.initial.rebalance.delay.ms`
    shutdown_by       id of the member that requested the shutdown of the application, or None
    endpoint_epoch    advances whenever the members' endpoints, or the tasks at an endpoint, change
    task_offsets      the offsets up to which each member has restored its tasks, by member id
    task_end_offsets  the end offsets of the same tasks, by member id
    being_created     internal topics that are being created
    failed            internal topics whose creation has recently failed, by name
    description       the topology description that a member has sent, or None
    requests_sent     the number of times that the broker has requested a description
    next_request_ms   the earliest time at which the broker may request a description again
    """

    configured: ConfiguredTopology | None = None
    is_delayed: bool = False
    shutdown_by: str | None = None
    endpoint_epoch: int = 0
    task_offsets: Mapping[str, Sequence[ReportedOffset]] = field(default_factory=dict)
    task_end_offsets: Mapping[str, Sequence[ReportedOffset]] = field(default_factory=dict)
    being_created: frozenset[str] = frozenset()
    failed: Mapping[str, FailedCreation] = field(default_factory=dict)
    description: TopologyDescription | None = None
    requests_sent: int = 0
    next_request_ms: int = 0


class StreamsGroup(ReconciledGroup[StreamsMember, StreamsMemory, TaskRoles]):
    FIELDS: ClassVar = (*ReconciledGroup.FIELDS, "metadata", "topology")
    __slots__ = ("metadata", "topology")
    NO_TARGET: ClassVar = TaskRoles()

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, StreamsMemory())
        self.metadata = GroupMetadata(self.epoch)  # its epoch and hash are unused, because the group stores them itself
        self.topology: Topology | None = None  # None until the first member joins

    # Properties.

    @property
    def group_type(self) -> GroupType:
        return GroupType.STREAMS

    @property
    def protocol_type(self) -> str:
        return "streams"

    @property
    def state_name(self) -> str:
        return "NotReady" if self.members and not self.is_ready else super().state_name

    @property
    def is_ready(self) -> bool:
        """True if the most recent check found all topics of the topology."""
        return self.topology is not None and self.metadata.validated_topology_epoch == self.topology.epoch

    @property
    def has_description(self) -> bool:
        """True if a topology description is stored or is being stored or removed."""
        return self.metadata.described_topology_epoch != NO_TOPOLOGY_EPOCH

    def topics_of(self, member: StreamsMember) -> frozenset[str]:
        return self.topology.read_topics() if self.topology is not None else frozenset()

    def subscribed_topics(self) -> frozenset[str]:
        """Returns the topics that the group's tasks read. A group without members is subscribed to no topics."""
        return self.topology.read_topics() if self.topology is not None and self.members else frozenset()

    # Offsets.

    def held_since(self, member: StreamsMember) -> Callable[[str, int], int | None]:
        """Returns a function that takes a topic and a partition. The function returns the epoch at which the member
        received the partition, or None if the member does not hold the partition.

        A partition belongs to the task with the same number in each subtopology that reads the topic.
        """
        readers: dict[str, list[str]] = {}
        if self.topology is not None:
            for subtopology_id in {*member.assigned.active, *member.revoking.active}:
                subtopology = self.topology.subtopologies.get(subtopology_id)
                for name in subtopology.read_topics() if subtopology is not None else ():
                    readers.setdefault(name, []).append(subtopology_id)

        def since(topic: str, partition: int) -> int | None:
            epochs = [
                held.active[reader][partition]
                for reader in readers.get(topic, ())
                for held in (member.assigned, member.revoking)
                if partition in held.active.get(reader, ())
            ]
            return min(epochs, default=None)

        return since

    # Deletion.

    def tombstones(self) -> list[CoordinatorRecord]:
        return group_tombstones(self.group_id)

    def running_timers(self) -> list[TimerKey]:
        return [TimerKey(TimerKind.INITIAL_DELAY, self.group_id)]

    # Replay.

    def replay(self, record: CoordinatorRecord) -> None:
        """Applies a record of type 17 or 19 to 23. Earlier records can be missing, because compaction removes a record
        once a later record with the same key exists."""
        prepared = record.prepared
        if prepared is not None and isinstance(prepared.content, TaskRoles):
            assert isinstance(record.key, StreamsGroupTargetAssignmentMemberKey)
            self.targets[record.key.member_id] = prepared.content
        else:
            REPLAYS[record.key.API_KEY](self, record.key, record.value)

    def _replay_metadata(self, key: Any, value: Any) -> None:
        self._replay_epoch(key, value)
        self.metadata = GroupMetadata(self.epoch) if value is None else metadata_of(value)

    def stored_member(self, existing: StreamsMember | None, member_id: str, value: Any) -> StreamsMember:
        return with_metadata(existing or StreamsMember(member_id), value)

    def stored_target(self, value: Any) -> TaskRoles:
        return target_of(value)

    def _replay_assignment(self, key: Any, value: Any) -> None:
        member = self.members.get(key.member_id)
        if value is not None:
            self.members[key.member_id] = with_assignment(member or StreamsMember(key.member_id), value)
        elif member is not None:
            self.members[key.member_id] = replace(
                member,
                epoch=0,
                previous_epoch=0,
                state=StreamsMemberState.STABLE,
                assigned=HeldTasks(),
                revoking=HeldTasks(),
            )

    def _replay_topology(self, key: Any, value: Any) -> None:
        self.topology = None if value is None else topology_of(value)


REPLAYS: Mapping[int, Callable[[StreamsGroup, Any, Any], None]] = {
    17: StreamsGroup._replay_metadata,
    19: StreamsGroup._replay_member,
    20: StreamsGroup._replay_target_epoch,
    21: StreamsGroup._replay_target,
    22: StreamsGroup._replay_assignment,
    23: StreamsGroup._replay_topology,
}
