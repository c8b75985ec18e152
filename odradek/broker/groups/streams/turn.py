"""A decision about a streams group, made in response to a request or a timer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from odradek.broker.groups.common.epochs import EpochTurn
from odradek.broker.groups.common.group import CoordinatorRecord, TimerKind
from odradek.broker.groups.common.metadata_hash import metadata_hash
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.broker.groups.streams.configured_topology import ConfiguredTopology, configure
from odradek.broker.groups.streams.group import StreamsGroup, StreamsMemory
from odradek.broker.groups.streams.limits import check_task_count
from odradek.broker.groups.streams.member import StreamsMember, StreamsMemberState
from odradek.broker.groups.streams.reconciliation import TaskGoal, reconcile, unreleased_tasks
from odradek.broker.groups.streams.records import (
    NO_TOPOLOGY_EPOCH,
    assignment_record,
    group_record,
    member_tombstones,
    target_epoch_record,
)
from odradek.broker.groups.streams.status import Status, StatusCode
from odradek.broker.groups.streams.target import ComputedTarget, target_of_members, work_of_target
from odradek.broker.groups.streams.tasks import TaskRoles

AT_ONCE_MS = 0
INTERVAL = "streams.assignment.interval.ms"
INITIALLY_DELAYED = Status(
    StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."
)
DELAYED = Status(StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval.")
BEING_COMPUTED = Status(
    StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed because the assignment of this large group is being computed."
)


class StreamsTurn(EpochTurn[StreamsGroup, StreamsMemory]):
    def __init__(self, registry: GroupRegistry, group: StreamsGroup, now_ms: int, *, is_new: bool = False) -> None:
        """Creates a turn. `is_new` means that this turn has created the group, so it need not copy the group before a
        change."""
        super().__init__(registry, group, now_ms, is_new=is_new)
        self.config = registry.config.streams
        self._requested_tags: tuple[str, ...] | None = None

    def setting(self, name: str) -> int:
        return self.cluster.group_setting(self.group.group_id, f"streams.{name}")

    # The group epoch. The rules for advancing it are in docs/spec/streams-groups.md#s2-6.

    def epoch_record(self, epoch: int, metadata_hash: int) -> CoordinatorRecord:
        metadata = self.group.metadata._replace(epoch=epoch, metadata_hash=metadata_hash)
        return group_record(self.group.group_id, metadata)

    def target_epoch_record(self, epoch: int, computed_ms: int) -> CoordinatorRecord:
        return target_epoch_record(self.group.group_id, epoch, computed_ms)

    def advance_epoch(self) -> None:
        """Advances the epoch after members have left. The metadata hash stays the same, because only heartbeats check
        whether topics have changed."""
        self.write(self.epoch_record(self.group.epoch + 1, self.group.metadata_hash))

    def follow_inputs(self, *, member_changed: bool) -> ConfiguredTopology:
        """Compares the topology with the existing topics, if either has changed. Advances the epoch if any input of the
        target assignment has changed. Raises STREAMS_INVALID_TOPOLOGY if the topology has too many tasks or is invalid
        in another way."""
        group, memory = self.group, self.group.memory
        assert group.topology is not None, "every group has the topology of its first member"
        configured, topics_hash = memory.configured, group.metadata_hash
        if configured is None or memory.checked_version != self.cluster.version:
            topics = self.topics_of(group.topology.required_topics())
            topics_hash = metadata_hash(topics)
            if configured is None or topics_hash != group.metadata_hash:
                configured = configure(group.topology, {topic.name: topic.partition_count for topic in topics})
                check_task_count(configured.task_counts)
            self.set_memory(replace(memory, configured=configured, checked_version=self.cluster.version))
        validated = group.topology.epoch if configured.is_ready else NO_TOPOLOGY_EPOCH
        settings = self.assignment_settings()
        if member_changed or (topics_hash, validated, settings) != group.metadata.assignment_inputs:
            metadata = group.metadata._replace(
                epoch=group.epoch + 1,
                metadata_hash=topics_hash,
                validated_topology_epoch=validated,
                assignment_settings=settings,
            )
            self.write(group_record(group.group_id, metadata))
            self.is_rebalance = True
        return configured

    def assignment_settings(self) -> Mapping[str, str]:
        """Returns the settings that the target assignment depends on, in their recorded form."""
        settings = {"num.standby.replicas": str(self.setting("num.standby.replicas"))}
        tags = self.requested_tags()
        if tags:
            settings["rack.aware.assignment.tags"] = ",".join(tags)
        return settings

    def requested_tags(self) -> tuple[str, ...]:
        """Returns the client tags that the group's members should have."""
        if self._requested_tags is None:
            text = self.cluster.group_text(self.group.group_id, "streams.rack.aware.assignment.tags")
            self._requested_tags = tuple(tag for each in text.split(",") if (tag := each.strip())) if text else ()
        return self._requested_tags

    def follow_group_epoch(self, configured: ConfiguredTopology, joining: str | None = None) -> Status | None:
        """Computes a new target assignment if one is due. Returns the status to report if the computation is delayed,
        otherwise None.

        joining  the id of the member joining the group with this turn's heartbeat
        """
        group = self.group
        if group.epoch <= group.assignment_epoch:
            return None
        if group.memory.is_delayed:
            return INITIALLY_DELAYED
        if not self.is_target_due(INTERVAL):
            return DELAYED
        return None if self.compute_target(configured, joining) else BEING_COMPUTED

    def compute_target(self, configured: ConfiguredTopology, joining: str | None = None) -> bool:
        """Computes and records a new target assignment. While topics are missing, the target is empty, so members give
        up all their tasks.

        Returns whether the target has been recorded. If the computation is not finished yet, its result is passed to
        `put_target` later.
        """
        group = self.group
        if configured.is_ready:
            replicas = self.setting("num.standby.replicas")
            computed = self.cluster.compute_target(
                group.group_id,
                work_of_target(group, configured, replicas),
                target_of_members(group, configured, replicas, joining),
            )
        else:
            targets = dict.fromkeys(group.members, TaskRoles())
            computed = ComputedTarget(group.epoch, group.metadata.assignment_inputs, targets, before={}, records={})
        if computed is None:
            return False
        self.put_target(computed)
        return True

    def put_target(self, computed: ComputedTarget) -> None:
        """Records a target assignment if the group can still use it; see `ComputedTarget.is_usable_for`."""
        group = self.group
        if not computed.is_usable_for(group):
            return
        self.write(*computed.records_for(group))
        self.write(self.target_epoch_record(computed.epoch, self.now_ms))

    # Members.

    def begin_session(self, member: StreamsMember) -> None:
        self.arm(TimerKind.SESSION, self.setting("session.timeout.ms"), member.member_id)

    def begin_revocation(self, member: StreamsMember) -> None:
        self.arm(TimerKind.REVOCATION, max(member.rebalance_timeout_ms, AT_ONCE_MS), member.member_id)

    def reconcile(self, updated: StreamsMember, owned: TaskRoles | None) -> StreamsMember:
        """Moves a member as close to its target as is currently possible. `updated` is the member after its request was
        applied."""
        group = self.group
        goal = TaskGoal(
            epoch=group.assignment_epoch,
            target=group.target_of(updated.member_id),
            unreleased_tasks=lambda: unreleased_tasks(group.members.values(), updated),
        )
        member = reconcile(updated, goal, owned)
        self.put_assignment(group.members[updated.member_id], member)
        return member

    def put_assignment(self, before: StreamsMember, member: StreamsMember) -> None:
        """Records the result of the reconciliation and starts or stops the member's revocation timer."""
        if member is before or member == before:
            return
        self.write(assignment_record(self.group.group_id, member))
        if member.state is StreamsMemberState.UNREVOKED_TASKS:
            self.begin_revocation(member)
        elif before.state is StreamsMemberState.UNREVOKED_TASKS:
            self.disarm(TimerKind.REVOCATION, member.member_id)

    def remove_member(self, member: StreamsMember) -> None:
        """Removes a member that is leaving or being replaced by another member. Its tasks become free immediately."""
        self.write(*member_tombstones(self.group.group_id, member.member_id))
        for kind in (TimerKind.SESSION, TimerKind.REVOCATION):
            self.disarm(kind, member.member_id)
        memory = self.group.memory
        offsets, end_offsets = dict(memory.task_offsets), dict(memory.task_end_offsets)
        offsets.pop(member.member_id, None)
        end_offsets.pop(member.member_id, None)
        self.set_memory(replace(memory, task_offsets=offsets, task_end_offsets=end_offsets))

    def remove(self, members: Iterable[StreamsMember]) -> None:
        """Removes members that have left or whose sessions have expired. If no members remain, a requested shutdown is
        cancelled."""
        for member in members:
            self.remove_member(member)
        self.members_left()
        if not self.group.members:
            self.set_memory(replace(self.group.memory, shutdown_by=None))
