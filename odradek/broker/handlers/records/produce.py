"""Handles Produce (key 0), versions 3-13, which appends records to partitions. Versions 0-2 are listed but not
supported, as in Kafka.

v5 adds the log start offset. v7 allows zstd. v8 adds errors for individual records. v9 is flexible. v10 adds the leader
and its endpoints to leadership errors. Since v11, the client understands TRANSACTION_ABORTABLE. Since v12, the broker
adds the partition to the transaction. v13 uses topic ids. Needs WRITE on each topic. The response is sent once the
records are written, and synced if the settings require it. With acks=0 there is no response, and an error closes the
connection. Errors are reported for each partition, unless the whole request is invalid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.produce.request import PendingProduce
from odradek.broker.runtime.slices import ENTRIES_PER_SLICE, in_slices
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.validation import is_first_batch_transactional

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.runtime.replies import NoResponse
    from odradek.broker.runtime.waiting import Deferred
    from odradek.protocol.messages.produce_request import ProduceRequest
    from odradek.protocol.messages.produce_response import ProduceResponse


def produce(
    request: ProduceRequest, context: RequestContext, broker: HandlerBroker
) -> Deferred[ProduceResponse | NoResponse]:
    if has_transactional_records(request):
        if request.transactional_id is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        return produce_in_transaction(request, context, broker)
    pending = PendingProduce(request.acks, context, broker)
    if sum(len(topic.partition_data) for topic in request.topic_data) > ENTRIES_PER_SLICE:
        return in_slices(pending.take_many(request.topic_data))
    for topic in request.topic_data:
        pending.take_topic(topic, pending.stage_unguarded)
    pending.partition_done()
    return pending.reply


def produce_in_transaction(
    request: ProduceRequest, context: RequestContext, broker: HandlerBroker
) -> Deferred[ProduceResponse | NoResponse]:
    # Imported here because most producers do not use transactions.
    from odradek.broker.produce.transactional import TransactionalProduce

    pending = PendingProduce(request.acks, context, broker)
    TransactionalProduce(pending, context, broker.verifier).start_verification(request)
    return pending.reply


def has_transactional_records(request: ProduceRequest) -> bool:
    """Returns whether any partition has transactional records. Checks every partition even after the first match,
    because bytes that are not a batch make the whole request invalid."""
    found = False
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None and is_first_batch_transactional(data.records):
                found = True
    return found
