"""A hash of the topics that a group is subscribed to. When the hash changes, the partitions must be reassigned
(KIP-1101).

The hash is the same as Kafka's, so that a group can move between Kafka and Odradek without a rebalance.

Source: docs/spec/consumer-groups.md#s12-4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from xxhash import xxh3_64_intdigest

from odradek.broker.groups.common.registry import TopicView

NO_TOPIC = 0
INT, LONG = struct.Struct("<i"), struct.Struct("<q")
UUID_HALVES = struct.Struct(">qq")


def metadata_hash(topics: Iterable[TopicView]) -> int:
    """Returns the hash as a signed 64-bit number. The caller must omit topics that do not exist."""
    ordered = sorted(topics, key=lambda topic: topic.name)
    if not ordered:
        return NO_TOPIC
    return _digest(b"".join(LONG.pack(topic_hash(topic)) for topic in ordered))


def topic_hash(topic: TopicView) -> int:
    high, low = UUID_HALVES.unpack(topic.topic_id)
    parts = [b"\0", LONG.pack(high), LONG.pack(low), _text(topic.name), INT.pack(topic.partition_count)]
    # the common case; with thousands of partitions, the loop would take milliseconds
    if not any(topic.partition_racks):
        count = topic.partition_count
        return _digest(b"".join((*parts, struct.pack(f"<{count}i", *range(count)))))
    for partition, racks in enumerate(topic.partition_racks):
        parts.append(INT.pack(partition))
        for rack in racks:
            units = rack.encode("utf-16-le", "surrogatepass")
            parts += (INT.pack(len(units) // 2), units)
    return _digest(b"".join(parts))


def _text(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    return units + INT.pack(len(units) // 2)


def _digest(data: bytes) -> int:
    value: int = xxh3_64_intdigest(data)
    return value - (1 << 64) if value >= 1 << 63 else value
