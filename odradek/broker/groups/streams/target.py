"""Computes the target assignment of a streams group.

One decision about the group takes a snapshot and starts the computation. If the group is large, the broker handles
other requests while the computation runs, and a later decision records the result. The computation also encodes the
records, one member at a time, so that the later decision only has to append them in a single batch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import NamedTuple

from odradek.broker.groups.common.group import CoordinatorRecord
from odradek.broker.groups.streams.assignors.group_view import GroupView, MemberView, TargetAssignment
from odradek.broker.groups.streams.assignors.sticky import assign_sticky
from odradek.broker.groups.streams.configured_topology import ConfiguredTopology
from odradek.broker.groups.streams.group import ReportedOffset, StreamsGroup
from odradek.broker.groups.streams.member import StreamsMember
from odradek.broker.groups.streams.records import prepared_target_record, target_record


class ComputedTarget(NamedTuple):
    """A computed target assignment, and the state for which it was computed.

    epoch    the group epoch when the computation began
    inputs   `GroupMetadata.assignment_inputs` at that time
    targets  the new target of every member that the group had at that time
    before   the group's targets at that time, by member id
    records  the records of the members whose new target differs from their target in `before`
    """

    epoch: int
    inputs: tuple[object, ...]
    targets: TargetAssignment
    before: TargetAssignment
    records: Mapping[str, CoordinatorRecord]

    def is_usable_for(self, group: StreamsGroup) -> bool:
        """Returns whether the group can still use this target. Members may have joined or left since the computation
        began.

        The target is recorded with the epoch for which it was computed, as if it had been computed immediately. If the
        group's epoch has advanced since then, another target follows, so even a group whose members change constantly
        gets targets.

        A target is unusable if it was computed for other topics or settings, or if it is older than the group's current
        target. If no other target will follow because the epoch has not advanced, the target must contain every member.
        Otherwise, a static member that replaced another member without advancing the epoch would never get a target.
        """
        if not group.assignment_epoch < self.epoch <= group.epoch or self.inputs != group.metadata.assignment_inputs:
            return False
        return group.epoch > self.epoch or group.members.keys() <= self.targets.keys()

    def records_for(self, group: StreamsGroup) -> Iterator[CoordinatorRecord]:
        """Yields a record for each member that is still in the group and whose new target differs from its current
        target."""
        for member_id, target in self.targets.items():
            if member_id not in group.members:
                continue
            current = group.targets.get(member_id)
            record = self.records.get(member_id)
            # If the current target is still the same object as in `before`, it was compared when the records were
            # encoded.
            if current is None or current is not self.before.get(member_id):
                record = None if current == target else record or target_record(group.group_id, member_id, target)
            if record is not None:
                yield record


def work_of_target(group: StreamsGroup, configured: ConfiguredTopology, replicas: int) -> int:
    """Returns the amount of work as the number of active and standby tasks to assign plus the number of members."""
    tasks = sum(configured.task_counts.values())
    stateful = sum(configured.task_counts[each] for each in configured.stateful)
    return len(group.members) + tasks + stateful * replicas


def target_of_members(
    group: StreamsGroup, configured: ConfiguredTopology, replicas: int, joining: str | None
) -> Generator[None, None, ComputedTarget]:
    """Takes a snapshot of the group and returns a generator that computes the target. The group may change while the
    generator runs.

    joining  the id of the member whose first heartbeat triggers the assignment, or None
    """
    members, offsets = [*group.members.values()], group.memory.task_offsets
    group_id, epoch, inputs, before = (
        group.group_id,
        group.epoch,
        group.metadata.assignment_inputs,
        group.targets.copy(),
    )

    def steps() -> Generator[None, None, ComputedTarget]:
        views = {}
        for member in members:
            views[member.member_id] = _view(member, offsets)
            yield
        view = GroupView(views, configured.task_counts, configured.stateful, replicas, joining)
        targets = yield from assign_sticky(view)
        records = yield from _changed_records(group_id, before, targets)
        return ComputedTarget(epoch, inputs, targets, before, records)

    return steps()


def _changed_records(
    group_id: str, before: TargetAssignment, targets: TargetAssignment
) -> Generator[None, None, Mapping[str, CoordinatorRecord]]:
    """Returns the records of the targets that have changed, by member id. A target has changed if it differs from the
    target of the same member in `before`.

    The generator yields after each member, so that the caller can continue in the next turn of the event loop.
    """
    records = {}
    for member_id, target in targets.items():
        if before.get(member_id) != target:
            records[member_id] = prepared_target_record(group_id, member_id, target)
        yield
    return records


def _view(member: StreamsMember, offsets: Mapping[str, Sequence[ReportedOffset]]) -> MemberView:
    roles = member.assigned.roles
    return MemberView(
        member.process_id,
        roles.active,
        roles.standby,
        {(each.subtopology_id, each.partition): each.offset for each in offsets.get(member.member_id, ())},
    )
