"""ReadShareGroupStateSummary (key 87), versions 0-1: where share partitions stand, for people.

v1: the number of records that are done with (KIP-1226).
Needs CLUSTER_ACTION on the cluster: only brokers ask. Source: docs/spec/share-groups.md#s1-7, #s4-4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.shares.core.state import Outcome
from odradek.broker.shares.leader.state_requests import ask_each
from odradek.protocol.messages.read_share_group_state_summary_response import (
    PartitionResult,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred
    from odradek.broker.shares.core.state import SharePartitionKey
    from odradek.broker.shares.core.state_core import StateCore
    from odradek.protocol.messages.read_share_group_state_summary_request import (
        PartitionData,
        ReadShareGroupStateSummaryRequest,
    )


def read_share_group_state_summary(
    request: ReadShareGroupStateSummaryRequest, context: RequestContext, broker: Broker
) -> ReadShareGroupStateSummaryResponse | Deferred[ReadShareGroupStateSummaryResponse]:
    return ask_each(
        request.group_id,
        request.topics,
        context,
        broker,
        decide=decide,
        refused=refused,
        topic_result=lambda topic_id, partitions: ReadStateSummaryResult(topic_id=topic_id, partitions=partitions),
        make=lambda results: ReadShareGroupStateSummaryResponse(results=results),
    )


def decide(core: StateCore, key: SharePartitionKey, partition: PartitionData, now_ms: int) -> Outcome[PartitionResult]:
    summary = core.summarize(key)
    return Outcome(
        PartitionResult(
            partition=partition.partition,
            state_epoch=summary.state_epoch,
            leader_epoch=summary.leader_epoch,
            start_offset=summary.start_offset,
            delivery_complete_count=summary.delivery_complete_count,
            txn_staged_count=summary.pending_count,
        )
    )


def refused(partition: int, code: int, message: str | None) -> PartitionResult:
    return PartitionResult(partition=partition, error_code=code, error_message=message)
