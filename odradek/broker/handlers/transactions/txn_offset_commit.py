"""Handles TxnOffsetCommit (key 28), versions 0-6, which stores a group's offsets. They take effect only if the
transaction commits.

v2 adds leader epochs. v3 is flexible, and the member, instance and generation are checked if the request has them.
Since v4, the client understands TRANSACTION_ABORTABLE. Since v5, the broker adds the group's partition to the
transaction. v6 (KIP-1319) uses topic ids instead of names, and adds GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH. Needs
WRITE on the transactional id, and READ on the group and each topic. The response is sent once the offsets are recorded.
They take effect when the COMMIT marker is written. Source: docs/spec/transactions.md#s2-7, docs/spec/kafka-4.4.md#s5-2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from odradek.broker.api.error_translations import Receiver, translate
from odradek.broker.coordinators.shard_records import RecordProducer
from odradek.broker.coordinators.verification import (
    FIRST_TXN_OFFSET_COMMIT_VERSION_THAT_ADDS,
    TransactionalProducer,
    UnverifiedBatch,
    VerificationResults,
)
from odradek.broker.runtime.slices import Steps, in_slices
from odradek.broker.runtime.waiting import Deferred, NowOrLater, start_coroutine
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
from odradek.protocol.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.protocol.struct import ZERO_UUID
from odradek.protocol.topic_partition import GROUP_OFFSETS

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.metadata.image import MetadataImage
    from odradek.storage.verification import VerificationGuard

FIRST_VERSION_WITH_TOPIC_IDS: Final = 6
RefusedTopics: TypeAlias = dict[str | bytes, TxnOffsetCommitResponseTopic]  # for the keys, see `key_of`


def txn_offset_commit(
    request: TxnOffsetCommitRequest, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[TxnOffsetCommitResponse]:
    return in_slices(_txn_offset_commit(request, context, broker))


def _txn_offset_commit(
    request: TxnOffsetCommitRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[NowOrLater[TxnOffsetCommitResponse]]:
    context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    image = broker.metadata.image
    checked_at = image.topics_version
    refused: RefusedTopics = {}
    accepted_topics = []
    for topic in request.topics:
        accepted = check_topic(topic, context, image, refused, by_id=by_id)
        if accepted is not None:
            accepted_topics.append(accepted)
        yield
    if image.topics_version != checked_at:  # a deleted topic's offsets must not be stored
        accepted_topics = require_group_partition(accepted_topics, image, refused)
    if not accepted_topics:
        return TxnOffsetCommitResponse(topics=list(refused.values()))
    accepted_request = TxnOffsetCommitRequest(
        transactional_id=request.transactional_id,
        group_id=request.group_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=accepted_topics,
    )
    return start_coroutine(commit(accepted_request, refused, context.api_version, broker))


async def commit(
    request: TxnOffsetCommitRequest, refused: RefusedTopics, version: int, broker: HandlerBroker
) -> TxnOffsetCommitResponse:
    """Stores the offsets of known topics after the transaction coordinator has confirmed or added the group's
    partition.

    refused  results for topics that have already been refused; a refusal by the group applies only to the other topics
    """
    try:
        written = await write(request, refused, version, broker)
    except KafkaError as refusal:
        refusal_code = translate(Receiver.TXN_OFFSET_COMMIT, refusal.code, version)
        code = translate(ApiKey.TXN_OFFSET_COMMIT, refusal_code, version)
        written = TxnOffsetCommitResponse(topics=[refusals(topic, code) for topic in request.topics])
    return merged(refused, written)


async def write(
    request: TxnOffsetCommitRequest, refused: RefusedTopics, version: int, broker: HandlerBroker
) -> TxnOffsetCommitResponse:
    """Writes the offsets. Raises KafkaError if no offset is stored."""
    if request.group_id == "":
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    guard = None
    adds = version >= FIRST_TXN_OFFSET_COMMIT_VERSION_THAT_ADDS
    if broker.verifier.asks_for(adds):
        guard = await verify_group_partition(request, adds, broker)
        # A topic may have been deleted while this request waited for the coordinator.
        request.topics = require_group_partition(request.topics, broker.metadata.image, refused)
        if not request.topics:
            return TxnOffsetCommitResponse()
    producer_id, producer_epoch = request.producer_id, request.producer_epoch
    if producer_id < 0 or producer_epoch < 0:  # the transaction coordinator would return the same error
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    broker.seals.check(producer_id, producer_epoch)
    answer = broker.groups.shard_for(request.group_id).submit(
        lambda core, now_ms: core.commit_transactional_offsets(request, version=version, now_ms=now_ms),
        producer=RecordProducer(producer_id, producer_epoch, guard, must_sync=producer_id in broker.two_phase),
    )
    return await answer if isinstance(answer, Deferred) else answer


async def verify_group_partition(
    request: TxnOffsetCommitRequest, adds: bool, broker: HandlerBroker
) -> VerificationGuard | None:
    """Has the transaction coordinator verify or add the group's partition. Raises KafkaError if the coordinator
    refuses."""
    index = broker.groups.partition_for(request.group_id)
    partition = broker.partitions.get(GROUP_OFFSETS, index)
    verification: Deferred[VerificationResults] = Deferred()
    broker.verifier.verify(
        TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch),
        [UnverifiedBatch(partition, None)],
        adds,
        verification.resolve,
        waits_for_the_last=False,
    )
    result = (await verification)[GROUP_OFFSETS, index]
    if isinstance(result, KafkaError):
        raise result
    return result


def check_topic(
    topic: TxnOffsetCommitRequestTopic,
    context: RequestContext,
    image: MetadataImage,
    refused: RefusedTopics,
    *,
    by_id: bool,
) -> TxnOffsetCommitRequestTopic | None:
    """Returns the topic with its existing partitions. Returns None if the topic is refused or has no existing
    partition. Refused partitions are added to `refused`.

    by_id  whether the request identifies topics by id. The returned topic keeps its id, so that a topic that is
           recreated in the meantime is not mistaken for the requested topic
    """
    if by_id:
        topic_image = image.topics_by_id.get(topic.topic_id)
        if topic_image is None:
            refuse(refused, refusals(topic, ErrorCode.UNKNOWN_TOPIC_ID))
            return None
        topic = TxnOffsetCommitRequestTopic(name=topic_image.name, topic_id=topic.topic_id, partitions=topic.partitions)
    try:
        context.require(Operation.READ, ResourceType.TOPIC, topic.name)
    except KafkaError as error:
        refuse(refused, refusals(topic, error.code))
        return None
    return keep_existing_partitions(topic, image, refused)


def require_group_partition(
    topics: list[TxnOffsetCommitRequestTopic], image: MetadataImage, refused: RefusedTopics
) -> list[TxnOffsetCommitRequestTopic]:
    return [each for topic in topics if (each := keep_existing_partitions(topic, image, refused)) is not None]


def keep_existing_partitions(
    topic: TxnOffsetCommitRequestTopic, image: MetadataImage, refused: RefusedTopics
) -> TxnOffsetCommitRequestTopic | None:
    """Returns the topic with its existing partitions, or None if no partition exists. The other partitions are added to
    `refused` as unknown."""
    # The topic may have been deleted since it was looked up.
    if topic.topic_id != ZERO_UUID and topic.topic_id not in image.topics_by_id:
        refuse(refused, refusals(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        return None
    there = [each for each in topic.partitions if image.has_partition((topic.name, each.partition_index))]
    missing = [each for each in topic.partitions if not image.has_partition((topic.name, each.partition_index))]
    if missing:
        unknown = TxnOffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=missing)
        refuse(refused, refusals(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    if not there:
        return None
    return TxnOffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=there)


def refusals(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code.value)
            for partition in topic.partitions
        ],
    )


def key_of(topic: TxnOffsetCommitResponseTopic) -> str | bytes:
    """Returns the key that identifies a topic in a response: its id if the request contained the id, otherwise its
    name."""
    return topic.name if topic.topic_id == ZERO_UUID else topic.topic_id


def refuse(refused: RefusedTopics, topic: TxnOffsetCommitResponseTopic) -> None:
    """Adds a topic's refused partitions to `refused`, in the topic's existing entry if there is one."""
    earlier = refused.setdefault(key_of(topic), topic)
    if earlier is not topic:
        earlier.partitions += topic.partitions


def merged(refused: RefusedTopics, answered: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
    """Merges the refusals into the response, as Kafka does. If any partition was refused, the merged response has one
    entry for each topic, and refused topics come first. Otherwise it has one entry for each entry in the request."""
    if not refused:
        return answered
    for topic in answered.topics:
        refuse(refused, topic)
    return TxnOffsetCommitResponse(topics=list(refused.values()))
