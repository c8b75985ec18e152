"""Handles FindCoordinator (key 10), versions 0-6, which returns the broker that coordinates a group, a transactional id
or a share partition.

v1 adds key types and error messages. v3 is flexible. v4 accepts several keys. v6 adds share partitions. Needs DESCRIBE
on the group or transactional id. Share partitions, which only brokers look up, need CLUSTER_ACTION on the cluster.

The coordinator is always this broker, but its internal topic must exist first. The first request for a group creates
`__consumer_offsets`, the first request for a transactional id creates `__transaction_state`, and the first request for
a share partition creates `__share_group_state`. Until the topic exists, Kafka responds with COORDINATOR_NOT_AVAILABLE.
This broker instead waits for the topic before it responds.
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING

from odradek.broker.api.context import REFUSALS, RequestContext
from odradek.broker.runtime.slices import Steps, done_in_slices, made_of_each, sliced
from odradek.broker.runtime.waiting import NowOrLater, start_coroutine
from odradek.broker.shares.core.state import SharePartitionKey
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from odradek.protocol.topic_partition import GROUP_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest

FIRST_VERSION_WITH_SEVERAL_KEYS = 4
FIRST_VERSION_WITH_SHARE_PARTITIONS = 6
MESSAGES = {  # in versions 1 to 3, Kafka sets the error message even if there is no error
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    **dict(REFUSALS.values()),
}


class KeyType(Enum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


STATE_TOPICS = {
    KeyType.GROUP: GROUP_OFFSETS,
    KeyType.TRANSACTION: TRANSACTION_STATE,
    KeyType.SHARE: SHARE_GROUP_STATE,
}


@sliced
def find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[NowOrLater[FindCoordinatorResponse]]:
    try:
        key_type = KeyType(request.key_type)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no coordinator of type {request.key_type}.") from None
    topic = STATE_TOPICS[key_type]
    is_served = key_type is not KeyType.SHARE or context.api_version >= FIRST_VERSION_WITH_SHARE_PARTITIONS
    if key_type is KeyType.SHARE and is_served:
        context.require(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    if is_served and topic not in broker.metadata.image.topics:
        return start_coroutine(answer_after_creation(topic, request, key_type, context, broker))
    return (yield from answer(request, key_type, context, broker))


async def answer_after_creation(
    name: str, request: FindCoordinatorRequest, key_type: KeyType, context: RequestContext, broker: HandlerBroker
) -> FindCoordinatorResponse:
    with suppress(KafkaError):  # the check below shows whether the topic exists
        await broker.auto_creation.create_internal(name)
    return await done_in_slices(answer(request, key_type, context, broker))


def answer(
    request: FindCoordinatorRequest, key_type: KeyType, context: RequestContext, broker: HandlerBroker
) -> Steps[FindCoordinatorResponse]:
    version = context.api_version
    if version >= FIRST_VERSION_WITH_SEVERAL_KEYS:
        keys = request.coordinator_keys
        coordinators = yield from made_of_each(keys, lambda key: find(key, key_type, context, broker))
        return FindCoordinatorResponse(coordinators=coordinators)
    found = find(request.key, key_type, context, broker)
    code = ErrorCode(found.error_code)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=MESSAGES.get(code, code.name) if version >= 1 else "",
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def find(key: str, key_type: KeyType, context: RequestContext, broker: HandlerBroker) -> Coordinator:
    try:
        match key_type:
            case KeyType.GROUP:
                context.require(Operation.DESCRIBE, ResourceType.GROUP, key)
                leader = leader_of(GROUP_OFFSETS, broker.groups.partition_for(key), broker)
            case KeyType.TRANSACTION:
                context.require(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
                leader = leader_of(TRANSACTION_STATE, broker.transactions.partition_for(key), broker)
            case KeyType.SHARE:
                if context.api_version < FIRST_VERSION_WITH_SHARE_PARTITIONS:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                state_partition = broker.share_coordinator.partition_for(share_partition(key))
                leader = leader_of(SHARE_GROUP_STATE, state_partition, broker)
        registration = broker.metadata.image.brokers.get(leader)
        endpoint = None if registration is None else context.connection.endpoint(registration.endpoints)
        if endpoint is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except KafkaError as error:
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error.code.value)
    host, port = endpoint
    return Coordinator(key=key, node_id=leader, host=host, port=port)


def leader_of(state_topic: str, partition: int, broker: HandlerBroker) -> int:
    topic = broker.metadata.image.topics.get(state_topic)
    leader = None if topic is None else topic.partitions[partition].leader
    if leader is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return leader


def share_partition(key: str) -> SharePartitionKey:
    try:
        return SharePartitionKey.parse(key)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST) from None
