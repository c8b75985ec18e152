"""Defines the exchanges that the rules examine. An exchange consists of a decoded request with its times, its response
and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final
from zlib import crc32

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.batch_header import HEADER_BYTES, BatchHeader, batches, crc_ok
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.share_fetch_response import ShareFetchResponse
from odradek.protocol.primitives import records_size
from odradek.protocol.struct import Message, RecordChunks
from odradek.testing.judge.topics import Topic, Topics

GRACE_US: Final = 50_000  # time after which a client is assumed to have read a response
UNKNOWN: Final = "unknown"


class AnswerStatus(Enum):
    """The outcome of an exchange."""

    WAITING = "is not answered yet"
    ANSWERED = "was answered"
    UNANSWERED = "got no answer"  # with acks=0, or if a fault dropped the response
    HUNG_UP = "was answered by closing the connection"


@dataclass(slots=True, eq=False)
class Connection:
    """A client's connection.

    is_pipelined  whether the client ever sent a request before the response to the previous request
    first_us      arrival time of the first request
    last_us       arrival time of the last request
    shows_broker  whether a request has proved that the sender is a broker. `sends_markers` and `sends_others` are
                  evidence too; see `brokers.py`.
    """

    number: int
    node: int = 0
    host: str = ""
    is_sasl: bool = False
    is_pipelined: bool = False
    opened_us: int = 0
    closed_us: int | None = None
    software: str = UNKNOWN
    software_version: str = UNKNOWN
    client_id: str | None = None
    requests: int = 0
    first_us: int = 0
    last_us: int = 0
    shows_broker: bool = False
    sends_markers: bool = False
    sends_others: bool = False
    waiting: dict[int, Exchange] = field(default_factory=dict)
    previous: Exchange | None = None  # the request received before the current one

    @property
    def is_of_broker(self) -> bool:
        """True if the connection comes from one of the cluster's brokers rather than a client."""
        return self.shows_broker or (self.sends_markers and not self.sends_others)

    @property
    def similarity(self) -> tuple[str, str, str, str | None]:
        """A key shared by connections that may belong to the same client. Equal keys alone never prove that a client
        broke a rule, because two connections with equal keys need not belong to the same client."""
        return self.host, self.software, self.software_version, self.client_id


@dataclass(slots=True)
class Batch:
    """A batch in a Produce request.

    is_sound   whether its CRC and length are correct
    is_alone   whether it is the request's only batch for the partition
    continues  whether its sequence may continue another topic's sequence, because the client knows only the name of a
               topic that was deleted and created again, or because it is unknown which requests were for this topic
    content    checksum of its records as sent, without the header; None if the recording does not contain the records
    """

    topic: Topic
    partition: int
    header: BatchHeader
    is_sound: bool
    is_alone: bool
    continues: bool
    content: int | None = None

    @property
    def place(self) -> tuple[Topic, int]:
        return self.topic, self.partition


@dataclass(slots=True, eq=False)
class Exchange:
    """A request and its response.

    request        the decoded request; None if it is masked or cannot be read
    unreadable     the reason that the request cannot be read
    earliest_us    the earliest time at which the client can have sent the request
    lacks_records  whether the recording left out the records, after checking the CRCs of their batches
    is_behind      whether the request was sent before the response to the previous request
    is_unsure      whether it is unknown which came first, the request or the response to the previous one
    """

    number: int
    connection: Connection
    api: ApiKey | None
    version: int
    correlation_id: int
    client_id: str | None
    topics: Topics
    request: Message | None
    received_us: int
    earliest_us: int
    is_behind: bool = False
    is_unsure: bool = False
    lacks_records: bool = False
    is_flexible: bool = False
    unreadable: str | None = None
    answer: Message | None = None
    status: AnswerStatus = AnswerStatus.WAITING
    answered_us: int = 0
    written_us: int | None = None
    _batches: list[Batch] | None = None
    _topics_by_key: dict[str | bytes, Topic] = field(default_factory=dict)

    def topic(self, name: str | None, topic_id: bytes) -> Topic:
        """Returns the topic with this name, or with this id if `name` is empty. Within one exchange, every call returns
        the same topic, even if the topic is deleted in the meantime."""
        key = name or topic_id
        found = self._topics_by_key.get(key)
        if found is None:
            found = self._topics_by_key[key] = self.topics.find(name, topic_id)
        return found

    @property
    def is_lost(self) -> bool:
        """True if the client will never receive a response."""
        return self.status in (AnswerStatus.UNANSWERED, AnswerStatus.HUNG_UP) or (
            self.written_us is None and self.connection.closed_us is not None
        )

    @property
    def is_after_answer(self) -> bool:
        """True if the request is known to have been sent after the response to the previous request."""
        return not self.is_behind and not self.is_unsure

    @property
    def batches(self) -> list[Batch]:
        """The first batch of each partition in a Produce request, except for partitions whose batches cannot be parsed.
        Empty for requests of other APIs."""
        if self._batches is None:
            self._batches = _batches(self, self.request) if isinstance(self.request, ProduceRequest) else []
        return self._batches


def _batches(exchange: Exchange, request: ProduceRequest) -> list[Batch]:
    found = []
    for each in request.topic_data:
        topic = exchange.topic(each.name, each.topic_id)
        continues = topic.is_joined or (topic.is_later and bool(each.name))
        for partition in each.partition_data:
            data = partition.records or b""
            try:
                placed = list(batches(data))
            except (MalformedMessage, ValueError):
                continue
            if placed:
                position, header = placed[0]
                is_whole = position + header.size_bytes <= len(data)
                is_sound = is_whole and (exchange.lacks_records or crc_ok(data, position, header.size_bytes))
                content = None
                if header.has_producer_id and not exchange.lacks_records:
                    content = crc32(memoryview(data)[position + HEADER_BYTES : position + header.size_bytes])
                found.append(Batch(topic, partition.index, header, is_sound, len(placed) == 1, continues, content))
    return found


def forget_records(message: Message | None) -> None:
    """Replaces the records in a message with a view of shared zeros. This saves memory, because exchanges are kept
    longer than their records are needed."""
    if isinstance(message, ProduceRequest):
        for topic in message.topic_data:
            for partition in topic.partition_data:
                partition.records = _zeros(partition.records)
    elif isinstance(message, (FetchResponse, ShareFetchResponse)):
        for answered in message.responses:
            for data in answered.partitions:
                data.records = _zeros(data.records)


def _zeros(records: RecordChunks | None) -> memoryview | None:
    """Returns a view of zeros with the length of the records."""
    if records is None:
        return None
    size = records_size(records)
    if size > len(_shared_zeros[0]):
        _shared_zeros[0] = memoryview(bytes(size))
    return _shared_zeros[0][:size]


_shared_zeros: Final = [memoryview(b"")]


def knows_response(request: Exchange, answered: Exchange) -> bool:
    """Returns whether the client must have known the response to `answered` when it sent `request`.

    Returns False if the response to `answered` was not written completely or its connection was closed shortly
    afterwards.
    """
    written_us, closed_us = answered.written_us, answered.connection.closed_us
    if answered.status is not AnswerStatus.ANSWERED or written_us is None or request.number == answered.number:
        return False
    if closed_us is not None and closed_us < written_us + GRACE_US:
        return False
    if request.earliest_us - written_us >= GRACE_US:
        return True
    connection = request.connection
    is_next = answered.connection is connection and answered.number < request.number
    return is_next and not connection.is_pipelined and request.is_after_answer
