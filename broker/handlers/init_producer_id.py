"""InitProducerId (key 22), versions 0-5: a producer id and epoch for an idempotent producer.

v2: flexible. v3: the producer's present id and epoch. v4: PRODUCER_FENCED is understood. v5: TRANSACTION_ABORTABLE is.
Needs IDEMPOTENT_WRITE on the cluster, or WRITE on any topic; with a transactional id, WRITE on that.

Not handled: transactional ids, since there is no transaction coordinator yet. They are answered with
UNSUPPORTED_VERSION, which clients take as final at once; a retriable code would let them try in vain until their time
is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.authorization import CLUSTER_NAME, Operation, ResourceType
from broker.delayed import Deferred
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.init_producer_id_response import InitProducerIdResponse

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.context import RequestContext
    from protocol.messages.init_producer_id_request import InitProducerIdRequest

NONE = -1


def init_producer_id(
    request: InitProducerIdRequest, context: RequestContext, broker: Broker
) -> Deferred[InitProducerIdResponse]:
    transactional_id = request.transactional_id
    if transactional_id is not None:
        context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    else:
        context.require(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
    if (request.producer_id == NONE) != (request.producer_epoch == NONE) or transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if transactional_id is not None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    reply: Deferred[InitProducerIdResponse] = Deferred()

    def answer(producer_id: int | KafkaError) -> None:
        if isinstance(producer_id, KafkaError):
            reply.fail(producer_id)
        else:
            reply.resolve(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    broker.producer_ids.take(answer)
    return reply
