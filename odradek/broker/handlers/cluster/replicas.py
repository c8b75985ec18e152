"""Handlers for replicas and their directories. On a single node, every partition has one replica in one directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.metadata.replicas import ElectionType, Reassignment, elect_leader, reassign
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from odradek.protocol.messages.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from odradek.protocol.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from odradek.protocol.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from odradek.protocol.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.broker.api.context import RequestContext
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.metadata.image import MetadataImage
    from odradek.broker.metadata.records import Decision
    from odradek.broker.partitions.partition import Partition
    from odradek.protocol.messages.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
    from odradek.protocol.messages.alter_replica_log_dirs_request import AlterReplicaLogDirsRequest
    from odradek.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
    from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest
    from odradek.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest

Results = list[KafkaError | None]


async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext, broker: HandlerBroker
) -> AlterPartitionReassignmentsResponse:
    """Handles AlterPartitionReassignments (key 45), versions 0-1, which moves partitions to other brokers or cancels a
    move.

    v1 lets the client forbid changes to the replication factor. Needs ALTER on the cluster. With a single broker, a
    reassignment either changes nothing or removes replicas on brokers that do not exist. The reassignment has finished
    by the time the response is sent.
    """
    context.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    if not request.topics:
        return AlterPartitionReassignmentsResponse()
    may_change = request.allow_replication_factor_change
    wishes = [
        Reassignment(topic.name, partition.partition_index, partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    ]

    def decide(image: MetadataImage) -> Decision[Results]:
        return reassign(image, wishes, node=broker.metadata.node, factor_may_change=may_change)

    decided = await broker.metadata.submit(decide)
    results = iter(decided)
    responses = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[_result(partition.partition_index, next(results)) for partition in topic.partitions],
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change, error_message=None, responses=responses
    )


def _result(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(partition_index=index, error_message=None)
    return ReassignablePartitionResponse(
        partition_index=index, error_code=error.code.value, error_message=error.message
    )


def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext, broker: HandlerBroker
) -> ListPartitionReassignmentsResponse:
    """Handles ListPartitionReassignments (key 46), version 0, which lists the reassignments in progress. A single node
    never has any.

    Needs DESCRIBE on the cluster. As in Kafka, requested partitions that do not exist are omitted.
    """
    context.require(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    return ListPartitionReassignmentsResponse(error_message=None)


def elect_leaders(request: ElectLeadersRequest, context: RequestContext, broker: HandlerBroker) -> ElectLeadersResponse:
    """Handles ElectLeaders (key 43), versions 0-2, which elects partition leaders. Returns, for each partition, the
    reason no other leader is elected.

    v1 adds the election type and an error code for the whole response. v2 is flexible. Needs ALTER on the cluster. Null
    means all partitions. In this case, partitions that need no election are omitted from the response.
    """
    return election_response(request, context, broker, elect_leader)


def election_response(
    request: ElectLeadersRequest,
    context: RequestContext,
    broker: HandlerBroker,
    elect: Callable[[MetadataImage, str, int, ElectionType], KafkaError | None],
) -> ElectLeadersResponse:
    """Builds the response to ElectLeaders.

    elect  decides the election of a partition like `elect_leader`; returns None if it elects another leader
    """
    context.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    image = broker.metadata.image
    requested = request.topic_partitions
    if requested == []:
        return ElectLeadersResponse()
    try:
        election = ElectionType(request.election_type)
    except ValueError:
        what = f"Unknown election type {request.election_type}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, what) from None

    def results(name: str, indexes: list[int]) -> ReplicaElectionResult:
        errors = [(index, elect(image, name, index, election)) for index in indexes]
        return ReplicaElectionResult(
            topic=name,
            partition_result=[
                PartitionResult(partition_id=index)
                if error is None
                else PartitionResult(partition_id=index, error_code=error.code.value, error_message=error.message)
                for index, error in errors
                if requested is not None or error is None or error.code is not ErrorCode.ELECTION_NOT_NEEDED
            ],
        )

    if requested is None:
        named = [(topic.name, list(range(len(topic.partitions)))) for topic in image.topics.values()]
    else:
        named = [(topic.topic, topic.partitions) for topic in requested]
    return ElectLeadersResponse(replica_election_results=[results(*each) for each in named])


def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: RequestContext, broker: HandlerBroker
) -> AlterReplicaLogDirsResponse:
    """Handles AlterReplicaLogDirs (key 34), versions 1-2, which moves replicas between directories. There is a single
    data directory, so a replica can only be "moved" to the directory that already contains it.

    v2 is flexible. Needs ALTER on the cluster. If a partition occurs more than once, its last directory is used.
    """
    context.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    paths = {
        (topic.name, index): each.path for each in request.dirs for topic in each.topics for index in topic.partitions
    }
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for (topic, index), path in paths.items():
        code = move_code(broker, topic, index, path)
        topics.setdefault(topic, []).append(
            AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code.value)
        )
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=each) for name, each in topics.items()]
    )


def move_code(broker: HandlerBroker, topic: str, index: int, path: str) -> ErrorCode:
    """Returns the error code for moving a partition to `path`. As in Kafka, the path must be spelled exactly as in the
    response to DescribeLogDirs."""
    if path != broker.log_directory.path:
        return ErrorCode.LOG_DIR_NOT_FOUND
    try:
        broker.partitions.get(topic, index)
    except KafkaError as refusal:
        return refusal.code
    return ErrorCode.NONE


def describe_log_dirs(
    request: DescribeLogDirsRequest, context: RequestContext, broker: HandlerBroker
) -> DescribeLogDirsResponse:
    """Handles DescribeLogDirs (key 35), versions 1-5, which returns the sizes of partitions and the disk space of the
    data directory.

    v2 is flexible. v3 adds an error for the whole request. v4 adds the total and usable bytes. v5 adds a flag for
    cordoned directories, which is always false in this broker. Needs DESCRIBE on the cluster. A null list of topics
    means all partitions.
    """
    try:
        context.require(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    except KafkaError as refusal:
        # Only v3 and later have a field for the error. In earlier versions the response is empty, as in Kafka.
        return DescribeLogDirsResponse(error_code=refusal.code.value)
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in wanted_partitions(request, broker):
        topics.setdefault(partition.topic, []).append(
            DescribeLogDirsPartition(partition_index=partition.index, partition_size=partition.log.size_bytes)
        )
    result = DescribeLogDirsResult(
        log_dir=broker.log_directory.path,
        topics=[DescribeLogDirsTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
    result.total_bytes, result.usable_bytes = broker.log_directory.space_bytes()
    return DescribeLogDirsResponse(results=[result])


def wanted_partitions(request: DescribeLogDirsRequest, broker: HandlerBroker) -> list[Partition]:
    """Returns the requested partitions that exist on this broker. Ignores requested partitions that do not exist."""
    if request.topics is None:
        return list(broker.partitions)
    requested = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return [partition for partition in broker.partitions if (partition.topic, partition.index) in requested]
