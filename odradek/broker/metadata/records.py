"""Encodes and decodes metadata records in Kafka's frame (frame version, type, version, body), and defines decisions
that contain records.

The first three fields of a frame are unsigned varints, and the frame version is 1. The finalised `metadata.version`
determines the version in which a record is written, so that Kafka can read the record at the same level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, NamedTuple, TypeVar

from odradek.broker.runtime.slices import Steps
from odradek.protocol.batch_header import HEADER_BYTES, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, seal_batch
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.protocol.records import append_record
from odradek.protocol.struct import Message

FRAME_VERSION = 1

# Maps each decoded record type to its module in protocol.messages. Records of all other types are ignored.
DECODED: Mapping[int, str] = {
    0: "register_broker_record",
    1: "unregister_broker_record",
    2: "topic_record",
    3: "partition_record",
    4: "config_record",
    5: "partition_change_record",
    9: "remove_topic_record",
    10: "delegation_token_record",
    11: "user_scram_credential_record",
    12: "feature_level_record",
    14: "client_quota_record",
    15: "producer_ids_record",
    17: "broker_registration_change_record",
    18: "access_control_entry_record",
    19: "remove_access_control_entry_record",
    22: "remove_user_scram_credential_record",
    23: "begin_transaction_record",
    24: "end_transaction_record",
    25: "abort_transaction_record",
    26: "remove_delegation_token_record",
    28: "clear_elr_record",
}
# Record types that Kafka 4.4.0 writes. The log may contain any of these types, but this broker ignores some of them.
KNOWN_TYPES = frozenset({*DECODED, 7, 8, 20, 21, 27, 29})

# For each record type, pairs of a metadata.version and the record version written at this level and above. Source:
# Kafka 4.3.1's table of metadata versions.
VERSIONS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "PartitionRecord": ((23, 2), (17, 1)),
    "PartitionChangeRecord": ((23, 2), (17, 1)),
    "RegisterBrokerRecord": ((30, 4), (17, 3), (8, 2), (7, 1)),
}


@dataclass(frozen=True, slots=True)
class IgnoredRecord:
    """A record that this broker ignores because it does not use the type, or does not know the type or version."""

    record_type: int
    version: int
    is_known: bool


def record_version(record: Message, metadata_version: int) -> int:
    """Returns the version in which a record is written at this level of metadata.version. For BrokerRegistrationChange,
    this is the lowest version that has all of the record's fields."""
    for since, version in VERSIONS.get(type(record).__name__, ()):
        if metadata_version >= since:
            return version
    if type(record).__name__ == "BrokerRegistrationChangeRecord":
        return _min_version(record)
    return 0


def _min_version(record: Any) -> int:
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0


def encode_record(record: Message, metadata_version: int) -> bytes:
    """Encodes a record as a value for the metadata log."""
    version = record_version(record, metadata_version)
    return bytes((FRAME_VERSION, record.API_KEY, version)) + encode(record, version)


def decode_record(value: bytes) -> Message | IgnoredRecord:
    """Decodes a value from the metadata log. Raises MalformedMessage."""
    if len(value) < 3 or value[0] != FRAME_VERSION:
        raise MalformedMessage(
            f"the frame of a metadata record has the unsupported version {value[0] if value else None}"
        )
    record_type, position = _read_unsigned(value, 1)
    version, position = _read_unsigned(value, position)
    record_class = _class_of(record_type)
    if record_class is None:
        return IgnoredRecord(record_type, version, record_type in KNOWN_TYPES)
    if version > record_class.MAX_VERSION:
        return IgnoredRecord(record_type, version, False)
    return decode(record_class, version, value, position)


def record_batch(values: Iterable[bytes], now_ms: int, *, leader_epoch: int) -> Steps[bytearray]:
    """Builds one batch of encoded records, with offsets starting at 0. As in Kafka, records that belong together form
    one batch.

    Adds one record in each step. Raises ValueError if there are no records.
    """
    batch, count = bytearray(HEADER_BYTES), 0
    for count, value in enumerate(values, 1):
        append_record(batch, count - 1, 0, None, value)
        yield
    if not count:
        raise ValueError("a batch must have at least one record")
    producer = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
    seal_batch(batch, 0, leader_epoch, 0, count - 1, now_ms, now_ms, *producer, count)
    return batch


_classes: dict[int, type[Message] | None] = {}


def _class_of(record_type: int) -> type[Message] | None:
    if record_type not in _classes:
        module_name = DECODED.get(record_type)
        if module_name is None:
            return None
        class_name = "".join(word.capitalize() for word in module_name.split("_"))
        _classes[record_type] = getattr(import_module(f"odradek.protocol.messages.{module_name}"), class_name)
    return _classes[record_type]


def _read_unsigned(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 28:
            raise MalformedMessage("a metadata record's frame is cut short")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


R = TypeVar("R")

MAX_RECORDS = 10_000  # limit for one decision, as in Kafka, because a decision is committed in one batch


def require_one_batch(records: Sequence[Message]) -> None:
    """Raises POLICY_VIOLATION if there are more than MAX_RECORDS records."""
    if len(records) > MAX_RECORDS:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


class Decision(NamedTuple, Generic[R]):
    """A decision that has not taken effect yet. `records` must be committed and replayed before `response` is sent."""

    response: R
    records: tuple[Message, ...] = ()
