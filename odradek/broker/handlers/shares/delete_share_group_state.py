"""DeleteShareGroupState (key 86), version 0: the state of share partitions is no longer needed.

Needs CLUSTER_ACTION on the cluster: only brokers ask. Source: docs/spec/share-groups.md#s1-7, #s4-4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.shares.core.state import Outcome
from odradek.broker.shares.leader.state_requests import ask_each
from odradek.protocol.messages.delete_share_group_state_response import (
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred
    from odradek.broker.shares.core.state import SharePartitionKey
    from odradek.broker.shares.core.state_core import StateCore
    from odradek.protocol.messages.delete_share_group_state_request import DeleteShareGroupStateRequest, PartitionData


def delete_share_group_state(
    request: DeleteShareGroupStateRequest, context: RequestContext, broker: Broker
) -> DeleteShareGroupStateResponse | Deferred[DeleteShareGroupStateResponse]:
    return ask_each(
        request.group_id,
        request.topics,
        context,
        broker,
        decide=decide,
        refused=refused,
        topic_result=lambda topic_id, partitions: DeleteStateResult(topic_id=topic_id, partitions=partitions),
        make=lambda results: DeleteShareGroupStateResponse(results=results),
    )


def decide(core: StateCore, key: SharePartitionKey, partition: PartitionData, now_ms: int) -> Outcome[PartitionResult]:
    return Outcome(PartitionResult(partition=partition.partition), core.delete(key).records)


def refused(partition: int, code: int, message: str | None) -> PartitionResult:
    return PartitionResult(partition=partition, error_code=code, error_message=message)
