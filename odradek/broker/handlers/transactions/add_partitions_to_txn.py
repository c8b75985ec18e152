"""AddPartitionsToTxn (key 24), versions 0-5: adds partitions to a transaction, or verifies that they have been added.

v0-3: a producer, for its one transaction; v2: PRODUCER_FENCED is understood, v3: flexible. v4: a partition leader, for
many transactions at once, to add or only to verify (`verify_only`); v5: TRANSACTION_ABORTABLE is understood.
v0-3 need WRITE on the transactional id and on each topic, v4-5 CLUSTER_ACTION on the cluster. All partitions of a
transaction are added or none: if one cannot be, the others are OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from odradek.broker.runtime.delayed import all_of
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from odradek.protocol.topic_partition import INTERNAL_TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred
    from odradek.protocol.messages.add_partitions_to_txn_request import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
    )
    from odradek.protocol.topic_partition import PartitionCodes, TopicPartition

BATCHED_SINCE: Final = 4


def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: RequestContext, broker: Broker
) -> AddPartitionsToTxnResponse | Deferred[AddPartitionsToTxnResponse]:
    if context.api_version >= BATCHED_SINCE:
        return for_leaders(request, context, broker)
    return for_a_producer(request, context, broker)


def for_a_producer(
    request: AddPartitionsToTxnRequest, context: RequestContext, broker: Broker
) -> AddPartitionsToTxnResponse | Deferred[AddPartitionsToTxnResponse]:
    transactional_id, topics = request.v3_and_below_transactional_id, request.v3_and_below_topics
    context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    refused = refusals(topics, broker) | forbidden(topics, context)
    if refused:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=topic_results(topics, only_refused(topics, refused), is_joined=True)
        )
    codes = broker.transactions.add_partitions(
        transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        partitions_of(topics),
        verify_only=False,
        asked_version=0,
    )
    return all_of(
        [codes],
        lambda _, error: dict.fromkeys(partitions_of(topics), error.code),
        lambda answers: answer_of_coordinator(topics, answers[0]),
    )


def answer_of_coordinator(topics: list[AddPartitionsToTxnTopic], codes: PartitionCodes) -> AddPartitionsToTxnResponse:
    """All partitions were added or none: raises why not."""
    for code in codes.values():
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topic_results(topics, codes, is_joined=False))


def for_leaders(
    request: AddPartitionsToTxnRequest, context: RequestContext, broker: Broker
) -> AddPartitionsToTxnResponse | Deferred[AddPartitionsToTxnResponse]:
    context.require(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    transactions = request.transactions
    counts = Counter(each.transactional_id for each in transactions)
    refused = [refusals(each.topics, broker) for each in transactions]
    return all_of(
        [
            codes_of(each, unknown, broker, is_repeated=counts[each.transactional_id] > 1)
            for each, unknown in zip(transactions, refused, strict=True)
        ],
        lambda at, error: dict.fromkeys(partitions_of(transactions[at].topics), error.code),
        lambda answers: AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id,
                    topic_results=topic_results(each.topics, codes, is_joined=bool(unknown) or each.verify_only),
                )
                for each, unknown, codes in zip(transactions, refused, answers, strict=True)
            ]
        ),
    )


def codes_of(
    transaction: AddPartitionsToTxnTransaction,
    refused: dict[TopicPartition, ErrorCode],
    broker: Broker,
    *,
    is_repeated: bool,
) -> PartitionCodes | Deferred[PartitionCodes]:
    """is_repeated: which of the entries of one id counts cannot be told; Kafka mixes them up."""
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
        asked_version=2,
    )


def refusals(topics: list[AddPartitionsToTxnTopic], broker: Broker) -> dict[TopicPartition, ErrorCode]:
    has_partition = broker.metadata.image.has_partition
    return {each: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for each in partitions_of(topics) if not has_partition(each)}


def forbidden(topics: list[AddPartitionsToTxnTopic], context: RequestContext) -> dict[TopicPartition, ErrorCode]:
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
    """is_joined: one for each topic, and one in it for each partition, however often they are named. So Kafka answers
    where partitions have codes of their own; with one code for all, it has an answer for each mention."""
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
                    partition_index=partition,
                    partition_error_code=codes[name, partition].value,
                )
                for partition in partitions
            ],
        )
        for name, partitions in mentions
    ]
