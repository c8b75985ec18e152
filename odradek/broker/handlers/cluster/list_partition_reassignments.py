"""ListPartitionReassignments (key 46), version 0: the reassignments in progress, of which one node has none.

Needs DESCRIBE on the cluster. As in Kafka, what is named and does not exist is not mentioned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest


def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext, broker: Broker
) -> ListPartitionReassignmentsResponse:
    context.require(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    return ListPartitionReassignmentsResponse(error_message=None)
