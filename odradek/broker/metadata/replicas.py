"""Decides on leader elections and replica reassignments based on the metadata image, with Kafka's error codes and
messages.

This broker is the only node, unless several nodes share its log (`Node.other_ids`). A leader on another node is treated
as unavailable, and a reassignment is complete as soon as it is recorded. Partitions with replicas on other brokers
exist in directories that were copied from a larger cluster. Source: Kafka 4.3.1's responses to the requests in
tests/conformance/differential.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from odradek.broker.metadata.image import MetadataImage, Node, PartitionImage
from odradek.broker.metadata.records import Decision
from odradek.broker.metadata.topics import check_replicas
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.struct import Message


class ElectionType(IntEnum):
    """The election types of ElectLeaders, which elect either the first replica or any available replica (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leader(image: MetadataImage, name: str, index: int, election: ElectionType) -> KafkaError:
    """Returns an error that gives the reason why no leader is elected. An election never succeeds, because this node
    already leads every partition that it can lead."""
    topic = image.topics.get(name)
    if topic is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= index < len(topic.partitions):
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    partition = topic.partitions[index]
    is_preferred = election is ElectionType.PREFERRED
    if partition.leader == partition.replicas[0] if is_preferred else partition.leader is not None:
        return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    if is_preferred:
        return KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    what = "Eligible topic partition leaders are not available."
    return KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, what)


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A requested reassignment. `replicas` contains broker ids, or is None to cancel the reassignment in progress."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


def reassign(
    image: MetadataImage, wishes: Sequence[Reassignment], *, node: Node, factor_may_change: bool
) -> Decision[list[KafkaError | None]]:
    """Decides on each reassignment separately. The response has a result for each reassignment, in the same order. A
    result of None means success."""
    results: list[KafkaError | None] = []
    records: list[Message] = []
    for wish in wishes:
        try:
            records += _reassign(image, wish, node, factor_may_change=factor_may_change)
        except KafkaError as error:
            results.append(error)
        else:
            results.append(None)
    return Decision(results, tuple(records))


def _reassign(image: MetadataImage, wish: Reassignment, node: Node, *, factor_may_change: bool) -> list[Message]:
    topic = image.topics.get(wish.topic)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {wish.topic}.")
    if not 0 <= wish.partition < len(topic.partitions):
        what = f"Unable to find partition {wish.topic}:{wish.partition}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
    if wish.replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    check_replicas(node, wish.replicas)
    partition = topic.partitions[wish.partition]
    if not factor_may_change and len(wish.replicas) != len(partition.replicas):
        what = f"The replication factor is changed from {len(partition.replicas)} to {len(wish.replicas)}"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, what)
    if node.other_ids:
        return _among_nodes(partition, topic.topic_id, wish, wish.replicas)
    if partition.replicas == wish.replicas:
        return []
    if node.node_id not in partition.replicas:
        what = (
            f"No replica of {wish.topic}-{wish.partition} is on this broker, and there is no other broker to copy"
            " it from."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what)
    return [_only_here(partition, topic.topic_id, node)]


def _among_nodes(
    partition: PartitionImage, topic_id: bytes, wish: Reassignment, replicas: Sequence[int]
) -> list[Message]:
    """Reassigns a partition among nodes that share a log. All of these nodes remain replicas. If the leader is not
    among the requested replicas, the first requested replica that is in sync becomes the leader.

    Raises INVALID_REPLICA_ASSIGNMENT if no requested replica is in sync; Kafka waits in this case. Source: the
    behaviour of three Kafka 4.3.1 brokers, which also remove the other replicas.
    """
    if partition.leader in replicas:
        return []
    leader = next((one for one in replicas if one in partition.isr), None)
    if leader is None:
        what = f"None of the requested replicas of {wish.topic}-{wish.partition} is in sync."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what)
    return [PartitionChangeRecord(partition_id=partition.partition_id, topic_id=topic_id, leader=leader)]


def _only_here(partition: PartitionImage, topic_id: bytes, node: Node) -> PartitionChangeRecord:
    """Removes the replicas on other brokers. The leader and the leader epoch do not change."""
    return PartitionChangeRecord(
        partition_id=partition.partition_id,
        topic_id=topic_id,
        replicas=[node.node_id],
        isr=None if partition.isr == [node.node_id] else [node.node_id],
        directories=[node.directory_id],
        removing_replicas=[],
        adding_replicas=[],
    )
