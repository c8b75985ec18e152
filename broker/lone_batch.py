"""The Produce that most requests are: one batch for one partition, with nothing unusual about it.

It goes a short way to the log and back. Whatever is unusual or wrong with a request is left to the general way in
handlers/produce.py, which finds out what it is; so there are no refusals here, and nothing to keep alike but answers.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct as Packing
from typing import TYPE_CHECKING, NamedTuple

from broker.authorization import Operation, ResourceType
from broker.delayed import NO_RESPONSE, Deferred, Encode
from protocol.api_keys import ApiKey
from protocol.errors import KafkaError
from protocol.frames import response_chunks
from protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from storage.log import Origin
from storage.validation import ALWAYS_CHEAP_BYTES, accept_usual
from storage.verification import NO_GUARD

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.context import RequestContext
    from broker.partition import Partition
    from protocol.batch_header import BatchHeader
    from protocol.messages.produce_request import ProduceRequest, TopicProduceData
    from protocol.struct import Buffer
    from storage.log import Appended

TOPIC_IDS_SINCE = 13
OLDEST_VERSION = 5  # of those whose answers have all numbers
ACKNOWLEDGED = frozenset({-1, 1})
NO_OFFSET = -1
NO_TIMESTAMP = -1
CORRELATION_ID_AT = 4  # behind the length
CORRELATION_ID = Packing(">i")
NUMBERS = Packing(">ihqqq")  # partition index, error code, base offset, log append time, log start offset
ANSWERS_KEPT = 10_000  # topics times versions


def find_partition(topic: TopicProduceData, index: int, context: RequestContext, broker: Broker) -> Partition:
    """Raises KafkaError, also where the client may not write to the topic."""
    if context.api_version >= TOPIC_IDS_SINCE:
        partition = broker.partitions.get_by_id(topic.topic_id, index)
        context.require(Operation.WRITE, ResourceType.TOPIC, partition.topic)
        return partition
    context.require(Operation.WRITE, ResourceType.TOPIC, topic.name)
    return broker.partitions.get(topic.name, index)


def stage_lone_batch(request: ProduceRequest, context: RequestContext, broker: Broker) -> LoneBatch | None:
    """None where anything is unusual or wrong; then nothing has happened."""
    if len(request.topic_data) != 1 or request.acks not in ACKNOWLEDGED:
        return None
    if context.api_version < OLDEST_VERSION:
        return None
    topic = request.topic_data[0]
    if len(topic.partition_data) != 1:
        return None
    data = topic.partition_data[0]
    records = data.records
    if records is None or len(records) > ALWAYS_CHEAP_BYTES:
        return None
    try:
        partition = find_partition(topic, data.index, context, broker)
        accepted = accept_usual(records, partition.rules, context.now_ms)
        if accepted is None or partition.is_internal:
            return None
        guard = None
        if accepted.header.attributes or request.transactional_id is not None:
            if not continues_transaction(accepted.header, partition, request.transactional_id, context):
                return None
            guard = NO_GUARD
        staged = LoneBatch(topic, data.index, context.api_version)
        staged.appended = partition.append(
            accepted.batch,
            origin=Origin.CLIENT,
            now_ms=context.now_ms,
            on_done=staged.written,
            header=accepted.header,
            guard=guard,
        )
    except KafkaError:
        return None
    staged.log_start_offset = partition.log.log_start_offset
    return staged


def continues_transaction(
    header: BatchHeader, partition: Partition, transactional_id: str | None, context: RequestContext
) -> bool:
    """Whether the batch belongs to a transaction that is open here, so that nobody needs to be asked about it.

    Raises KafkaError where the client may not write in the transactional id's name.
    """
    if transactional_id is None or not header.is_transactional:
        return False
    context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    return partition.log.has_open_transaction(header.producer_id, header.producer_epoch)


class LoneBatch(Deferred[ProduceResponse]):
    """A batch in its partition's next write; then its answer."""

    __slots__ = ("_error", "_index", "_topic", "_version", "appended", "log_start_offset")

    appended: Appended
    log_start_offset: int

    def __init__(self, topic: TopicProduceData, index: int, version: int) -> None:
        super().__init__(overlaps=True)
        self._topic = topic
        self._index = index
        self._version = version
        self._error: KafkaError | None = None

    def written(self, error: KafkaError | None) -> None:
        self._error = error
        self._finish(NO_RESPONSE)  # made when it is asked for

    def outcome(self) -> ProduceResponse:
        topic, appended = self._topic, self.appended
        if self._error is not None:
            answer = PartitionProduceResponse(
                index=self._index, error_code=self._error.code.value, base_offset=NO_OFFSET
            )
        else:
            answer = PartitionProduceResponse(
                index=self._index,
                base_offset=appended.base_offset,
                log_append_time_ms=_on_the_wire(appended.log_append_time_ms),
                log_start_offset=self.log_start_offset,
            )
        return ProduceResponse(
            responses=[TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])]
        )

    def encoded(self, encode: Encode, correlation_id: int) -> list[Buffer]:
        """As the codec encodes `outcome`, in a fifth of the time."""
        if self._error is not None:
            return super().encoded(encode, correlation_id)
        topic, appended = self._topic, self.appended
        form = answer_form(self._version, topic.name, topic.topic_id)
        frame = bytearray(form.frame)
        CORRELATION_ID.pack_into(frame, CORRELATION_ID_AT, correlation_id)
        time_ms = _on_the_wire(appended.log_append_time_ms)
        NUMBERS.pack_into(frame, form.numbers_at, self._index, 0, appended.base_offset, time_ms, self.log_start_offset)
        return [frame]


def _on_the_wire(log_append_time_ms: int | None) -> int:
    return NO_TIMESTAMP if log_append_time_ms is None else log_append_time_ms


class AnswerForm(NamedTuple):
    """A frame in which only the correlation id and the numbers of the partition are to be filled in."""

    frame: bytes
    numbers_at: int


@lru_cache(ANSWERS_KEPT)
def answer_form(version: int, topic: str, topic_id: bytes) -> AnswerForm:
    placeholder = (2**31 - 1, 2**15 - 1, 2**63 - 1, 2**63 - 1, 2**63 - 1)
    index, error_code, base_offset, time_ms, log_start_offset = placeholder
    answer = PartitionProduceResponse(
        index=index,
        error_code=error_code,
        base_offset=base_offset,
        log_append_time_ms=time_ms,
        log_start_offset=log_start_offset,
    )
    response = ProduceResponse(
        responses=[TopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=[answer])]
    )
    frame = b"".join(response_chunks(ApiKey.PRODUCE.value, version, 0, response))
    return AnswerForm(frame, frame.rindex(NUMBERS.pack(*placeholder)))
