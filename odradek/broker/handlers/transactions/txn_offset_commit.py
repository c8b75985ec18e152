"""TxnOffsetCommit (key 28), versions 0-6: stores offsets of a group that take effect if the transaction commits.

v2: leader epochs. v3: flexible; member, instance and generation are checked where they are given. v4:
TRANSACTION_ABORTABLE is understood. v5: adds the group's partition to the transaction. v6 (KIP-1319): topic
ids instead of names, GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH. Needs WRITE on the transactional
id, READ on the group and each topic. Answered when the offsets are recorded; they take effect with the COMMIT marker.
Source: docs/spec/transactions.md#s2-7, docs/spec/kafka-4.4.md#s5-2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from odradek.broker.api.error_translations import Asker, translated
from odradek.broker.coordinators.shard_records import RecordsOf
from odradek.broker.coordinators.verification import (
    TXN_OFFSET_COMMIT_ADDS_SINCE,
    TransactionalProducer,
    Unverified,
    VerificationResult,
)
from odradek.broker.runtime.delayed import Deferred, NowOrLater
from odradek.broker.runtime.slices import Steps, in_slices
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

TOPIC_IDS_SINCE: Final = 6
RefusedTopics: TypeAlias = dict[str | bytes, TxnOffsetCommitResponseTopic]  # by `key_of`


def txn_offset_commit(
    request: TxnOffsetCommitRequest, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[TxnOffsetCommitResponse]:
    return in_slices(_txn_offset_commit(request, context, broker))


def _txn_offset_commit(
    request: TxnOffsetCommitRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[NowOrLater[TxnOffsetCommitResponse]]:
    context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    by_id = context.api_version >= TOPIC_IDS_SINCE
    image = broker.metadata.image
    checked_at = image.topics_version
    refused: RefusedTopics = {}
    known = []
    for topic in request.topics:
        accepted = check_topic(topic, context, image, refused, by_id=by_id)
        if accepted is not None:
            known.append(accepted)
        yield
    if image.topics_version != checked_at:  # offsets must not outlive a topic that was deleted between two slices
        known = still_there(known, image, refused)
    if not known:
        return TxnOffsetCommitResponse(topics=list(refused.values()))
    accepted_request = TxnOffsetCommitRequest(
        transactional_id=request.transactional_id,
        group_id=request.group_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=known,
    )
    commit = TransactionalCommit(accepted_request, refused, context.api_version, broker)
    commit.begin()
    return commit.reply


class TransactionalCommit:
    """One TxnOffsetCommit whose topics are known, from the question to the transaction's coordinator to its answer."""

    def __init__(
        self, request: TxnOffsetCommitRequest, refused: RefusedTopics, version: int, broker: HandlerBroker
    ) -> None:
        """refused: answers that are known already."""
        self.reply: Deferred[TxnOffsetCommitResponse] = Deferred()
        self._request = request
        self._refused = refused
        self._version = version
        self._broker = broker

    def begin(self) -> None:
        request, broker = self._request, self._broker
        if request.group_id == "":
            self._refuse(KafkaError(ErrorCode.INVALID_GROUP_ID))
            return
        adds = self._version >= TXN_OFFSET_COMMIT_ADDS_SINCE
        index = broker.groups.partition_for(request.group_id)
        if not broker.verifier.asks_for(adds):
            self._write(None)
            return
        try:
            partition = broker.partitions.get(GROUP_OFFSETS, index)
        except KafkaError as missing:
            self._refuse(missing)
            return
        broker.verifier.verify(
            TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch),
            [Unverified(partition, None)],
            adds,
            lambda results: self._verified(results[GROUP_OFFSETS, index]),
            waits_for_the_last=False,
        )

    def _verified(self, result: VerificationResult) -> None:
        if isinstance(result, KafkaError):
            self._refuse(result)
            return
        # A topic may have been deleted while the coordinator was asked.
        self._request.topics = still_there(self._request.topics, self._broker.metadata.image, self._refused)
        if self._request.topics:
            self._write(result)
        else:
            self.reply.resolve(TxnOffsetCommitResponse(topics=list(self._refused.values())))

    def _write(self, guard: VerificationGuard | None) -> None:
        request = self._request
        if request.producer_id < 0 or request.producer_epoch < 0:  # as the transaction's coordinator would say
            self._refuse(KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
            return
        try:
            self._broker.seals.check(request.producer_id, request.producer_epoch)
            answer = self._broker.groups.shard_for(request.group_id).submit(
                lambda core, now_ms: core.commit_transactional_offsets(request, version=self._version, now_ms=now_ms),
                producer=RecordsOf(
                    request.producer_id,
                    request.producer_epoch,
                    guard,
                    must_sync=request.producer_id in self._broker.two_phase,
                ),
            )
        except KafkaError as refusal:
            self._refuse(refusal)
            return
        if isinstance(answer, Deferred):
            answer.when_done(self._written)
        else:
            self.reply.resolve(merged(self._refused, answer))

    def _written(self, answer: Deferred[TxnOffsetCommitResponse]) -> None:
        try:
            written = answer.outcome()
        except KafkaError as refusal:
            self._refuse(refusal)
            return
        self.reply.resolve(merged(self._refused, written))

    def _refuse(self, refusal: KafkaError) -> None:
        """The group's refusal is about what was left to ask it; the other partitions keep their own codes."""
        told = translated(Asker.TXN_OFFSET_COMMIT, refusal.code, self._version)
        code = translated(ApiKey.TXN_OFFSET_COMMIT, told, self._version)
        answers = TxnOffsetCommitResponse(topics=[refusals(topic, code) for topic in self._request.topics])
        self.reply.resolve(merged(self._refused, answers))


def check_topic(
    topic: TxnOffsetCommitRequestTopic,
    context: RequestContext,
    image: MetadataImage,
    refused: RefusedTopics,
    *,
    by_id: bool,
) -> TxnOffsetCommitRequestTopic | None:
    """Finds the topic, and leaves of its partitions those that exist; the others are added to `refused`.

    by_id  the request names its topics by their ids; they keep these, so that a topic that is deleted and made again
           meanwhile is not taken for the one that was meant
    """
    if by_id:
        known = image.topics_by_id.get(topic.topic_id)
        if known is None:
            refuse(refused, refusals(topic, ErrorCode.UNKNOWN_TOPIC_ID))
            return None
        topic = TxnOffsetCommitRequestTopic(name=known.name, topic_id=topic.topic_id, partitions=topic.partitions)
    try:
        context.require(Operation.READ, ResourceType.TOPIC, topic.name)
    except KafkaError as error:
        refuse(refused, refusals(topic, error.code))
        return None
    return existing(topic, image, refused)


def still_there(
    topics: list[TxnOffsetCommitRequestTopic], image: MetadataImage, refused: RefusedTopics
) -> list[TxnOffsetCommitRequestTopic]:
    return [each for topic in topics if (each := existing(topic, image, refused)) is not None]


def existing(
    topic: TxnOffsetCommitRequestTopic, image: MetadataImage, refused: RefusedTopics
) -> TxnOffsetCommitRequestTopic | None:
    """The topic with those of its partitions that exist; the others are added to `refused` as unknown."""
    if topic.topic_id != ZERO_UUID and topic.topic_id not in image.topics_by_id:  # it was deleted since it was found
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
    """Returns what tells topics of one answer apart: the id where the request gave one, else the name."""
    return topic.name if topic.topic_id == ZERO_UUID else topic.topic_id


def refuse(refused: RefusedTopics, topic: TxnOffsetCommitResponseTopic) -> None:
    """Adds an answer to those of the same topic."""
    known = refused.setdefault(key_of(topic), topic)
    if known is not topic:
        known.partitions += topic.partitions


def merged(refused: RefusedTopics, answered: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
    """Joins both as Kafka does: one entry per topic, refused ones first; if none was, one per entry of the request."""
    if not refused:
        return answered
    for topic in answered.topics:
        refuse(refused, topic)
    return TxnOffsetCommitResponse(topics=list(refused.values()))
