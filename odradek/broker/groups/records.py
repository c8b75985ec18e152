"""Encodes and decodes the records of `__consumer_offsets`. See docs/formats/consumer-offsets.md."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from importlib import import_module
from typing import Final, cast

from odradek.broker.groups.common.group import CoordinatorRecord
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.struct import Message

SHORT: Final = struct.Struct(">h")
VERSION_BYTES: Final = 2
KEY_VERSION: Final = 0  # the version of every key; the number stored before a key is the record type
OFFSET_COMMIT_VERSION: Final = 4
# The only version that stores an expiry time. It stores neither a leader epoch nor a topic id.
OFFSET_COMMIT_VERSION_WITH_EXPIRY: Final = 1

# The module and the class prefix for each record type. A module is imported when its first record is read, because most
# logs contain only two record types.
TYPES: Final[Mapping[int, tuple[str, str]]] = {
    0: ("legacy_offset_commit", "LegacyOffsetCommit"),
    1: ("offset_commit", "OffsetCommit"),
    2: ("group_metadata", "GroupMetadata"),
    3: ("consumer_group_metadata", "ConsumerGroupMetadata"),
    4: ("consumer_group_partition_metadata", "ConsumerGroupPartitionMetadata"),
    5: ("consumer_group_member_metadata", "ConsumerGroupMemberMetadata"),
    6: ("consumer_group_target_assignment_metadata", "ConsumerGroupTargetAssignmentMetadata"),
    7: ("consumer_group_target_assignment_member", "ConsumerGroupTargetAssignmentMember"),
    8: ("consumer_group_current_member_assignment", "ConsumerGroupCurrentMemberAssignment"),
    10: ("share_group_member_metadata", "ShareGroupMemberMetadata"),
    11: ("share_group_metadata", "ShareGroupMetadata"),
    12: ("share_group_target_assignment_metadata", "ShareGroupTargetAssignmentMetadata"),
    13: ("share_group_target_assignment_member", "ShareGroupTargetAssignmentMember"),
    14: ("share_group_current_member_assignment", "ShareGroupCurrentMemberAssignment"),
    15: ("share_group_state_partition_metadata", "ShareGroupStatePartitionMetadata"),
    16: ("consumer_group_regular_expression", "ConsumerGroupRegularExpression"),
    17: ("streams_group_metadata", "StreamsGroupMetadata"),
    19: ("streams_group_member_metadata", "StreamsGroupMemberMetadata"),
    20: ("streams_group_target_assignment_metadata", "StreamsGroupTargetAssignmentMetadata"),
    21: ("streams_group_target_assignment_member", "StreamsGroupTargetAssignmentMember"),
    22: ("streams_group_current_member_assignment", "StreamsGroupCurrentMemberAssignment"),
    23: ("streams_group_topology", "StreamsGroupTopology"),
}
_classes: dict[int, tuple[type[Message], type[Message]]] = {}


def decode_record(key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
    """Decodes a record. Returns None if the record type is unknown, because a later Kafka release may have written the
    record. Kafka skips records of unknown types too.

    Raises MalformedMessage if the record is invalid in any other way.
    """
    if key is None or len(key) < VERSION_BYTES:
        raise MalformedMessage("the key of a record in __consumer_offsets has no type")
    record_type = SHORT.unpack_from(key)[0]
    if record_type not in TYPES:
        return None
    key_class, value_class = _classes_of(record_type)
    typed_key = decode(key_class, KEY_VERSION, key, VERSION_BYTES)
    if value is None:
        return CoordinatorRecord(typed_key, None)
    if len(value) < VERSION_BYTES:
        raise MalformedMessage("the value of a record in __consumer_offsets has no version")
    version = SHORT.unpack_from(value)[0]
    if not value_class.MIN_VERSION <= version <= value_class.MAX_VERSION:
        raise MalformedMessage(f"a {value_class.__name__} in __consumer_offsets has the unsupported version {version}")
    return CoordinatorRecord(typed_key, decode(value_class, version, value, VERSION_BYTES), version)


def encode_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    if record.prepared is not None:
        return record.prepared.key, record.prepared.value
    key = SHORT.pack(record.key.API_KEY) + encode(record.key, KEY_VERSION)
    if record.value is None:
        return key, None
    return key, SHORT.pack(record.value_version) + encode(record.value, record.value_version)


def _classes_of(record_type: int) -> tuple[type[Message], type[Message]]:
    classes = _classes.get(record_type)
    if classes is None:
        module, name = TYPES[record_type]
        classes = _classes[record_type] = (
            cast(type[Message], getattr(import_module(f"odradek.protocol.messages.{module}_key"), f"{name}Key")),
            cast(type[Message], getattr(import_module(f"odradek.protocol.messages.{module}_value"), f"{name}Value")),
        )
    return classes


# Offsets.


def offset_commit_record(group_id: str, topic: str, partition: int, value: OffsetCommitValue) -> CoordinatorRecord:
    expires = value.expire_timestamp != -1
    return CoordinatorRecord(
        OffsetCommitKey(group=group_id, topic=topic, partition=partition),
        value,
        OFFSET_COMMIT_VERSION_WITH_EXPIRY if expires else OFFSET_COMMIT_VERSION,
    )


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
