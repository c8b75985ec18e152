"""The assignors that the leader of a classic group uses to distribute partitions. They correspond to the assignors of
Kafka's own clients.

A group uses an assignor that all its members support. `range` and `roundrobin` are eager: a member gives up all its
partitions before it rejoins. `cooperative-sticky` lets members keep as many of their partitions as is fair. Source: the
documentation of Kafka's RangeAssignor, RoundRobinAssignor and CooperativeStickyAssignor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import cycle

from odradek.client.common.values import TopicPartition, grouped
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from odradek.protocol.messages.consumer_protocol_assignment import TopicPartition as AssignedTopic
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.consumer_protocol_subscription import TopicPartition as OwnedTopic


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """The subscription of a joining member.

    owned           partitions that the member has not given up; empty with an eager assignor
    generation_id   generation that assigned these partitions to the member; -1 if not reported
    """

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation_id: int = -1


Subscriptions = Mapping[str, MemberSubscription]  # keyed by member id
Assignments = dict[str, list[TopicPartition]]
Assign = Callable[[Subscriptions, Mapping[str, int]], Assignments]


@dataclass(frozen=True, slots=True)
class Assignor:
    assign: Assign
    is_cooperative: bool = False


PROTOCOL_TYPE = "consumer"
_SUBSCRIPTION_VERSION = 2  # first version with the generation of `owned`; older clients ignore the generation
_ASSIGNMENT_VERSION = 1
_VERSION_BYTES = 2
_GENERATION_BYTES = 4


def assign_ranges(subscriptions: Subscriptions, partition_counts: Mapping[str, int]) -> Assignments:
    """Assigns each topic separately. Every member gets consecutive partitions. If the partitions cannot be divided
    evenly, the first members each get one more partition.

    partition_counts   number of partitions of each existing topic; a missing topic is treated as empty
    """
    found: Assignments = {member: [] for member in subscriptions}
    for topic in _topics(subscriptions):
        members = sorted(member for member, each in subscriptions.items() if topic in each.topics)
        each, more = divmod(partition_counts.get(topic, 0), len(members))
        start = 0
        for place, member in enumerate(members):
            end = start + each + (place < more)
            found[member] += [TopicPartition(topic, index) for index in range(start, end)]
            start = end
    return found


def assign_in_turn(subscriptions: Subscriptions, partition_counts: Mapping[str, int]) -> Assignments:
    """Assigns the partitions to the members in turn, skipping members that have not subscribed to the partition's
    topic."""
    found: Assignments = {member: [] for member in subscriptions}
    turns = cycle(sorted(subscriptions))
    for topic in _topics(subscriptions):
        for index in range(partition_counts.get(topic, 0)):
            member = next(member for member in turns if topic in subscriptions[member].topics)
            found[member].append(TopicPartition(topic, index))
    return found


def assign_sticky(subscriptions: Subscriptions, partition_counts: Mapping[str, int]) -> Assignments:
    """Assigns partitions as evenly as possible, with as few moves as possible.

    A partition that moves between members is not assigned yet: its owner must first give it up and rejoin. If two
    members claim a partition, the member with the later generation owns it. If both members claim it in the same
    generation, neither owns it.
    """
    partitions = [
        TopicPartition(topic, index)
        for topic in _topics(subscriptions)
        for index in range(partition_counts.get(topic, 0))
    ]
    owners = _owners(subscriptions)
    held: dict[str, set[TopicPartition]] = {member: set() for member in sorted(subscriptions)}
    free = []
    for partition in partitions:
        owner = owners.get(partition)
        if owner is not None and partition.topic in subscriptions[owner].topics:
            held[owner].add(partition)
        else:
            free.append(partition)

    def fewest(topic: str) -> str:
        return min((member for member in held if topic in subscriptions[member].topics), key=lambda m: len(held[m]))

    for partition in free:
        held[fewest(partition.topic)].add(partition)
    while (move := _fairer(held, fewest)) is not None:
        partition, giver, taker = move
        held[giver].remove(partition)
        held[taker].add(partition)
    return {
        member: sorted(each for each in mine if owners.get(each, member) == member) for member, mine in held.items()
    }


def _owners(subscriptions: Subscriptions) -> dict[TopicPartition, str | None]:
    """Returns the owner of each partition. Leaves out partitions that two members claim in the same generation."""
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for member, subscribed in sorted(subscriptions.items()):
        for partition in subscribed.owned:
            generation, _ = claims.get(partition, (-2, None))
            if subscribed.generation_id > generation:
                claims[partition] = subscribed.generation_id, member
            elif subscribed.generation_id == generation:
                claims[partition] = generation, None
    return {partition: member for partition, (_, member) in claims.items() if member is not None}


def _fairer(
    held: Mapping[str, set[TopicPartition]], fewest: Callable[[str], str]
) -> tuple[TopicPartition, str, str] | None:
    """Finds a move that makes the assignment fairer: a partition, its owner, and a subscribed member that has at least
    two fewer partitions. Returns None if there is no such move."""
    for giver in sorted(held, key=lambda member: -len(held[member])):
        takers = {topic: fewest(topic) for topic in {partition.topic for partition in held[giver]}}
        for partition in sorted(held[giver], reverse=True):
            taker = takers[partition.topic]
            if len(held[taker]) + 1 < len(held[giver]):
                return partition, giver, taker
    return None


def _topics(subscriptions: Subscriptions) -> list[str]:
    return sorted(frozenset().union(*(each.topics for each in subscriptions.values())))


ASSIGNORS: Mapping[str, Assignor] = {
    "range": Assignor(assign_ranges),
    "roundrobin": Assignor(assign_in_turn),
    "cooperative-sticky": Assignor(assign_sticky, is_cooperative=True),
}


def subscription_bytes(subscribed: MemberSubscription) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=sorted(subscribed.topics),
        owned_partitions=[
            OwnedTopic(topic=topic, partitions=indexes) for topic, indexes in _by_topic(subscribed.owned).items()
        ],
        generation_id=subscribed.generation_id,
    )
    return _versioned(_SUBSCRIPTION_VERSION, encode(message, _SUBSCRIPTION_VERSION))


def subscription_of(metadata: bytes) -> MemberSubscription:
    """Parses a subscription written by any client. Raises MalformedMessage."""
    version = min(_version(metadata), ConsumerProtocolSubscription.MAX_VERSION)
    subscription = decode(ConsumerProtocolSubscription, version, metadata, _VERSION_BYTES)
    owned = frozenset(
        TopicPartition(each.topic, index) for each in subscription.owned_partitions for index in each.partitions
    )
    generation_id = subscription.generation_id
    if version < _SUBSCRIPTION_VERSION and len(subscription.user_data or b"") == _GENERATION_BYTES:
        # Older clients that use cooperative-sticky store the generation in the user data.
        generation_id = int.from_bytes(bytes(subscription.user_data or b""), "big", signed=True)
    return MemberSubscription(frozenset(subscription.topics), owned, generation_id)


def assignment_bytes(partitions: Iterable[TopicPartition]) -> bytes:
    topics = [AssignedTopic(topic=topic, partitions=indexes) for topic, indexes in _by_topic(partitions).items()]
    return _versioned(
        _ASSIGNMENT_VERSION, encode(ConsumerProtocolAssignment(assigned_partitions=topics), _ASSIGNMENT_VERSION)
    )


def assigned_partitions(assignment: bytes) -> list[TopicPartition]:
    """Parses a member's assignment. Empty bytes mean no partitions. Raises MalformedMessage."""
    if not assignment:
        return []
    version = min(_version(assignment), ConsumerProtocolAssignment.MAX_VERSION)
    subscription = decode(ConsumerProtocolAssignment, version, assignment, _VERSION_BYTES)
    return [TopicPartition(each.topic, index) for each in subscription.assigned_partitions for index in each.partitions]


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    return dict(sorted(grouped(partitions).items()))


def _versioned(version: int, body: bytes) -> bytes:
    return version.to_bytes(_VERSION_BYTES, "big") + body


def _version(data: bytes) -> int:
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or version < 0:
        raise MalformedMessage("the data of the consumer protocol has no valid version")
    return version
