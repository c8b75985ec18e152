"""Handlers for a producer's requests to the transaction coordinator, from InitProducerId to EndTxn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import Audit, RequestContext, authorization_error
from odradek.broker.runtime.slices import Steps, done_in_slices
from odradek.broker.runtime.waiting import Deferred, NowOrLater, wait_for_answer
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from odradek.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.topic_partition import GROUP_OFFSETS, INTERNAL_TOPICS, PartitionCodes, TopicPartition

if TYPE_CHECKING:
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
    from odradek.protocol.messages.add_partitions_to_txn_request import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
    )
    from odradek.protocol.messages.end_txn_request import EndTxnRequest
    from odradek.protocol.messages.end_txn_response import EndTxnResponse
    from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest


NONE: Final = -1


async def init_producer_id(
    request: InitProducerIdRequest, context: RequestContext, broker: HandlerBroker
) -> InitProducerIdResponse:
    """Handles InitProducerId (key 22), versions 0-6, which assigns a producer id and epoch, with or without a
    transactional id.

    v2 is flexible. v3 adds the producer's current id and epoch. Since v4, the client understands PRODUCER_FENCED, and
    since v5 TRANSACTION_ABORTABLE. v6 (KIP-939) adds Enable2Pc and KeepPreparedTxn, and its response contains the kept
    transaction; Kafka lists v6 only with `unstable.api.versions.enable`. Without a transactional id, needs
    IDEMPOTENT_WRITE on the cluster or WRITE on any topic. With a transactional id, needs WRITE on the transactional id,
    and also TWO_PHASE_COMMIT for Enable2Pc. If the transactional id has an open transaction and the request has
    KeepPreparedTxn, the transaction is kept. Otherwise an open transaction is aborted, and the client retries after
    CONCURRENT_TRANSACTIONS.
    """
    transactional_id = request.transactional_id
    if transactional_id is None:
        may_write = is_allowed(context, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME, Audit.PROBE)
        if not may_write and not context.authorizer.allows_on_any(context, Operation.WRITE, ResourceType.TOPIC):
            raise authorization_error(ResourceType.CLUSTER, context.api_key)
    else:
        context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        # For Enable2Pc, a setting can also cause TRANSACTIONAL_ID_AUTHORIZATION_FAILED; see `check_request`.
        if request.enable2_pc and not is_allowed(
            context, Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, transactional_id
        ):
            reason = "Enable2Pc needs the right TWO_PHASE_COMMIT on the transactional id."
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, reason)
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if transactional_id is None:
        return await for_idempotence(broker)
    return await wait_for_answer(broker.transactions.init_producer_id(request))


async def for_idempotence(broker: HandlerBroker) -> InitProducerIdResponse:
    producer_id: Deferred[int] = Deferred()
    broker.producer_ids.allocate(producer_id.complete)
    return InitProducerIdResponse(producer_id=await producer_id, producer_epoch=0)


FIRST_BATCHED_VERSION: Final = 4


async def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: RequestContext, broker: HandlerBroker
) -> AddPartitionsToTxnResponse:
    """Handles AddPartitionsToTxn (key 24), versions 0-5, which adds partitions to a transaction or verifies that they
    have been added.

    v0-3 are sent by a producer for its own transaction. Since v2, the client understands PRODUCER_FENCED. v3 is
    flexible. v4-5 are sent by a partition leader for several transactions, to add partitions or only to verify them
    (`verify_only`). Since v5, the leader understands TRANSACTION_ABORTABLE. v0-3 need WRITE on the transactional id and
    on each topic, and v4-5 need CLUSTER_ACTION on the cluster. Either all partitions of a transaction are added or
    none. If one partition is refused, the others get OPERATION_NOT_ATTEMPTED.
    """
    if context.api_version >= FIRST_BATCHED_VERSION:
        return await for_leaders(request, context, broker)
    return await for_a_producer(request, context, broker)


async def for_a_producer(
    request: AddPartitionsToTxnRequest, context: RequestContext, broker: HandlerBroker
) -> AddPartitionsToTxnResponse:
    transactional_id, topics = request.v3_and_below_transactional_id, request.v3_and_below_topics
    context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    refused = refusals(topics, broker) | unauthorized_partitions(topics, context)
    if refused:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=topic_results(topics, only_refused(topics, refused), is_joined=True)
        )
    adding = broker.transactions.add_partitions(
        transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        partitions_of(topics),
        verify_only=False,
        requested_version=0,
    )
    codes = await wait_for_answer(adding)
    for code in codes.values():  # either all partitions have been added or none
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topic_results(topics, codes, is_joined=False))


async def for_leaders(
    request: AddPartitionsToTxnRequest, context: RequestContext, broker: HandlerBroker
) -> AddPartitionsToTxnResponse:
    context.require(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    refused: list[dict[TopicPartition, ErrorCode]] = []
    adding = await done_in_slices(add_each(request.transactions, refused, broker))
    codes: list[PartitionCodes] = []
    for answer in adding:
        codes.append(await wait_for_answer(answer))
    return await done_in_slices(answer_to_leader(request.transactions, refused, codes))


def add_each(
    transactions: list[AddPartitionsToTxnTransaction],
    refused: list[dict[TopicPartition, ErrorCode]],
    broker: HandlerBroker,
) -> Steps[list[NowOrLater[PartitionCodes]]]:
    """Calls the coordinator for each transaction. Partitions that do not exist are added to `refused`."""
    counts = Counter(each.transactional_id for each in transactions)
    adding: list[NowOrLater[PartitionCodes]] = []
    for each in transactions:
        unknown = refusals(each.topics, broker)
        refused.append(unknown)
        adding.append(codes_of(each, unknown, broker, is_repeated=counts[each.transactional_id] > 1))
        yield
    return adding


def answer_to_leader(
    transactions: list[AddPartitionsToTxnTransaction],
    refused: list[dict[TopicPartition, ErrorCode]],
    codes: list[PartitionCodes],
) -> Steps[AddPartitionsToTxnResponse]:
    response = AddPartitionsToTxnResponse()
    for each, unknown, of_each in zip(transactions, refused, codes, strict=True):
        topics = topic_results(each.topics, of_each, is_joined=bool(unknown) or each.verify_only)
        response.results_by_transaction.append(
            AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=topics)
        )
        yield
    return response


def codes_of(
    transaction: AddPartitionsToTxnTransaction,
    refused: dict[TopicPartition, ErrorCode],
    broker: HandlerBroker,
    *,
    is_repeated: bool,
) -> NowOrLater[PartitionCodes]:
    """Adds the partitions to the transaction, or only verifies them, and returns an error code for each partition. Set
    `is_repeated` if the request has several entries for the same transactional id: they are refused with
    INVALID_REQUEST because they are ambiguous. (Kafka mixes them up.)"""
    topics = transaction.topics
    if is_repeated:
        return dict.fromkeys(partitions_of(topics), ErrorCode.INVALID_REQUEST)
    if refused:
        return only_refused(topics, refused)
    return broker.transactions.add_partitions(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        partitions_of(topics),
        verify_only=transaction.verify_only,
        requested_version=2,
    )


def refusals(topics: list[AddPartitionsToTxnTopic], broker: HandlerBroker) -> dict[TopicPartition, ErrorCode]:
    has_partition = broker.metadata.image.has_partition
    return {each: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for each in partitions_of(topics) if not has_partition(each)}


def unauthorized_partitions(
    topics: list[AddPartitionsToTxnTopic], context: RequestContext
) -> dict[TopicPartition, ErrorCode]:
    found: dict[TopicPartition, ErrorCode] = {}
    for topic in topics:
        try:
            if topic.name in INTERNAL_TOPICS:
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            context.require(Operation.WRITE, ResourceType.TOPIC, topic.name)
        except KafkaError as error:
            found |= dict.fromkeys(partitions_of([topic]), error.code)
    return found


def only_refused(topics: list[AddPartitionsToTxnTopic], refused: dict[TopicPartition, ErrorCode]) -> PartitionCodes:
    return {each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions_of(topics)}


def partitions_of(topics: list[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [(topic.name, partition) for topic in topics for partition in topic.partitions]


def topic_results(
    topics: list[AddPartitionsToTxnTopic], codes: PartitionCodes, *, is_joined: bool
) -> list[AddPartitionsToTxnTopicResult]:
    """Returns the results by topic. By default, a partition that occurs several times in the request has a result for
    each occurrence, as in Kafka if all partitions have the same code. If `is_joined` is set, it has a single result, as
    in Kafka if partitions have different codes."""
    mentions: list[tuple[str, Iterable[int]]] = [(topic.name, topic.partitions) for topic in topics]
    if is_joined:
        named: dict[str, dict[int, None]] = {}
        for name, partitions in mentions:
            named.setdefault(name, {}).update(dict.fromkeys(partitions))
        mentions = list(named.items())
    return [
        AddPartitionsToTxnTopicResult(
            name=name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition, partition_error_code=codes[name, partition].value
                )
                for partition in partitions
            ],
        )
        for name, partitions in mentions
    ]


async def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, context: RequestContext, broker: HandlerBroker
) -> AddOffsetsToTxnResponse:
    """Handles AddOffsetsToTxn (key 25), versions 0-4, which adds a group's offsets to a transaction, before the
    producer commits the offsets in the transaction.

    Since v2, the client understands PRODUCER_FENCED. v3 is flexible. Since v4, the client understands
    TRANSACTION_ABORTABLE. Needs WRITE on the transactional id and READ on the group. Adds the group's partition of
    `__consumer_offsets`, whether or not that partition exists.
    """
    context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    partition = (GROUP_OFFSETS, broker.groups.partition_for(request.group_id))
    adding = broker.transactions.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [partition],
        verify_only=False,
        requested_version=0,
    )
    code = (await wait_for_answer(adding))[partition]
    if code is not ErrorCode.NONE:
        raise KafkaError(code)
    return AddOffsetsToTxnResponse()


FIRST_VERSION_WITH_EPOCH_BUMP: Final = 5


def end_txn(request: EndTxnRequest, context: RequestContext, broker: HandlerBroker) -> NowOrLater[EndTxnResponse]:
    """Handles EndTxn (key 26), versions 0-5, which commits or aborts a transaction.

    Since v2, the client understands PRODUCER_FENCED. v3 is flexible. Since v4, the client understands
    TRANSACTION_ABORTABLE. Since v5 (KIP-890), ending a transaction always bumps the epoch, and the response contains
    the producer id and epoch of the next transaction. Needs WRITE on the transactional id. The response is sent once
    the decision and its markers are written. If a marker must be retried, the response does not wait for the marker.
    """
    context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    return broker.transactions.end_txn(
        request, requested_version=2 if context.api_version >= FIRST_VERSION_WITH_EPOCH_BUMP else 0
    )
