"""DescribeLogDirs (key 35), versions 1-5: the sizes of partitions, and the space of the data directory.

v2: flexible. v3: an error for the whole request. v4: total and usable bytes. v5: whether the directory is cordoned,
which it never is here. Needs DESCRIBE on the cluster. A null list of topics means every partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.partitions.partition import Partition
    from odradek.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest


def describe_log_dirs(
    request: DescribeLogDirsRequest, context: RequestContext, broker: Broker
) -> DescribeLogDirsResponse:
    try:
        context.require(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    except KafkaError as refusal:
        # Only v3 has a place for this; before, as Kafka, an empty answer says it.
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


def wanted_partitions(request: DescribeLogDirsRequest, broker: Broker) -> list[Partition]:
    """Those that are here; what is asked for and is not is passed over."""
    if request.topics is None:
        return list(broker.partitions)
    wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return [partition for partition in broker.partitions if (partition.topic, partition.index) in wanted]
