"""WriteShareGroupState (key 85), versions 0-1: what a leader has to store.

v1: the number of records that are done with (KIP-1226). Private tags: what is pending in transactions (KIP-1289).
Needs CLUSTER_ACTION on the cluster: only brokers ask. Source: docs/spec/share-groups.md#s1-7, #s4-4.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.shares.core.in_flight import StateWrite
from odradek.broker.shares.core.records import pending_of, resolved_of
from odradek.broker.shares.core.state import Outcome, StateBatch
from odradek.broker.shares.leader.state_requests import ask_each
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.protocol.messages.write_share_group_state_response import (
    PartitionResult,
    WriteShareGroupStateResponse,
    WriteStateResult,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.coordinators.producer_ids import TwoPhaseProducers
    from odradek.broker.runtime.delayed import Deferred
    from odradek.broker.shares.core.state import SharePartitionKey
    from odradek.broker.shares.core.state_core import StateCore
    from odradek.protocol.messages.write_share_group_state_request import PartitionData, WriteShareGroupStateRequest


def write_share_group_state(
    request: WriteShareGroupStateRequest, context: RequestContext, broker: Broker
) -> WriteShareGroupStateResponse | Deferred[WriteShareGroupStateResponse]:
    return ask_each(
        request.group_id,
        request.topics,
        context,
        broker,
        decide=partial(decide, two_phase=broker.two_phase),
        refused=refused,
        topic_result=lambda topic_id, partitions: WriteStateResult(topic_id=topic_id, partitions=partitions),
        make=lambda results: WriteShareGroupStateResponse(results=results),
    )


def decide(
    core: StateCore, key: SharePartitionKey, partition: PartitionData, now_ms: int, *, two_phase: TwoPhaseProducers
) -> Outcome[PartitionResult]:
    try:
        pending, resolved = pending_of(partition.txn_staged), resolved_of(partition.txn_resolved)
    except MalformedMessage as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    write = StateWrite(
        partition.start_offset,
        partition.delivery_complete_count,
        [
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in partition.state_batches
        ],
        pending=pending,
        resolved=resolved,
    )
    must_sync = any(each.producer_id in two_phase for each in pending)
    outcome = core.write(key, partition.state_epoch, partition.leader_epoch, write, now_ms, must_sync=must_sync)
    return Outcome(PartitionResult(partition=partition.partition), outcome.records, must_sync=outcome.must_sync)


def refused(partition: int, code: int, message: str | None) -> PartitionResult:
    return PartitionResult(partition=partition, error_code=code, error_message=message)
