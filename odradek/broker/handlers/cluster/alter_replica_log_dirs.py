"""AlterReplicaLogDirs (key 34), versions 1-2: replicas can only stay in the one data directory.

v2: flexible. Needs ALTER on the cluster. A partition that is named more than once goes to the last directory named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.alter_replica_log_dirs_request import AlterReplicaLogDirsRequest


def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: RequestContext, broker: Broker
) -> AlterReplicaLogDirsResponse:
    context.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    paths = {
        (topic.name, index): each.path for each in request.dirs for topic in each.topics for index in topic.partitions
    }
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for (topic, index), path in paths.items():
        code = outcome(broker, topic, index, path)
        topics.setdefault(topic, []).append(
            AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code.value)
        )
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=each) for name, each in topics.items()]
    )


def outcome(broker: Broker, topic: str, index: int, path: str) -> ErrorCode:
    """The path is compared letter by letter with the one that DescribeLogDirs shows, as Kafka compares them."""
    if path != broker.log_directory.path:
        return ErrorCode.LOG_DIR_NOT_FOUND
    try:
        broker.partitions.get(topic, index)
    except KafkaError as refusal:
        return refusal.code
    return ErrorCode.NONE
