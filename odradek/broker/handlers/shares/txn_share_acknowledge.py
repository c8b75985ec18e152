"""The handler for TxnShareAcknowledge (KIP-1289): share group acknowledgements in a producer's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.fetch.request import node_endpoints
from odradek.broker.handlers.shares.share_session import MAX_MEMBER_ID_LENGTH
from odradek.broker.shares.core.in_flight import Acknowledgement
from odradek.broker.shares.core.pending_records import check_txn_form
from odradek.broker.shares.core.state import PendingTransaction
from odradek.broker.shares.leader.acknowledging import DONE, AcknowledgeResult
from odradek.broker.shares.leader.txn_acknowledging import (
    NOT_ATTEMPTED,
    Acknowledgements,
    Acknowledger,
    Results,
    acknowledge_in_transaction,
)
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.txn_share_acknowledge_response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    TxnShareAcknowledgeResponse,
    TxnShareAcknowledgeTopicResponse,
)
from odradek.protocol.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.protocol.messages.txn_share_acknowledge_request import TxnShareAcknowledgeRequest


async def txn_share_acknowledge(
    request: TxnShareAcknowledgeRequest, context: RequestContext, broker: HandlerBroker
) -> TxnShareAcknowledgeResponse:
    """Handles TxnShareAcknowledge (key 95), version 0, which accepts or rejects a share group's records in a producer's
    transaction.

    The API is supported while odradek.share.transactions is 1, share.version is at least 1 and transaction.version is
    2. Needs WRITE on the transactional id, and READ on the group and on each topic. The acknowledgements become pending
    either in all of the request's partitions or in none. The response is sent once they are stored. The end of the
    transaction commits or aborts them. Source: docs/spec/share-groups.md#s1-9, #s5-3.
    """
    broker.shares.require_transactions()
    if not request.transactional_id or not request.group_id or not 0 < len(request.member_id) <= MAX_MEMBER_ID_LENGTH:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    named = acknowledgements_of(request)
    refused = refusals(named, context, broker)
    if refused:
        return response_of({each: refused.get(each, NOT_ATTEMPTED) for each in named}, context, broker)
    requested = {each: acknowledgements for each, acknowledgements in named.items() if acknowledgements}
    if not requested:
        return response_of(dict.fromkeys(named, DONE), context, broker)
    transaction = PendingTransaction(request.transactional_id, request.producer_id, request.producer_epoch)
    who = Acknowledger(request.group_id, request.member_id, request.member_epoch, transaction)
    results = await acknowledge_in_transaction(requested, who, broker)
    # Partitions without acknowledgements get the same result as the other partitions.
    others = DONE if all(each.code is ErrorCode.NONE for each in results.values()) else NOT_ATTEMPTED
    return response_of({each: results.get(each, others) for each in named}, context, broker)


def acknowledgements_of(request: TxnShareAcknowledgeRequest) -> Acknowledgements:
    """Returns the acknowledgements by partition. Entries for the same partition are merged."""
    named: dict[TopicIdPartition, list[Acknowledgement]] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            named.setdefault(TopicIdPartition(topic.topic_id, partition.partition_index), []).extend(
                Acknowledgement(each.first_offset, each.last_offset, each.acknowledge_types)
                for each in partition.acknowledgement_batches
            )
    return named


def refusals(
    named: Acknowledgements, context: RequestContext, broker: HandlerBroker
) -> dict[TopicIdPartition, AcknowledgeResult]:
    """Makes the checks in rows 5 to 9 of docs/spec/share-groups.md#s5-3, and returns the refused partitions. Raises
    TOPIC_AUTHORIZATION_FAILED to refuse the whole request."""
    image = broker.metadata.image
    topics = {topic_id: image.topics_by_id.get(topic_id) for topic_id, _ in named}
    for topic in topics.values():
        if topic is not None:
            context.require(Operation.READ, ResourceType.TOPIC, topic.name)
    refused: dict[TopicIdPartition, AcknowledgeResult] = {}
    for each, acknowledgements in named.items():
        topic = topics[each.topic_id]
        try:
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            if not 0 <= each.partition < len(topic.partitions) or topic.partitions[each.partition] is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            placed = topic.partitions[each.partition]
            if placed.leader != broker.partitions.node_id:
                refused[each] = AcknowledgeResult(ErrorCode.NOT_LEADER_OR_FOLLOWER, None, placed)
                continue
            check_txn_form(acknowledgements)
        except KafkaError as error:
            refused[each] = AcknowledgeResult(error.code, error.message)
    return refused


def response_of(results: Results, context: RequestContext, broker: HandlerBroker) -> TxnShareAcknowledgeResponse:
    topics: dict[bytes, TxnShareAcknowledgeTopicResponse] = {}
    leaders: dict[int, None] = {}
    for (topic_id, index), result in results.items():
        data = PartitionData(partition_index=index, error_code=result.code.value, error_message=result.message)
        if result.leader is not None:
            leader_id = -1 if result.leader.leader is None else result.leader.leader
            data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=result.leader.leader_epoch)
            leaders[leader_id] = None
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = TxnShareAcknowledgeTopicResponse(topic_id=topic_id)
        topic.partitions.append(data)
    return TxnShareAcknowledgeResponse(
        responses=list(topics.values()),
        node_endpoints=(
            node_endpoints(NodeEndpoint, broker.metadata.image, leaders, context.connection) if leaders else []
        ),
    )
