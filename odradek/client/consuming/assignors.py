"""How the leader of a group distributes partitions: the assignors that Kafka's own clients know by these names.

A group uses one that all its members offer. The two here are eager: a member gives up all its partitions before it
rejoins. Source: the documentation of Kafka's RangeAssignor and RoundRobinAssignor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import cycle

from odradek.client.values import TopicPartition
from protocol.codec import decode, encode
from protocol.errors import MalformedMessage
from protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from protocol.messages.consumer_protocol_assignment import TopicPartition as AssignedTopic
from protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

Subscriptions = Mapping[str, frozenset[str]]  # the topics of each member, by member id
Assignments = dict[str, list[TopicPartition]]
Assignor = Callable[[Subscriptions, Mapping[str, int]], Assignments]

PROTOCOL_TYPE = "consumer"
_WRITTEN_VERSION = 1  # of subscription and assignment: what every client of the last years reads
_VERSION_BYTES = 2


def assign_ranges(subscriptions: Subscriptions, partition_counts: Mapping[str, int]) -> Assignments:
    """Topic by topic: each member gets neighbours, and the first ones one more where it does not come out even.

    partition_counts   of all topics that exist; one that is missing has none
    """
    found: Assignments = {member: [] for member in subscriptions}
    for topic in sorted(frozenset().union(*subscriptions.values())):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        each, more = divmod(partition_counts.get(topic, 0), len(members))
        begin = 0
        for place, member in enumerate(members):
            end = begin + each + (place < more)
            found[member] += [TopicPartition(topic, index) for index in range(begin, end)]
            begin = end
    return found


def assign_in_turn(subscriptions: Subscriptions, partition_counts: Mapping[str, int]) -> Assignments:
    """All partitions one after the other to the next member that wants the topic."""
    found: Assignments = {member: [] for member in subscriptions}
    turns = cycle(sorted(subscriptions))
    for topic in sorted(frozenset().union(*subscriptions.values())):
        for index in range(partition_counts.get(topic, 0)):
            member = next(member for member in turns if topic in subscriptions[member])
            found[member].append(TopicPartition(topic, index))
    return found


ASSIGNORS: Mapping[str, Assignor] = {"range": assign_ranges, "roundrobin": assign_in_turn}


def subscription_bytes(topics: Iterable[str]) -> bytes:
    """What a member says of itself when it joins."""
    return _versioned(encode(ConsumerProtocolSubscription(topics=sorted(topics)), _WRITTEN_VERSION))


def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """The topics that a member named, whatever client it is. Raises MalformedMessage."""
    version = min(_version(metadata), ConsumerProtocolSubscription.MAX_VERSION)
    return frozenset(decode(ConsumerProtocolSubscription, version, metadata, _VERSION_BYTES).topics)


def assignment_bytes(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    topics = [AssignedTopic(topic=topic, partitions=indexes) for topic, indexes in sorted(by_topic.items())]
    return _versioned(encode(ConsumerProtocolAssignment(assigned_partitions=topics), _WRITTEN_VERSION))


def assigned_partitions(assignment: bytes) -> list[TopicPartition]:
    """What the leader gave; nothing where it wrote nothing. Raises MalformedMessage."""
    if not assignment:
        return []
    version = min(_version(assignment), ConsumerProtocolAssignment.MAX_VERSION)
    told = decode(ConsumerProtocolAssignment, version, assignment, _VERSION_BYTES)
    return [TopicPartition(each.topic, index) for each in told.assigned_partitions for index in each.partitions]


def _versioned(body: bytes) -> bytes:
    return _WRITTEN_VERSION.to_bytes(_VERSION_BYTES, "big") + body


def _version(data: bytes) -> int:
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or version < 0:
        raise MalformedMessage("consumer protocol bytes without a version")
    return version
