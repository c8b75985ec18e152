"""A share group (KIP-932): its members, epochs, target assignment and state partitions, as its records tell.

Decisions work on a `copy`, to which they apply each record as they make it; the core replays the same records. What
no record tells stands in `ShareMemory` and comes from decisions by `Outcome.groups`; a restart begins it anew.
Source: docs/spec/share-groups.md#s2-2, #s2-9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from odradek.broker.groups.common.group import Committer, CoordinatorRecord, GroupType, Timer, TimerKey
from odradek.broker.groups.share.records import (
    NO_STATE,
    Partitions,
    ShareMember,
    StatePartitions,
    group_tombstones,
    state_of,
    stored_partitions,
    subscribed,
)
from odradek.protocol.errors import ErrorCode, KafkaError

FIRST_EPOCH = 1  # of a group without any record of it


@dataclass(frozen=True, slots=True)
class ShareMemory:
    """
    checked_version     of the cluster, whose topics the metadata hash is known to be of; None: to be checked
    initializing_since  when the share coordinator was last asked to begin state, in ms; None: before this process
    """

    checked_version: int | None = None
    initializing_since: int | None = None


class ShareGroup:
    FIELDS: ClassVar = (
        "assignment_epoch",
        "computed_ms",
        "epoch",
        "group_id",
        "members",
        "memory",
        "metadata_hash",
        "settled_version",
        "state",
        "targets",
    )
    __slots__ = FIELDS

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.computed_ms = 0  # when the target assignment was computed; 0: long ago
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.state: StatePartitions = NO_STATE
        self.memory = ShareMemory()
        # Of the cluster, for which this very object was found to need no other target and no further state.
        self.settled_version: int | None = None

    def copy(self) -> ShareGroup:
        twin = ShareGroup.__new__(ShareGroup)
        for name in self.FIELDS:
            setattr(twin, name, getattr(self, name))
        twin.members = self.members.copy()
        twin.targets = self.targets.copy()
        twin.settled_version = None
        return twin

    # What it is.

    @property
    def group_type(self) -> GroupType:
        return GroupType.SHARE

    @property
    def protocol_type(self) -> str:
        return "share"

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*(member.topics for member in self.members.values()))

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in member.topics for member in self.members.values())

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, {})

    # It has no committed offsets: progress is kept by the share coordinator.

    def check_offset_commit(self, committer: Committer) -> Sequence[Timer]:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

    def check_offset_delete(self) -> None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

    @property
    def keeps_offsets(self) -> bool:
        """It never expires."""
        return True

    @property
    def idle_since_ms(self) -> int | None:
        return None

    # Its end.

    def deletion_verdict(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def tombstones(self) -> list[CoordinatorRecord]:
        return group_tombstones(self.group_id)

    def running_timers(self) -> list[TimerKey]:
        return []

    # Replay.

    def replay(self, record: CoordinatorRecord) -> None:
        """One of keys 10 to 15. Compaction may have removed any that was overwritten."""
        REPLAYS[record.key.API_KEY](self, record.key, record.value)

    def _replay_member(self, key: Any, value: Any) -> None:
        if value is None:
            self.members.pop(key.member_id, None)
            return
        known = self.members.get(key.member_id) or ShareMember(key.member_id)
        self.members[key.member_id] = subscribed(known, value)

    def _replay_epoch(self, key: Any, value: Any) -> None:
        self.epoch = FIRST_EPOCH if value is None else value.epoch
        self.metadata_hash = 0 if value is None else value.metadata_hash

    def _replay_target_epoch(self, key: Any, value: Any) -> None:
        self.assignment_epoch = FIRST_EPOCH if value is None else value.assignment_epoch
        self.computed_ms = 0 if value is None else value.assignment_timestamp

    def _replay_target(self, key: Any, value: Any) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = stored_partitions(value.topic_partitions)

    def _replay_assignment(self, key: Any, value: Any) -> None:
        member = self.members.get(key.member_id)
        if value is None:
            if member is not None:
                self.members[key.member_id] = replace(member, epoch=0, previous_epoch=0, assigned={})
            return
        self.members[key.member_id] = replace(
            member or ShareMember(key.member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=stored_partitions(value.assigned_partitions),
        )

    def _replay_state(self, key: Any, value: Any) -> None:
        self.state = state_of(value)


REPLAYS: Mapping[int, Callable[[ShareGroup, Any, Any], None]] = {
    10: ShareGroup._replay_member,
    11: ShareGroup._replay_epoch,
    12: ShareGroup._replay_target_epoch,
    13: ShareGroup._replay_target,
    14: ShareGroup._replay_assignment,
    15: ShareGroup._replay_state,
}
