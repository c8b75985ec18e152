"""InitializeShareGroupState (key 83), version 0: the state of share partitions begins, or begins anew.

Needs CLUSTER_ACTION on the cluster: only brokers ask. Source: docs/spec/share-groups.md#s1-7, #s4-4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.shares.core.state import Outcome
from odradek.broker.shares.leader.state_requests import ask_each
from odradek.protocol.messages.initialize_share_group_state_response import (
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred
    from odradek.broker.shares.core.state import SharePartitionKey
    from odradek.broker.shares.core.state_core import StateCore
    from odradek.protocol.messages.initialize_share_group_state_request import (
        InitializeShareGroupStateRequest,
        PartitionData,
    )


def initialize_share_group_state(
    request: InitializeShareGroupStateRequest, context: RequestContext, broker: Broker
) -> InitializeShareGroupStateResponse | Deferred[InitializeShareGroupStateResponse]:
    return ask_each(
        request.group_id,
        request.topics,
        context,
        broker,
        decide=decide,
        refused=refused,
        topic_result=lambda topic_id, partitions: InitializeStateResult(topic_id=topic_id, partitions=partitions),
        make=lambda results: InitializeShareGroupStateResponse(results=results),
    )


def decide(core: StateCore, key: SharePartitionKey, partition: PartitionData, now_ms: int) -> Outcome[PartitionResult]:
    outcome = core.initialize(key, partition.state_epoch, partition.start_offset, now_ms)
    return Outcome(PartitionResult(partition=partition.partition), outcome.records)


def refused(partition: int, code: int, message: str | None) -> PartitionResult:
    return PartitionResult(partition=partition, error_code=code, error_message=message)
