"""AlterPartitionReassignments (key 45), versions 0-1: puts partitions on other brokers, or cancels that.

v1: the replication factor may be kept from changing. Needs ALTER on the cluster. With one broker a reassignment either
changes nothing or gives up replicas on brokers that are not there; it is complete when the answer is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.metadata.replicas import Reassignment, reassign
from odradek.broker.runtime.delayed import Deferred
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.metadata.decision import Decision
    from odradek.broker.metadata.image import MetadataImage
    from odradek.protocol.messages.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest

Results = list[KafkaError | None]


def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext, broker: Broker
) -> AlterPartitionReassignmentsResponse | Deferred[AlterPartitionReassignmentsResponse]:
    context.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    if not request.topics:
        return AlterPartitionReassignmentsResponse()
    may_change = request.allow_replication_factor_change
    wishes = [
        Reassignment(topic.name, partition.partition_index, partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    ]
    answer: Deferred[AlterPartitionReassignmentsResponse] = Deferred()

    def decide(image: MetadataImage) -> Decision[Results]:
        return reassign(image, wishes, node=broker.metadata.node, factor_may_change=may_change)

    def recorded(decided: Deferred[Results]) -> None:
        try:
            outcome = decided.outcome()
        except KafkaError as error:
            answer.fail(error)
            return
        assert isinstance(outcome, list)
        results = iter(outcome)
        responses = [
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_result(partition.partition_index, next(results)) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
        answer.resolve(
            AlterPartitionReassignmentsResponse(
                allow_replication_factor_change=may_change, error_message=None, responses=responses
            )
        )

    broker.metadata.submit(decide).when_done(recorded)
    return answer


def _result(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(partition_index=index, error_message=None)
    return ReassignablePartitionResponse(
        partition_index=index, error_code=error.code.value, error_message=error.message
    )
