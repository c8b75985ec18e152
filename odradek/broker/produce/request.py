"""Handles a Produce request on the general path: checks and stages its batches, and waits until all of them are done.

handlers/records/produce.py decides which requests use this path, and transactional.py decides which batches of a
transaction must be verified first.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.api.error_translations import Receiver, translate
from odradek.broker.api.long_requests import FIRST_PRODUCE_VERSION_WITH_IDS
from odradek.broker.runtime.replies import NO_RESPONSE, CloseConnection, NoResponse
from odradek.broker.runtime.waiting import Deferred
from odradek.broker.runtime.workers import DecompressionWorkers, JobResult, Workers
from odradek.broker.transactions.producers import SealedTransaction
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.batch_header import NO_TIMESTAMP
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.storage.log import Origin
from odradek.storage.validation import (
    CHEAP_OPENED_BYTES,
    AcceptedBatch,
    BatchRules,
    DecompressesToMore,
    RefusedRecords,
    check_produced,
    is_cheap,
    is_compressed,
    only_batch,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.coordinators.verification import Verifier
    from odradek.broker.metadata.cluster_metadata import ClusterMetadata
    from odradek.broker.partitions.partition import Partition
    from odradek.broker.partitions.registry import Partitions
    from odradek.broker.runtime.slices import Steps
    from odradek.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
    from odradek.protocol.struct import Buffer
    from odradek.storage.verification import VerificationGuard

    StageRecords = Callable[[Partition, Buffer | None, PartitionProduceResponse], None]

FIRST_VERSION_WITH_CURRENT_LEADER: Final = 10  # KIP-951
NO_OFFSET: Final = -1
ACKS: Final = frozenset({-1, 0, 1})
ADMIN_CLIENT_ID: Final = "__admin_client"  # Kafka allows only this client to write to internal topics
# Kafka's response for these errors does not contain the log start offset. These are errors in the log itself and errors
# that Kafka detects before it uses the log.
WITHOUT_LOG_START: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)


class ProduceBroker(Protocol):
    """The parts of the broker that a Produce request needs."""

    @property
    def partitions(self) -> Partitions: ...
    @property
    def workers(self) -> Workers: ...
    @property
    def decompression_workers(self) -> DecompressionWorkers:
        """The threads for compressed batches, whose decompressed size may be large. They decompress only a few batches
        at a time."""

    @property
    def verifier(self) -> Verifier: ...
    @property
    def metadata(self) -> ClusterMetadata: ...


class VerificationError(KafkaError):
    """Raised if a batch is refused before it reaches the log. The response contains `message`."""


class PendingProduce:
    """Processes one Produce request, and counts the partitions that are not done yet.

    A batch is checked immediately if the check is cheap, and otherwise in a thread. If a thread is used, the
    connection's next requests have to wait for the reply, so that a producer's batches are staged in the order of its
    requests.
    """

    __slots__ = ("_acks", "_answers", "_broker", "_context", "_failed", "_leaders", "_undone", "reply")

    def __init__(self, acks: int, context: RequestContext, broker: ProduceBroker) -> None:
        self.reply: Deferred[ProduceResponse | NoResponse] = Deferred(overlaps=True)
        self._acks = acks
        self._context = context
        self._broker = broker
        self._answers: list[TopicProduceResponse] = []
        self._failed = False
        self._leaders: set[int] = set()  # leaders on other nodes, which the response has to name
        self._undone = 1  # number of unfinished partitions, plus 1 until all batches have been started

    def take_topic(self, topic: TopicProduceData, stage_records: StageRecords) -> None:
        """Calls `stage_records` for each batch and its partition. `stage_records` refuses a batch by raising
        KafkaError."""
        answers = self._answers_for(topic)
        for data in topic.partition_data:
            self._take_one(topic, data, answers, stage_records)

    def take_many(self, topics: list[TopicProduceData]) -> Steps[Deferred[ProduceResponse | NoResponse]]:
        """Checks and stages all batches of a request that has a very large number of batches, one batch per step."""
        for topic in topics:
            answers = self._answers_for(topic)
            for data in topic.partition_data:
                self._take_one(topic, data, answers, self.stage_unguarded)
                yield
        self.partition_done()
        return self.reply

    def _answers_for(self, topic: TopicProduceData) -> list[PartitionProduceResponse]:
        answers: list[PartitionProduceResponse] = []
        self._answers.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
        return answers

    def _take_one(
        self,
        topic: TopicProduceData,
        data: PartitionProduceData,
        answers: list[PartitionProduceResponse],
        stage_records: StageRecords,
    ) -> None:
        answer = PartitionProduceResponse(index=data.index, base_offset=NO_OFFSET)
        answers.append(answer)
        partition = None
        try:
            partition = find_partition(topic, data.index, self._context, self._broker)
            stage_records(partition, data.records, answer)
        except KafkaError as refusal:
            self.refuse(answer, refusal, None if partition is None else log_start_offset(partition, refusal))
            if refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._add_current_leader(topic, answer)

    def stage_unguarded(self, partition: Partition, records: Buffer | None, answer: PartitionProduceResponse) -> None:
        self._take_records(partition, records, answer, None)

    def stage_verified(
        self,
        partition: Partition,
        records: Buffer | None,
        answer: PartitionProduceResponse,
        guard: VerificationGuard | None,
    ) -> None:
        """Checks and stages a batch that had to wait for the transaction coordinator. Never raises an error; errors
        become part of the response."""
        try:
            if partition.is_deleted:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self._take_records(partition, records, answer, guard)
        except KafkaError as refusal:
            self.refuse(answer, refusal, log_start_offset(partition, refusal))

    def partition_done(self) -> None:
        self._undone -= 1
        if self._undone:
            return
        if self._acks != 0:
            self.reply.resolve(ProduceResponse(responses=self._answers, node_endpoints=self._node_endpoints()))
        elif self._failed:
            self.reply.fail(
                CloseConnection(
                    "a Produce with acks=0 has failed, which the broker can report only by closing the connection"
                )
            )
        else:
            self.reply.resolve(NO_RESPONSE)

    def _add_current_leader(self, topic: TopicProduceData, answer: PartitionProduceResponse) -> None:
        if self._context.api_version < FIRST_VERSION_WITH_CURRENT_LEADER:
            return
        image = self._broker.metadata.image
        by_id = self._context.api_version >= FIRST_PRODUCE_VERSION_WITH_IDS
        partition = (image.topics_by_id[topic.topic_id] if by_id else image.topics[topic.name]).partitions[answer.index]
        leader_id = -1 if partition.leader is None else partition.leader
        answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=partition.leader_epoch)
        self._leaders.add(leader_id)

    def _node_endpoints(self) -> list[NodeEndpoint]:
        endpoints = []
        for node_id in self._leaders:
            registration = self._broker.metadata.image.brokers.get(node_id)
            found = None if registration is None else self._context.connection.endpoint(registration.endpoints)
            if registration is not None and found is not None:
                endpoints.append(NodeEndpoint(node_id=node_id, host=found[0], port=found[1], rack=registration.rack))
        return endpoints

    def _take_records(
        self,
        partition: Partition,
        records: Buffer | None,
        answer: PartitionProduceResponse,
        guard: VerificationGuard | None,
    ) -> None:
        # Kafka never answers a request with null records. Odradek does, to spare the client a timeout.
        if records is None:
            raise RefusedRecords(ErrorCode.INVALID_RECORD, "no records", found_by_log=False)
        refusal = self.refusal_by_request(partition)
        if refusal is not None:
            self._require_one_batch(records)
            raise refusal
        context, rules = self._context, partition.rules
        if is_cheap(records, rules):
            with suppress(DecompressesToMore):
                accepted = check_produced(
                    records, rules, context.now_ms, context.api_version, opens_bytes=CHEAP_OPENED_BYTES
                )
                self._stage(partition, accepted, answer, guard)
                return
        self.reply.overlaps = False
        self._undone += 1
        self._check_in_thread(partition, records, answer, guard)

    def refusal_by_request(self, partition: Partition) -> KafkaError | None:
        """Returns the error that Kafka's log detects before it reads the records, or None if there is no such error.
        Invalid acks come first, then records for internal topics."""
        if self._acks not in ACKS:
            return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        if partition.is_internal and self._context.client_id != ADMIN_CLIENT_ID:
            return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        return None

    def _require_one_batch(self, records: Buffer) -> None:
        """Raises the error that Kafka detects before it uses the log, if there is one."""
        try:
            only_batch(records, self._context.api_version)
        except RefusedRecords as refusal:
            if not refusal.found_by_log:
                raise

    def _check_in_thread(
        self, partition: Partition, records: Buffer, answer: PartitionProduceResponse, guard: VerificationGuard | None
    ) -> None:
        """Checks records in a thread. If too many bytes are already waiting to be decompressed, refuses the records
        with REQUEST_TIMED_OUT, which clients retry."""
        context, rules = self._context, partition.rules
        check = partial(check_produced, records, rules, context.now_ms, context.api_version)
        then = partial(self._records_checked, partition, records, rules, answer, guard)
        if not is_compressed(records):
            self._broker.workers.run(check, then)
        elif not self._broker.decompression_workers.run(len(records), check, then):
            then(JobResult(None, KafkaError(ErrorCode.REQUEST_TIMED_OUT)))

    def _records_checked(
        self,
        partition: Partition,
        records: Buffer,
        rules: BatchRules,
        answer: PartitionProduceResponse,
        guard: VerificationGuard | None,
        outcome: JobResult[AcceptedBatch],
    ) -> None:
        """Continues on the loop after the check. The partition may have changed during the check, so the rules that the
        thread used are compared with the current rules. The log then checks sequences, epochs and the guard."""
        try:
            if partition.is_deleted:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if partition.rules != rules:
                self._check_in_thread(partition, records, answer, guard)
                return
            self._stage(partition, outcome.result(), answer, guard)
        except KafkaError as refusal:
            self.refuse(answer, refusal, log_start_offset(partition, refusal))
        self.partition_done()

    def _stage(
        self,
        partition: Partition,
        accepted: AcceptedBatch,
        answer: PartitionProduceResponse,
        guard: VerificationGuard | None,
    ) -> None:
        try:
            appended = partition.append(
                accepted.batch,
                origin=Origin.CLIENT,
                now_ms=self._context.now_ms,
                on_done=partial(self._batch_appended, answer),
                header=accepted.header,
                guard=guard,
            )
        except SealedTransaction as refusal:
            code = translate(Receiver.PRODUCE, refusal.code, self._context.api_version)
            raise KafkaError(code, refusal.message) from None
        self._undone += 1
        answer.base_offset = appended.base_offset
        answer.log_start_offset = partition.log.log_start_offset
        if appended.log_append_time_ms is not None:
            answer.log_append_time_ms = appended.log_append_time_ms

    def _batch_appended(self, answer: PartitionProduceResponse, error: KafkaError | None) -> None:
        if error is not None:
            self.refuse(answer, error, None)
        self.partition_done()

    def refuse(self, answer: PartitionProduceResponse, refusal: KafkaError, log_start_offset: int | None) -> None:
        self._failed = True
        refuse(answer, refusal, log_start_offset)


def refuse(answer: PartitionProduceResponse, refusal: KafkaError, log_start_offset: int | None) -> None:
    answer.error_code = refusal.code.value
    answer.base_offset = NO_OFFSET
    answer.log_append_time_ms = NO_TIMESTAMP
    answer.log_start_offset = NO_OFFSET if log_start_offset is None else log_start_offset
    if isinstance(refusal, RefusedRecords):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in refusal.record_errors
        ]
        answer.error_message = refusal.message
    elif isinstance(refusal, VerificationError):
        answer.error_message = refusal.message


def find_partition(topic: TopicProduceData, index: int, context: RequestContext, broker: ProduceBroker) -> Partition:
    """Returns the partition. Raises KafkaError, for example if the client is not allowed to write to the topic."""
    if context.api_version >= FIRST_PRODUCE_VERSION_WITH_IDS:
        partition = broker.partitions.get_by_id(topic.topic_id, index)
        context.require(Operation.WRITE, ResourceType.TOPIC, partition.topic)
        return partition
    context.require(Operation.WRITE, ResourceType.TOPIC, topic.name)
    return broker.partitions.get(topic.name, index)


def log_start_offset(partition: Partition, refusal: KafkaError) -> int | None:
    """Returns the log start offset if Kafka's response contains it for this error, otherwise None."""
    if refusal.code in WITHOUT_LOG_START or (isinstance(refusal, RefusedRecords) and not refusal.found_by_log):
        return None
    return partition.log.log_start_offset
