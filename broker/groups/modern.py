"""Groups of the newer protocols (KIP-848 consumer groups, share and streams groups), as far as this broker serves them.

Not handled: their heartbeats. What Kafka recorded about them is kept, so that they are listed with their state, their
offsets can be fetched, committed by nobody's name, deleted and expired, and Kafka or a later release carries on from
the same records. Their members do not time out here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.groups.records import SHORT
from broker.groups.tables import GroupType
from broker.groups.turn import CoordinatorRecord
from protocol.codec import encode
from protocol.errors import ErrorCode, KafkaError
from protocol.struct import Message

GROUP_TYPE_OF_RECORD: Mapping[int, GroupType] = {
    **dict.fromkeys((3, 4, 5, 6, 7, 8, 16), GroupType.CONSUMER),
    **dict.fromkeys((10, 11, 12, 13, 14, 15), GroupType.SHARE),
    **dict.fromkeys((17, 19, 20, 21, 22, 23), GroupType.STREAMS),
}
PROTOCOL_TYPE: Mapping[GroupType, str] = {
    GroupType.CONSUMER: "consumer",
    GroupType.SHARE: "share",
    GroupType.STREAMS: "streams",
}
GROUP_EPOCH = frozenset({3, 11, 17})  # the record without which there is no such group
MEMBER_METADATA = frozenset({5, 10, 19})
ASSIGNMENT_EPOCH = frozenset({6, 12, 20})
CURRENT_ASSIGNMENT = frozenset({8, 14, 22})
SETTLED = 0  # a member's `state` once it has given up and been given what the target says


@dataclass(slots=True)
class ModernMember:
    topics: frozenset[str] = frozenset()
    topic_regex: str = ""
    member_epoch: int = 0
    is_settled: bool = True


class ModernGroup:
    def __init__(self, group_id: str, group_type: GroupType) -> None:
        self.group_id = group_id
        self.group_type = group_type
        self.group_epoch: int | None = None
        self.assignment_epoch = 0
        self.members: dict[str, ModernMember] = {}
        self._keys: dict[bytes, Message] = {}  # of all records that are not tombstones, oldest first

    @property
    def exists(self) -> bool:
        return self.group_epoch is not None

    @property
    def is_forgotten(self) -> bool:
        return not self._keys

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

    def is_subscribed_to(self, topic: str) -> bool:
        """A regular expression may match anything: it is Kafka that resolves it, and we would rather keep too much."""
        return any(topic in each.topics or each.topic_regex for each in self.members.values())

    def check_offset_commit(self, member_id: str, member_epoch: int, *, version: int) -> None:
        if self.group_type is GroupType.SHARE:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if member_epoch < 0 and not self.members:
            return
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if version < 9:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if member_epoch != member.member_epoch:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    def check_txn_offset_commit(self, member_id: str, group_instance_id: str | None, member_epoch: int) -> None:
        """A producer need not say whose offsets it commits; what it does say must be right."""
        if self.group_type is GroupType.SHARE:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        is_anonymous = member_id == "" and group_instance_id is None
        if member_epoch < 0 and (is_anonymous or not self.members):
            return
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member_epoch != member.member_epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if self.group_type is GroupType.SHARE:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if member_id is None and member_epoch < 0:
            return
        member = self.members.get(member_id or "")
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member_epoch != member.member_epoch:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    def tombstones(self) -> list[CoordinatorRecord]:
        """All that is recorded about the group, latest first: it ends with the record that makes it one."""
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
            # Compaction may have left it in front of the member's own record.
            member = self.members.setdefault(key.member_id, ModernMember())
            member.member_epoch, member.is_settled = value.member_epoch, value.state == SETTLED

    def _replay_member(self, member_id: str, value: Any) -> None:
        if value is None:
            self.members.pop(member_id, None)
            return
        member = self.members.setdefault(member_id, ModernMember())
        # Streams members subscribe through their topology, which is not read here.
        member.topics = frozenset(getattr(value, "subscribed_topic_names", ()))
        member.topic_regex = getattr(value, "subscribed_topic_regex", None) or ""
