"""Maps the ids in a recording to the live broker's ids and translates requests accordingly."""

from __future__ import annotations

import struct
from collections.abc import Hashable
from typing import Any, Final

from odradek.protocol.batch_header import CRC_START, batches
from odradek.protocol.checksum import crc32c
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.schema import Field, Schema, load
from odradek.protocol.struct import ZERO_UUID, Message, Struct

# The kind of id in each field, keyed by Kafka's field name. Different kinds of ids are mapped separately.
KINDS: Final = {
    **dict.fromkeys(("TopicId",), "topic"),
    **dict.fromkeys(("ProducerId", "OngoingTxnProducerId"), "producer"),
    **dict.fromkeys(("MemberId", "MemberIds", "Leader"), "member"),
    **dict.fromkeys(("SessionId",), "fetch session"),
    **dict.fromkeys(("ClusterId",), "cluster"),
    **dict.fromkeys(("ClientInstanceId",), "client instance"),
    **dict.fromkeys(("SubscriptionId",), "telemetry subscription"),
    **dict.fromkeys(
        ("NodeId", "LeaderId", "ControllerId", "BrokerId", "ReplicaNodes", "IsrNodes", "OfflineReplicas"), "node"
    ),
}
NO_IDS: Final[frozenset[Hashable]] = frozenset({None, "", 0, -1, ZERO_UUID})
NO_PRODUCER: Final = -1  # means "no producer"; unlike other ids, 0 is a valid producer id
_PRODUCER_AT: Final = 43
_CRC_AT: Final = 17


class IdMap:
    """A map from each recorded id to its live id, learned from pairs of responses."""

    def __init__(self) -> None:
        self._live: dict[str, dict[Hashable, Hashable]] = {}
        self._recorded: dict[str, dict[Hashable, Hashable]] = {}

    def agree(self, kind: str, recorded: Hashable, live: Hashable) -> bool:
        """Returns whether the two ids correspond. If neither id has been seen before, records that they correspond.
        Several recorded nodes can correspond to one live node."""
        if kind == "node":
            return self._live.setdefault(kind, {-1: -1}).setdefault(recorded, live) == live
        no_ids = {NO_PRODUCER} if kind == "producer" else NO_IDS
        if recorded in no_ids or live in no_ids:
            return recorded == live
        is_known = self._live.setdefault(kind, {}).setdefault(recorded, live) == live
        return self._recorded.setdefault(kind, {}).setdefault(live, recorded) == recorded and is_known

    def live(self, kind: str, recorded: Any) -> Any:
        """Returns the live id for a recorded id, or the recorded id itself if no live id is known. Ids that clients
        choose are the same on both sides."""
        return self._live.get(kind, {}).get(recorded, recorded)

    def translate(self, request: Message, version: int) -> bool:
        """Replaces the ids in a request with live ids, in place. Returns whether the request was changed."""
        schema = load(type(request).__module__.rpartition(".")[2])
        return self._translate(request, schema.fields, schema, version)

    def _translate(self, struct_: Struct, fields: tuple[Field, ...], schema: Schema, version: int) -> bool:
        is_changed = False
        for field in fields:
            value = getattr(struct_, field.attribute)
            if version not in field.versions or value is None:
                continue
            if field.is_struct:
                inner = schema.structs[field.type]
                for each in value if field.is_array else [value]:
                    is_changed |= self._translate(each, inner, schema, version)
                continue
            if field.type == "records":
                changed: Any = self._batches(value)
            elif (kind := KINDS.get(field.name)) is not None:
                changed = [self.live(kind, each) for each in value] if field.is_array else self.live(kind, value)
            else:
                continue
            if changed != value:
                setattr(struct_, field.attribute, changed)
                is_changed = True
        return is_changed

    def _batches(self, records: Any) -> Any:
        """Returns the record batches with live producer ids and updated CRCs."""
        if isinstance(records, list):
            records = b"".join(records)
        changed: bytearray | None = None
        try:
            for position, header in batches(records):
                live = self.live("producer", header.producer_id)
                if live != header.producer_id:
                    changed = bytearray(records) if changed is None else changed
                    struct.pack_into(">q", changed, position + _PRODUCER_AT, live)
                    covered = memoryview(changed)[position + CRC_START : position + header.size_bytes]
                    struct.pack_into(">I", changed, position + _CRC_AT, crc32c(covered))
                    covered.release()
        except MalformedMessage:
            return records
        return records if changed is None else bytes(changed)
