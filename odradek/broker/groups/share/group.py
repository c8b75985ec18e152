"""A share group (KIP-932), with the members, epochs, target assignment and state partitions that its records store.

Source: docs/spec/share-groups.md#s2-2, #s2-9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from odradek.broker.groups.common.epochs import EpochGroup, EpochMemory, Partitions, stored_partitions
from odradek.broker.groups.common.group import Committer, CoordinatorRecord, GroupType, Timer
from odradek.broker.groups.share.records import (
    NO_STATE,
    ShareMember,
    StatePartitions,
    group_tombstones,
    state_of,
    with_subscription,
)
from odradek.protocol.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class ShareMemory(EpochMemory):
    """The part of a share group's state that is not recorded.

    initializing_since  time in ms at which this broker process last asked the share coordinator to initialise state;
                        None if it has not done so yet
    """

    initializing_since: int | None = None


class ShareGroup(EpochGroup[ShareMember, ShareMemory, Partitions]):
    FIELDS: ClassVar = (*EpochGroup.FIELDS, "settled_version", "state")
    __slots__ = ("settled_version", "state")

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, ShareMemory())
        self.state: StatePartitions = NO_STATE
        # The cluster metadata version for which this group needs neither a new target nor more share state.
        self.settled_version: int | None = None

    def copy(self) -> ShareGroup:
        twin = super().copy()
        twin.settled_version = None
        return twin

    # Properties.

    @property
    def group_type(self) -> GroupType:
        return GroupType.SHARE

    @property
    def protocol_type(self) -> str:
        return "share"

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    def topics_of(self, member: ShareMember) -> frozenset[str]:
        return member.topics

    # Share groups have no committed offsets: the share coordinator stores their progress.

    def check_offset_commit(self, committer: Committer) -> Sequence[Timer]:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

    def check_offset_delete(self) -> None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

    @property
    def keeps_offsets(self) -> bool:
        """Always true: a share group has no offsets that could expire, so expiry never removes the group."""
        return True

    # Deletion.

    def tombstones(self) -> list[CoordinatorRecord]:
        return group_tombstones(self.group_id)

    # Replay.

    def replay(self, record: CoordinatorRecord) -> None:
        """Applies a record of type 10 to 15. Earlier records can be missing, because compaction removes a record once a
        later record with the same key exists."""
        REPLAYS[record.key.API_KEY](self, record.key, record.value)

    def _replay_member(self, key: Any, value: Any) -> None:
        if value is None:
            self.members.pop(key.member_id, None)
            return
        existing = self.members.get(key.member_id) or ShareMember(key.member_id)
        self.members[key.member_id] = with_subscription(existing, value)

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
