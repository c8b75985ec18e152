"""Decodes control records and the records of internal topics.

In a coordinator's topic, a key begins with the record's type, and a value begins with its version. Both are int16
values. A record of the metadata log begins with three unsigned varints: frame version, type and version. The formats
are described in docs/formats.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from construct import ConstructError, Int16sb, Int32sb, Struct, Tell, VarInt

from odradek.protocol.codec import decode
from odradek.protocol.control_records import ControlType, control_type
from odradek.protocol.decoded.messages import as_tree
from odradek.protocol.errors import MalformedMessage, UnsupportedVersion
from odradek.protocol.kafka_json import kafka_json
from odradek.protocol.messages import MODULES, message_class
from odradek.protocol.records import Record
from odradek.protocol.schema import load
from odradek.protocol.topic_partition import CLUSTER_METADATA, GROUP_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

VERSION = Int16sb
CONTROL_KEY = Struct("version" / Int16sb, "type" / Int16sb)
END_TXN_MARKER = Struct("version" / Int16sb, "coordinatorEpoch" / Int32sb)
METADATA_FRAME = Struct("frameVersion" / VarInt, "type" / VarInt, "version" / VarInt, "end" / Tell)

# The module that defines the message in each type of control record. Each message's first field is its version.
CONTROL_VALUES: Mapping[ControlType, str] = {
    ControlType.LEADER_CHANGE: "leader_change_message",
    ControlType.SNAPSHOT_HEADER: "snapshot_header_record",
    ControlType.SNAPSHOT_FOOTER: "snapshot_footer_record",
    ControlType.KRAFT_VERSION: "kraft_version_record",
    ControlType.KRAFT_VOTERS: "voters_record",
}

KEY_VERSION = 0
SHARE_STATE_MODULES = ("share_snapshot", "share_update")  # their type numbers are also used for committed offsets
METADATA_FRAME_VERSION = 1
CLASSIC_GROUP, CONSUMERS = "GroupMetadata", "consumer"
CONSUMER_PROTOCOL = {"subscription": "consumer_protocol_subscription", "assignment": "consumer_protocol_assignment"}
REMOTE_LOG = "remote_"  # excluded: tiered storage uses the same type numbers in a different topic

TXN_STATES: Mapping[int, str] = {
    0: "Empty",
    1: "Ongoing",
    2: "PrepareCommit",
    3: "PrepareAbort",
    4: "CompleteCommit",
    5: "CompleteAbort",
}


def control_fields(record: Record) -> dict[str, Any]:
    """Decodes a control record. Raises MalformedMessage."""
    kind = control_type(record.key)
    value = record.value or b""
    if kind is None:
        assert record.key is not None
        return {"control": CONTROL_KEY.parse(record.key).type, "key": record.key, "value": record.value}
    if kind in (ControlType.COMMIT, ControlType.ABORT):
        if len(value) < END_TXN_MARKER.sizeof():
            raise MalformedMessage(
                f"the value of the {kind.name} marker has {len(value)} bytes, but must have at least"
                f" {END_TXN_MARKER.sizeof()}"
            )
        return {"control": kind.name, "coordinatorEpoch": END_TXN_MARKER.parse(value).coordinatorEpoch}
    if len(value) < VERSION.sizeof():
        raise MalformedMessage(f"the value of the {kind.name} control record is too short to contain a version")
    return {"control": kind.name, "data": as_tree(CONTROL_VALUES[kind], VERSION.parse(value), value, 0)}


def fields_of(topic: str | None) -> Callable[[Record], dict[str, Any]]:
    """Returns the function that decodes this topic's records. For a topic that is not internal, the function returns
    keys and values unchanged."""
    return READERS.get(topic or "", plain_fields)


def plain_fields(record: Record) -> dict[str, Any]:
    return {"key": record.key, "value": record.value}


def transaction_fields(record: Record) -> dict[str, Any]:
    fields = _coordinator_fields(record, {0: "transaction_log"})
    value = fields["value"]
    if isinstance(value, dict):  # records of an unknown type are not decoded
        status = value["data"]["transactionStatus"]
        state = TXN_STATES.get(status, f"unknown ({status})")
        return {"type": fields["type"], "state": state, "key": fields["key"], "value": value}
    return fields


def group_fields(record: Record) -> dict[str, Any]:
    fields = _coordinator_fields(record, group_types())
    if fields["type"] == CLASSIC_GROUP and fields["value"] is not None:
        group = fields["value"]["data"]
        if group["protocolType"] == CONSUMERS:
            for member in group["members"]:
                for part, module in CONSUMER_PROTOCOL.items():
                    member[part] = _consumer_protocol_value(module, member[part])
    return fields


def _consumer_protocol_value(module: str, encoded: str) -> Any:
    """Decodes the data exchanged by the members of a classic group. Returns the data unchanged if it is not encoded in
    the consumer protocol."""
    data = b64decode(encoded)
    if len(data) < VERSION.sizeof():
        return encoded
    try:
        # Later versions begin with the same fields as the latest known version.
        version = min(VERSION.parse(data), message_class(module).MAX_VERSION)
        return kafka_json(decode(message_class(module), version, data, VERSION.sizeof()), version)
    except (MalformedMessage, UnsupportedVersion):
        return encoded


def share_fields(record: Record) -> dict[str, Any]:
    return _coordinator_fields(record, share_types())


def metadata_fields(record: Record) -> dict[str, Any]:
    value = record.value
    if value is None:
        raise MalformedMessage("the metadata record has no value")
    try:
        frame = METADATA_FRAME.parse(value)
    except ConstructError:
        raise MalformedMessage("the metadata record ends within its frame") from None
    if frame.frameVersion != METADATA_FRAME_VERSION:
        raise MalformedMessage(
            f"the frame of the metadata record has version {frame.frameVersion}; only version 1 is supported"
        )
    module = metadata_types().get(frame.type)
    if module is None:
        return {"type": frame.type, "version": frame.version, "value": value[frame.end :]}
    data = as_tree(module, frame.version, value, frame.end)
    return {"type": MODULES[module], "version": frame.version, "data": data}


@cache
def group_types() -> Mapping[int, str]:
    """Returns the module name, without `_key` or `_value`, for each type that a `__consumer_offsets` key can have."""
    return _coordinator_types(lambda module: not module.startswith(("transaction_log", *SHARE_STATE_MODULES)))


@cache
def share_types() -> Mapping[int, str]:
    return _coordinator_types(lambda module: module.startswith(SHARE_STATE_MODULES))


def _coordinator_types(belongs: Callable[[str], bool]) -> Mapping[int, str]:
    keys = [module for module in MODULES if module.endswith("_key") and belongs(module)]
    found = {load(module).key: module.removesuffix("_key") for module in keys}
    return {kind: module for kind, module in found.items() if kind is not None}


@cache
def metadata_types() -> Mapping[int, str]:
    modules = [module for module in MODULES if module.endswith("_record") and not module.startswith(REMOTE_LOG)]
    schemas = [load(module) for module in modules]
    return {schema.key: schema.module for schema in schemas if schema.kind == "metadata" and schema.key is not None}


def _coordinator_fields(record: Record, types: Mapping[int, str]) -> dict[str, Any]:
    size = VERSION.sizeof()
    if record.key is None or len(record.key) < size:
        raise MalformedMessage("the key is too short to contain a record type")
    kind = VERSION.parse(record.key)
    module = types.get(kind)
    if module is None:
        return {"type": kind, "key": record.key, "value": record.value}
    key = as_tree(f"{module}_key", KEY_VERSION, record.key, size)
    fields: dict[str, Any] = {"type": MODULES[f"{module}_key"].removesuffix("Key"), "key": key, "value": None}
    if record.value is not None:
        if len(record.value) < size:
            raise MalformedMessage("the value is too short to contain a version")
        version = VERSION.parse(record.value)
        fields["value"] = {"version": version, "data": as_tree(f"{module}_value", version, record.value, size)}
    return fields


READERS: Mapping[str, Callable[[Record], dict[str, Any]]] = {
    TRANSACTION_STATE: transaction_fields,
    GROUP_OFFSETS: group_fields,
    SHARE_GROUP_STATE: share_fields,
    CLUSTER_METADATA: metadata_fields,
}
