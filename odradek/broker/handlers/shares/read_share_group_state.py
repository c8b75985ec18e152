"""ReadShareGroupState (key 84), version 0: what a leader needs to serve share partitions.

Leaders before it can write no more.
Needs CLUSTER_ACTION on the cluster: only brokers ask. Source: docs/spec/share-groups.md#s1-7, #s4-4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.shares.core.records import pending_form
from odradek.broker.shares.core.state import Outcome
from odradek.broker.shares.leader.state_requests import ask_each
from odradek.protocol.messages.read_share_group_state_response import (
    PartitionResult,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
    TxnStagedRange,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred
    from odradek.broker.shares.core.state import SharePartitionKey
    from odradek.broker.shares.core.state_core import StateCore
    from odradek.protocol.messages.read_share_group_state_request import PartitionData, ReadShareGroupStateRequest


def read_share_group_state(
    request: ReadShareGroupStateRequest, context: RequestContext, broker: Broker
) -> ReadShareGroupStateResponse | Deferred[ReadShareGroupStateResponse]:
    return ask_each(
        request.group_id,
        request.topics,
        context,
        broker,
        decide=decide,
        refused=refused,
        topic_result=lambda topic_id, partitions: ReadStateResult(topic_id=topic_id, partitions=partitions),
        make=lambda results: ReadShareGroupStateResponse(results=results),
    )


def decide(core: StateCore, key: SharePartitionKey, partition: PartitionData, now_ms: int) -> Outcome[PartitionResult]:
    outcome = core.read(key, partition.leader_epoch, now_ms)
    stored = outcome.response
    assert stored is not None
    result = PartitionResult(
        partition=partition.partition,
        state_epoch=stored.state_epoch,
        start_offset=stored.start_offset,
        state_batches=[
            StateBatch(
                first_offset=each.first_offset,
                last_offset=each.last_offset,
                delivery_state=each.delivery_state,
                delivery_count=each.delivery_count,
            )
            for each in stored.batches
        ],
        txn_staged=[pending_form(TxnStagedRange, each) for each in stored.pending],
    )
    return Outcome(result, outcome.records)


def refused(partition: int, code: int, message: str | None) -> PartitionResult:
    return PartitionResult(partition=partition, error_code=code, error_message=message)
