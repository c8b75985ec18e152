"""AddOffsetsToTxn (key 25), versions 0-4: adds a group's offsets to a transaction, before they are committed in it.

v2: PRODUCER_FENCED is understood. v3: flexible. v4: TRANSACTION_ABORTABLE is understood. Needs WRITE on the
transactional id and READ on the group. Adds the group's partition of `__consumer_offsets`, whether it exists or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.runtime.delayed import all_of
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from odradek.protocol.topic_partition import GROUP_OFFSETS

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred
    from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest


def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, context: RequestContext, broker: Broker
) -> AddOffsetsToTxnResponse | Deferred[AddOffsetsToTxnResponse]:
    context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    partition = (GROUP_OFFSETS, broker.groups.partition_for(request.group_id))
    codes = broker.transactions.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [partition],
        verify_only=False,
        asked_version=0,
    )
    return all_of([codes], lambda _, error: {partition: error.code}, lambda answers: answer(answers[0][partition]))


def answer(code: ErrorCode) -> AddOffsetsToTxnResponse:
    if code is not ErrorCode.NONE:
        raise KafkaError(code)
    return AddOffsetsToTxnResponse()
