"""The fast path of Produce, for a request with one ordinary batch for one partition.

The fast path reads the bytes of the request and builds the bytes of the response directly, because the general path
takes twice as much CPU time. Unusual and invalid requests are left to the general path (handlers/records/produce.py),
which determines the error. The fast path therefore never refuses a request, and the two paths only need to agree on the
responses for written batches. If the transaction coordinator does not confirm the batch immediately, the general path
contacts the coordinator again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct as Packing
from struct import error as PackingError
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.api.context import AllowAll, Authorizer, ConnectionInfo
from odradek.broker.api.long_requests import FIRST_FLEXIBLE_PRODUCE_VERSION, FIRST_PRODUCE_VERSION_WITH_IDS
from odradek.broker.coordinators.verification import FIRST_PRODUCE_VERSION_THAT_ADDS
from odradek.broker.partitions.partition import Partition
from odradek.broker.produce.request import NO_OFFSET, ProduceBroker
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.batch_header import NO_TIMESTAMP, TRANSACTIONAL
from odradek.protocol.errors import KafkaError
from odradek.protocol.frames import response_chunks
from odradek.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from odradek.storage.log import AppendResult, Origin
from odradek.storage.validation import ALWAYS_CHEAP_BYTES, accept_ordinary, is_cheap

if TYPE_CHECKING:
    from odradek.broker.api.dispatch import Route
    from odradek.protocol.file_slice import Chunk
    from odradek.protocol.struct import Buffer

OLDEST_VERSION = FIRST_FLEXIBLE_PRODUCE_VERSION
# In a request, the client id is followed by the header's tagged fields and the size of the transactional id. The
# transactional id is followed by acks, timeout, number of topics and the size of the topic's name. Counts and sizes are
# encoded as n + 1; 0 means null.
ACKS_TO_NAME, ACKS_TO_ID = Packing(">hiBB"), Packing(">hiBx")
CLIENT_ID_AT: Final = 10
ID_AT: Final = 2  # distance from the end of the client id to the transactional id
TOPIC_AT: Final = 7  # distance from the end of the transactional id to the first topic
NONE, ONE = 0, 2
MAX_ONE_BYTE_VARINT: Final = 127
COUNT_AND_INDEX_BYTES: Final = 1 + 4
# Maximum number of bytes between the client id and the records, where the transactional id and the topic's name have at
# most 126 bytes each.
HEAD_BYTES: Final = ID_AT + 126 + TOPIC_AT + 126 + COUNT_AND_INDEX_BYTES + 4
TAGS: Final = 3  # tag buffers of the partition, topic and request; each takes one byte if it is empty
CORRELATION_ID_AT: Final = 4  # position in a response, after the response's length
CORRELATION_ID: Final = Packing(">i")
# The fields that differ between responses for one partition: base offset, log append time, log start offset.
NUMBERS: Final = Packing(">qqq")
MAX_CACHED_PARTITIONS: Final = 100_000
WRITE, TOPIC = Operation.WRITE, ResourceType.TOPIC


def fast_path(
    route: Route[Any], broker: ProduceBroker, now_ms: Callable[[], int], authorizer: Authorizer
) -> ProduceFastPath | None:
    """Returns the fast path for this version of Produce, or None if every request must use the general path."""
    if route.version < OLDEST_VERSION:
        return None
    return ProduceFastPath(route, broker, now_ms, None if isinstance(authorizer, AllowAll) else authorizer)


@dataclass(slots=True)
class CachedPartition:
    """A partition, and a response for it that contains placeholders for the numbers. All requests of one version
    identify the partition by the same bytes, which are the key in the cache."""

    partition: Partition
    answer: bytes
    numbers_at: int


class ProduceFastPath:
    def __init__(
        self, route: Route[Any], broker: ProduceBroker, now_ms: Callable[[], int], authorizer: Authorizer | None
    ) -> None:
        self.route = route
        self._authorizer = authorizer
        self._broker = broker
        self._now_ms = now_ms
        self._has_ids = route.version >= FIRST_PRODUCE_VERSION_WITH_IDS
        self._acks_to_topic = ACKS_TO_ID if self._has_ids else ACKS_TO_NAME
        self._adds = route.version >= FIRST_PRODUCE_VERSION_THAT_ADDS
        # Keyed by the slice of the request that runs from the topic through the partition index.
        self._cached: dict[bytes, CachedPartition] = {}

    def start_request(
        self, frame: memoryview, correlation_id: int, client_id_size: int, connection: ConnectionInfo
    ) -> QuickReply | None:
        """Writes the batch of an ordinary request. Returns None if anything is unusual or invalid. In that case nothing
        has changed, except that the transaction coordinator may have been asked to verify the batch."""
        head_at = CLIENT_ID_AT + client_id_size if client_id_size > 0 else CLIENT_ID_AT
        head = bytes(frame[head_at : head_at + HEAD_BYTES])  # indexing a memoryview takes three times as long
        try:
            tags, id_size = head[0], head[1]
            at = 1 + id_size if id_size else 2
            if self._has_ids:
                acks, _, topics = self._acks_to_topic.unpack_from(head, at)
                topic_size = 16
            else:
                acks, _, topics, topic_size = self._acks_to_topic.unpack_from(head, at)
            start = at + TOPIC_AT
            end = start + topic_size + COUNT_AND_INDEX_BYTES
            records_size = head[end]
            size_end = end + 1
            if records_size > MAX_ONE_BYTE_VARINT:
                records_size += (head[size_end] - 1) * 128
                size_end += 1
                if head[size_end - 1] > MAX_ONE_BYTE_VARINT:
                    records_size += (head[size_end] - 1) * 16384
                    size_end += 1
        except (PackingError, IndexError):
            return None
        records_at = head_at + size_end
        records_end = records_at + records_size - 1
        if (
            tags
            or id_size > MAX_ONE_BYTE_VARINT
            or topics != ONE
            or topic_size > MAX_ONE_BYTE_VARINT
            or (acks != -1 and acks != 1)
            or records_size <= 0
            or len(frame) != records_end + TAGS
            or frame[records_end]
            or frame[records_end + 1]
            or frame[records_end + 2]
        ):
            return None
        key = head[start:end]
        cached = self._cached.get(key)
        if cached is None or cached.partition.is_deleted:
            cached = self._find(key)
            if cached is None:
                return None
        authorizer = self._authorizer
        if authorizer is not None:
            if id_size and not may_write_as(authorizer, connection, head[ID_AT:at]):
                return None
            if not authorizer.passes(connection, WRITE, TOPIC, cached.partition.topic):
                return None
        records = frame[records_at:records_end]
        if records_size > ALWAYS_CHEAP_BYTES and not is_cheap(records):
            return None
        partition, now_ms = cached.partition, self._now_ms()
        header = accept_ordinary(records, partition.rules, now_ms)
        if header is None or (header.attributes & TRANSACTIONAL == 0) is not (id_size == NONE):
            return None
        staged = QuickReply(self, cached, correlation_id, len(frame))
        try:
            guard = None
            if id_size:
                transactional_id = str(head[ID_AT:at], "utf-8")
                guard = self._broker.verifier.verify_now(transactional_id, header, partition, self._adds, now_ms)
            batch = bytearray(records) if records.readonly else records
            staged.appended = partition.append(
                batch, origin=Origin.CLIENT, now_ms=now_ms, on_done=staged.batch_written, header=header, guard=guard
            )
        except (KafkaError, UnicodeDecodeError):
            return None
        staged.log_start_offset = partition.log.log_start_offset
        return staged

    def _find(self, key: bytes) -> CachedPartition | None:
        """Looks up a partition and adds it to the cache. Returns None if only the general path can handle the
        request."""
        if key[-COUNT_AND_INDEX_BYTES] != ONE:
            return None
        index = int.from_bytes(key[-4:], "big", signed=True)
        named = key[:-COUNT_AND_INDEX_BYTES]
        partitions = self._broker.partitions
        try:
            partition = (
                partitions.get_by_id(named, index) if self._has_ids else partitions.get(str(named[1:], "utf-8"), index)
            )
        except (KafkaError, UnicodeDecodeError):
            return None
        if partition.is_internal:  # the general path checks which clients may write to internal topics
            return None
        if len(self._cached) >= MAX_CACHED_PARTITIONS:  # the cache probably contains deleted topics
            self._cached.clear()
        cached = self._cached[key] = CachedPartition(partition, *answer_form(self.route.version, partition))
        return cached


def may_write_as(authorizer: Authorizer, connection: ConnectionInfo, transactional_id: Buffer) -> bool:
    try:
        name = str(transactional_id, "utf-8")
    except UnicodeDecodeError:
        return False
    return authorizer.passes(connection, WRITE, ResourceType.TRANSACTIONAL_ID, name)


class QuickReply:
    """A batch that is part of its partition's next write, and later the response for it. The connection treats this
    object as a parked request."""

    __slots__ = (
        "_cached",
        "_correlation_id",
        "_error",
        "_fast_path",
        "_on_done",
        "appended",
        "is_done",
        "log_start_offset",
        "parked_s",
        "size_bytes",
        "started_s",
    )

    overlapping_key: Final = ApiKey.PRODUCE.value
    waits_for_others: Final = False
    appended: AppendResult
    log_start_offset: int
    started_s: float  # see `Exchange`
    parked_s: float

    def __init__(
        self, fast_path: ProduceFastPath, cached: CachedPartition, correlation_id: int, size_bytes: int
    ) -> None:
        self._fast_path = fast_path
        self._cached = cached
        self._correlation_id = correlation_id
        self._error: KafkaError | None = None
        self._on_done: Callable[[object], None] | None = None
        self.is_done = False
        self.size_bytes = size_bytes  # size of the request's frame

    def batch_written(self, error: KafkaError | None) -> None:
        self._error = error
        self.is_done = True
        action, self._on_done = self._on_done, None
        if action is not None:
            action(self)

    def when_done(self, action: Callable[[object], None]) -> None:
        if self.is_done:
            action(self)
        else:
            self._on_done = action

    def abandon(self) -> None:
        self._on_done = None

    def chunks(self) -> list[Chunk]:
        """Returns the response exactly as the codec would encode it and updates the API's metrics."""
        route = self._fast_path.route
        now_s = perf_counter()
        route.remote_s += now_s - self.parked_s
        route.answered_in[int((now_s - self.started_s) * 1e6).bit_length()] += 1
        cached, appended = self._cached, self.appended
        if self._error is not None:
            refused = PartitionProduceResponse(
                index=cached.partition.index, error_code=self._error.code.value, base_offset=NO_OFFSET
            )
            return [
                *response_chunks(route.key, route.version, self._correlation_id, response(cached.partition, refused))
            ]
        time_ms = appended.log_append_time_ms
        answer = bytearray(cached.answer)
        CORRELATION_ID.pack_into(answer, CORRELATION_ID_AT, self._correlation_id)
        NUMBERS.pack_into(
            answer,
            cached.numbers_at,
            appended.base_offset,
            NO_TIMESTAMP if time_ms is None else time_ms,
            self.log_start_offset,
        )
        return [answer]


def answer_form(version: int, partition: Partition) -> tuple[bytes, int]:
    """Returns an encoded response for the partition, and the position of its numbers in that response."""
    placeholder = (2**63 - 1, 2**63 - 2, 2**63 - 3)
    base_offset, time_ms, log_start_offset = placeholder
    answer = PartitionProduceResponse(
        index=partition.index, base_offset=base_offset, log_append_time_ms=time_ms, log_start_offset=log_start_offset
    )
    frame = b"".join(response_chunks(ApiKey.PRODUCE.value, version, 0, response(partition, answer)))
    return frame, frame.rindex(NUMBERS.pack(*placeholder))


def response(partition: Partition, answer: PartitionProduceResponse) -> ProduceResponse:
    """Builds a response with both the topic's name and its id; each version encodes only one of them."""
    topic = TopicProduceResponse(name=partition.topic, topic_id=partition.topic_id, partition_responses=[answer])
    return ProduceResponse(responses=[topic])
