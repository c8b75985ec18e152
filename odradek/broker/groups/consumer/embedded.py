"""The embedded consumer protocol: the metadata and assignments of members of the classic protocol.

Two bytes of version, then the message; a version above the highest known is read as the highest.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping

from odradek.broker.groups.common.cluster import ClusterView
from odradek.broker.groups.consumer.member import Partitions
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

SHORT = struct.Struct(">h")
ASSIGNMENT_VERSION = 3


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Raises MalformedMessage."""
    version = _version(metadata, ConsumerProtocolSubscription.MAX_VERSION)
    return decode(ConsumerProtocolSubscription, version, metadata, SHORT.size)


class AssignorUserData(Exception):
    """An assignor of the clients' own has put data into an assignment, which the broker's assignors would lose."""


def read_assignment(assignment: bytes, cluster: ClusterView) -> Partitions:
    """By topic id; topics that are gone are left out. Nothing at all is no assignment.

    Raises MalformedMessage, AssignorUserData.
    """
    if not assignment:
        return {}
    version = _version(assignment, ConsumerProtocolAssignment.MAX_VERSION)
    stored = decode(ConsumerProtocolAssignment, version, assignment, SHORT.size)
    if stored.user_data:
        raise AssignorUserData
    return by_topic_id([(each.topic, each.partitions) for each in stored.assigned_partitions], cluster)


def written_assignment(partitions: Mapping[bytes, Iterable[int]], name_of: Callable[[bytes], str | None]) -> bytes:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=name, partitions=sorted(indexes))
            for topic_id, indexes in partitions.items()
            if (name := name_of(topic_id)) is not None
        ]
    )
    return SHORT.pack(ASSIGNMENT_VERSION) + encode(assignment, ASSIGNMENT_VERSION)


def by_topic_id(named: Iterable[tuple[str, Iterable[int]]], cluster: ClusterView) -> Partitions:
    found: dict[bytes, frozenset[int]] = {}
    for name, partitions in named:
        topic = cluster.topic(name)
        if topic is not None and (indexes := frozenset(partitions)):
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | indexes
    return found


def _version(data: bytes, highest: int) -> int:
    if len(data) < SHORT.size:
        raise MalformedMessage("metadata of a consumer without a version")
    (version,) = SHORT.unpack_from(data)
    if version < 0:
        raise MalformedMessage(f"metadata of a consumer at version {version}")
    return min(int(version), highest)
