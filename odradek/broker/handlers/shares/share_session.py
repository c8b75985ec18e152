"""Handlers for share sessions, in which a share group member fetches and acknowledges records."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.broker.fetch.request import node_endpoints
from odradek.broker.runtime.waiting import Deferred, NowOrLater, start_coroutine
from odradek.broker.shares.core.acquisition import AcquireMode
from odradek.broker.shares.core.sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey
from odradek.broker.shares.leader.acknowledging import AcknowledgedPartition, acknowledge
from odradek.broker.shares.leader.share_fetch import LiveShareFetch
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.share_acknowledge_response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from odradek.protocol.messages.share_fetch_response import ShareFetchResponse
from odradek.protocol.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.protocol.messages.share_acknowledge_request import ShareAcknowledgeRequest
    from odradek.protocol.messages.share_fetch_request import ShareFetchRequest


MAX_MEMBER_ID_LENGTH: Final = 36
MODES: Final = {mode.value for mode in AcquireMode}


def share_fetch(
    request: ShareFetchRequest, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[ShareFetchResponse]:
    """Handles ShareFetch (key 78), versions 1-2, which a share group member sends to fetch records. The request can
    also acknowledge records.

    v1 is the first stable version. v2 adds the acquire mode (KIP-1206) and the renewal of locks (KIP-1222). Needs READ
    on the group and on each topic. This handler does not check the membership; the group coordinator does. Source:
    docs/spec/share-groups.md#s1-11.
    """
    shares = broker.shares
    shares.require_enabled()
    key = session_key(request.group_id, request.member_id, context, broker)
    if request.is_renew_ack and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A request cannot both renew locks and fetch records.")
    if request.share_acquire_mode not in MODES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The acquire mode {request.share_acquire_mode} is unknown.")
    requested = [
        TopicIdPartition(topic.topic_id, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    named = [
        AcknowledgedPartition(
            TopicIdPartition(topic.topic_id, partition.partition_index), partition.acknowledgement_batches
        )
        for topic in request.topics
        for partition in topic.partitions
        if partition.acknowledgement_batches
    ]
    if request.share_session_epoch == INITIAL_EPOCH and named:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "The request that opens a share session cannot contain acknowledgements."
        )
    forgotten = [
        TopicIdPartition(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    ]
    try:
        session = shares.sessions.fetch(
            key, request.share_session_epoch, requested, forgotten, context.connection.address
        )
    except KafkaError as refusal:
        if refusal.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return refused_later(refusal, request.max_wait_ms, broker)
        raise
    is_final = request.share_session_epoch == FINAL_EPOCH
    if request.share_session_epoch == INITIAL_EPOCH:
        shares.register_connection(context.connection, key.group_id)
    acknowledged = acknowledge(named, key, may_renew=request.is_renew_ack, context=context, broker=broker)
    fetch = LiveShareFetch(request, context, broker, session, acknowledged, is_final=is_final)
    if is_final:
        shares.end_session(session)
    return start_coroutine(fetch.answer(), ends_with_client=True)


def session_key(
    group_id: str | None, member_id: str | None, context: RequestContext, broker: HandlerBroker
) -> SessionKey:
    """Makes the checks that ShareFetch and ShareAcknowledge have in common and returns the session key."""
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The group id is missing.")
    context.require(Operation.READ, ResourceType.GROUP, group_id)
    if not member_id or len(member_id) > MAX_MEMBER_ID_LENGTH:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A member id must have 1 to {MAX_MEMBER_ID_LENGTH} characters.")
    return SessionKey(group_id, member_id, broker.partitions.node_id)


def refused_later(refusal: KafkaError, max_wait_ms: int, broker: HandlerBroker) -> Deferred[ShareFetchResponse]:
    """Refuses a request after its maximum wait time, as Kafka does. If the refusal were immediate, the client would
    retry immediately."""
    reply: Deferred[ShareFetchResponse] = Deferred()
    timer = broker.timers.after(max_wait_ms, partial(reply.fail, refusal))
    reply.on_disconnect(timer.cancel)
    return reply


async def share_acknowledge(
    request: ShareAcknowledgeRequest, context: RequestContext, broker: HandlerBroker
) -> ShareAcknowledgeResponse:
    """Handles ShareAcknowledge (key 79), versions 1-2, which a share group member sends to accept, release or reject
    the records that it has acquired.

    v1 is the first stable version. v2 adds the renewal of locks (KIP-1222), and the lock timeout in the response. Needs
    READ on the group and on each topic. The response is sent once all acknowledgements are stored. Source:
    docs/spec/share-groups.md#s1-6, #s1-11.
    """
    shares = broker.shares
    shares.require_enabled()
    key = session_key(request.group_id, request.member_id, context, broker)
    session = shares.sessions.acknowledge(key, request.share_session_epoch)
    named = [
        AcknowledgedPartition(
            TopicIdPartition(topic.topic_id, partition.partition_index), partition.acknowledgement_batches
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    results = acknowledge(named, key, may_renew=request.is_renew_ack, context=context, broker=broker)
    if request.share_session_epoch == FINAL_EPOCH:
        shares.end_session(session)
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    leaders: dict[int, None] = {}
    for partition, answer in results.items():
        result = await answer if isinstance(answer, Deferred) else answer
        leader = LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
        if result.leader is not None:
            leader_id = -1 if result.leader.leader is None else result.leader.leader
            leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=result.leader.leader_epoch)
            leaders[leader_id] = None
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = topics[partition.topic_id] = ShareAcknowledgeTopicResponse(topic_id=partition.topic_id)
        topic.partitions.append(
            PartitionData(
                partition_index=partition.partition,
                error_code=result.code.value,
                error_message=result.message,
                current_leader=leader,
            )
        )
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=shares.settings.lock_duration_ms(key.group_id) if context.api_version >= 2 else 0,
        responses=list(topics.values()),
        node_endpoints=(
            node_endpoints(NodeEndpoint, broker.metadata.image, leaders, context.connection) if leaders else []
        ),
    )
