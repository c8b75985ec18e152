"""InitProducerId (key 22), versions 0-6: a producer id and epoch, with or without a transactional id.

v2: flexible. v3: the producer's present id and epoch. v4: PRODUCER_FENCED is understood. v5: TRANSACTION_ABORTABLE is.
v6 (KIP-939, which no Kafka serves yet): Enable2Pc, and KeepPreparedTxn with what it kept.
Needs IDEMPOTENT_WRITE on the cluster, or WRITE on any topic; with a transactional id, WRITE on that, and for Enable2Pc
TWO_PHASE_COMMIT too. An open transaction of the id is kept, if the request asks for that; otherwise it is aborted, and
the client retries after CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import Audit, refused
from odradek.broker.runtime.delayed import Deferred
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest

NONE: Final = -1


def init_producer_id(
    request: InitProducerIdRequest, context: RequestContext, broker: Broker
) -> InitProducerIdResponse | Deferred[InitProducerIdResponse]:
    transactional_id = request.transactional_id
    if transactional_id is None:
        may_write = is_allowed(context, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME, Audit.PROBE)
        if not may_write and not context.authorizer.allows_on_any(context, Operation.WRITE, ResourceType.TOPIC):
            raise refused(ResourceType.CLUSTER, context.api_key)
    else:
        context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        # The other cause of TRANSACTIONAL_ID_AUTHORIZATION_FAILED for Enable2Pc is a setting: see `check_request`.
        if request.enable2_pc and not is_allowed(
            context, Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, transactional_id
        ):
            reason = "Enable2Pc needs the right TWO_PHASE_COMMIT on the transactional id."
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, reason)
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if transactional_id is None:
        return for_idempotence(broker)
    return broker.transactions.init_producer_id(request)


def for_idempotence(broker: Broker) -> Deferred[InitProducerIdResponse]:
    reply: Deferred[InitProducerIdResponse] = Deferred()

    def answer(producer_id: int | KafkaError) -> None:
        if isinstance(producer_id, KafkaError):
            reply.fail(producer_id)
        else:
            reply.resolve(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    broker.producer_ids.take(answer)
    return reply
