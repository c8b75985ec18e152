"""Groups of a type that this broker does not coordinate. Their records are kept as Kafka wrote them.

The groups are listed with their state. Their offsets can be fetched, committed without a member id, deleted and
expired. Kafka or a later release can continue from the same records. Their members do not time out here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from odradek.broker.groups.common.group import Committer, CoordinatorRecord, Group, GroupType, Timer, TimerKey
from odradek.broker.groups.common.outcome import Outcome, Reply
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.broker.groups.records import SHORT
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.struct import Message

PROTOCOL_TYPE: Final[Mapping[GroupType, str]] = {
    GroupType.CONSUMER: "consumer",
    GroupType.SHARE: "share",
    GroupType.STREAMS: "streams",
}
GROUP_EPOCH: Final = frozenset({3, 11, 17})  # record types without which the group does not exist
MEMBER_METADATA: Final = frozenset({5, 10, 19})
ASSIGNMENT_EPOCH: Final = frozenset({6, 12, 20})
CURRENT_ASSIGNMENT: Final = frozenset({8, 14, 22})
MEMBER_EPOCHS_SINCE: Final = 9  # version of OffsetCommit
SETTLED: Final = 0  # `state` of a member whose assignment equals its target


@dataclass(slots=True)
class RecordedMember:
    topics: frozenset[str] = frozenset()
    topic_regex: str = ""
    member_epoch: int = 0
    is_settled: bool = True


class RecordedGroup:
    def __init__(self, group_id: str, group_type: GroupType) -> None:
        self.group_id = group_id
        self.group_type = group_type
        self.group_epoch: int | None = None
        self.assignment_epoch = 0
        self.members: dict[str, RecordedMember] = {}
        self._keys: dict[bytes, Message] = {}  # keys of all records that are not tombstones, oldest first

    @property
    def is_forgotten(self) -> bool:
        return not self._keys

    @property
    def protocol_type(self) -> str:
        return PROTOCOL_TYPE[self.group_type]

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.group_type is GroupType.SHARE:
            return "Stable"
        if self.group_epoch is not None and self.group_epoch > self.assignment_epoch:
            return "Assigning"
        if all(each.is_settled and each.member_epoch == self.assignment_epoch for each in self.members.values()):
            return "Stable"
        return "Reconciling"

    def subscription(self) -> Callable[[str], bool]:
        """Returns the subscription check. Only Kafka resolves regular expressions, so a group with one counts as
        subscribed to every topic; this keeps too many offsets rather than too few."""
        if any(each.topic_regex for each in self.members.values()):
            return lambda _: True
        return frozenset().union(*(each.topics for each in self.members.values())).__contains__

    # Offsets.

    def check_offset_commit(self, committer: Committer) -> Sequence[Timer]:
        """Refuses the commit if the member or its epoch is wrong. A producer may omit the member, but what it sends
        must be correct."""
        self._require_offsets()
        if committer.epoch < 0 and (not self.members or (committer.is_transactional and committer.is_anonymous)):
            return ()
        member = self.members.get(committer.member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if committer.version is not None and committer.version < MEMBER_EPOCHS_SINCE:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if committer.epoch != member.member_epoch:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)
        return ()

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        self._require_offsets()
        if member_id is None and member_epoch < 0:
            return
        member = self.members.get(member_id or "")
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member_epoch != member.member_epoch:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    def check_offset_delete(self) -> None:
        self._require_offsets()

    @property
    def keeps_offsets(self) -> bool:
        """Always true: subscriptions of streams groups are not read, and share groups have no offsets."""
        return True

    @property
    def idle_since_ms(self) -> int | None:
        return None

    def _require_offsets(self) -> None:
        if self.group_type is GroupType.SHARE:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

    # Deletion.

    def deletion_verdict(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def running_timers(self) -> list[TimerKey]:
        return []

    def tombstones(self) -> list[CoordinatorRecord]:
        """Returns tombstones for all records of the group. The epoch record, without which it does not exist, comes
        last."""
        return [
            CoordinatorRecord(key, None)
            for key in sorted(self._keys.values(), key=lambda key: key.API_KEY in GROUP_EPOCH)
        ]

    def replay(self, record: CoordinatorRecord) -> None:
        key: Any = record.key
        value: Any = record.value
        key_bytes = SHORT.pack(key.API_KEY) + encode(record.key, 0)
        if value is None:
            self._keys.pop(key_bytes, None)
        else:
            self._keys[key_bytes] = record.key
        record_type = key.API_KEY
        if record_type in GROUP_EPOCH:
            self.group_epoch = None if value is None else value.epoch
        elif record_type in ASSIGNMENT_EPOCH:
            self.assignment_epoch = 0 if value is None else value.assignment_epoch
        elif record_type in MEMBER_METADATA:
            self._replay_member(key.member_id, value)
        elif record_type in CURRENT_ASSIGNMENT and value is not None:
            # Compaction may have moved this record before the member's own record.
            member = self.members.setdefault(key.member_id, RecordedMember())
            member.member_epoch, member.is_settled = value.member_epoch, value.state == SETTLED

    def _replay_member(self, member_id: str, value: Any) -> None:
        if value is None:
            self.members.pop(member_id, None)
            return
        member = self.members.setdefault(member_id, RecordedMember())
        # Members of streams groups subscribe through their topology, which is not read here.
        member.topics = frozenset(getattr(value, "subscribed_topic_names", ()))
        member.topic_regex = getattr(value, "subscribed_topic_regex", None) or ""


def replay(registry: GroupRegistry, record: CoordinatorRecord, group_type: GroupType) -> None:
    group_id: str = record.key.group_id  # type: ignore[attr-defined]  # every key of these types has one
    group = registry.groups.get(group_id)
    if not isinstance(group, RecordedGroup) or group.group_type is not group_type:
        if record.value is None:
            return
        group = registry.groups[group_id] = RecordedGroup(group_id, group_type)
    group.replay(record)
    if group.is_forgotten:
        del registry.groups[group_id]


def on_loaded(registry: GroupRegistry, group: Group, now_ms: int) -> Outcome[None]:
    return Outcome()


def on_timer(registry: GroupRegistry, group: Group, key: TimerKey, now_ms: int) -> Outcome[None]:
    return Outcome()


def unload(group: Group, code: ErrorCode) -> list[Reply]:
    return []
