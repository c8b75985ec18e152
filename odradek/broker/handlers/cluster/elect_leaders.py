"""ElectLeaders (key 43), versions 0-2: why no other leader is elected, partition by partition.

v1: the type of the election, an error code for the whole response. v2: flexible. Needs ALTER on the cluster. Null
stands for all partitions; those of them that need no election are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.metadata.replicas import ElectionType, elect_leader
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest


def elect_leaders(request: ElectLeadersRequest, context: RequestContext, broker: Broker) -> ElectLeadersResponse:
    context.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    image = broker.metadata.image
    wanted = request.topic_partitions
    if wanted == []:
        return ElectLeadersResponse()
    try:
        election = ElectionType(request.election_type)
    except ValueError:
        what = f"Unknown election type {request.election_type}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, what) from None

    def results(name: str, indexes: list[int]) -> ReplicaElectionResult:
        errors = [(index, elect_leader(image, name, index, election)) for index in indexes]
        return ReplicaElectionResult(
            topic=name,
            partition_result=[
                PartitionResult(partition_id=index, error_code=error.code.value, error_message=error.message)
                for index, error in errors
                if wanted is not None or error.code is not ErrorCode.ELECTION_NOT_NEEDED
            ],
        )

    if wanted is None:
        named = [(topic.name, list(range(len(topic.partitions)))) for topic in image.topics.values()]
    else:
        named = [(topic.topic, topic.partitions) for topic in wanted]
    return ElectLeadersResponse(replica_election_results=[results(*each) for each in named])
