"""Exchanges as rules see them: a decoded request with its times, and what became of its answer."""

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

GRACE_US: Final = 50_000  # after so long a client is held to have read an answer
UNKNOWN: Final = "unknown"


class AnswerFate(Enum):
    """The end of an exchange: what became of its answer."""

    WAITING = "is not answered yet"
    ANSWERED = "was answered"
    UNANSWERED = "got no answer"  # acks=0, or a fault dropped it
    HUNG_UP = "was answered by hanging up"


@dataclass(slots=True, eq=False)
class Connection:
    """A connection of a client.

    is_pipelined: whether the client ever sent a request on it before it had read the answer to the last one. first_us,
    last_us: when its first request came, and its last one. shows_broker, sends_markers, sends_others: what its requests
    tell about their sender, see `brokers.py`.
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
    previous: Exchange | None = None  # the one received before the one that is judged

    @property
    def is_of_broker(self) -> bool:
        """Whether a broker of the cluster sends on it, and no client."""
        return self.shows_broker or (self.sends_markers and not self.sends_others)

    @property
    def kin(self) -> tuple[str, str, str, str | None]:
        """Shared by connections that may belong to one client; never enough to accuse one."""
        return self.host, self.software, self.software_version, self.client_id


@dataclass(slots=True)
class Batch:
    """One batch of a Produce request. is_sound: its CRC and its length are right.

    content: a checksum of its records as they were sent, without the header; None if the recording lacks them.
    """

    topic: str
    partition: int
    header: BatchHeader
    is_sound: bool
    is_alone: bool
    content: int | None = None

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.partition


@dataclass(slots=True, eq=False)
class Exchange:
    """earliest_us: when the request may have been sent at the earliest. `request` is None where it is masked or cannot
    be read, which `unreadable` tells then. lacks_records: records were left out, of batches whose CRC was right.
    is_behind, is_unsure: it was sent before the answer before it was, or nobody looked."""

    number: int
    connection: Connection
    api: ApiKey | None
    version: int
    correlation_id: int
    client_id: str | None
    request: Message | None
    received_us: int
    earliest_us: int
    is_behind: bool = False
    is_unsure: bool = False
    lacks_records: bool = False
    is_flexible: bool = False
    unreadable: str | None = None
    answer: Message | None = None
    fate: AnswerFate = AnswerFate.WAITING
    answered_us: int = 0
    written_us: int | None = None
    _batches: list[Batch] | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the client will never see an answer."""
        return self.fate in (AnswerFate.UNANSWERED, AnswerFate.HUNG_UP) or (
            self.written_us is None and self.connection.closed_us is not None
        )

    @property
    def is_after_answer(self) -> bool:
        """Whether it is known to have been sent after the answer before it."""
        return not self.is_behind and not self.is_unsure

    @property
    def batches(self) -> list[Batch]:
        """Batches of a Produce request, one for each partition: the first that can be read there."""
        if self._batches is None:
            self._batches = (
                _batches(self.request, self.lacks_records) if isinstance(self.request, ProduceRequest) else []
            )
        return self._batches


def _batches(request: ProduceRequest, lacks_records: bool) -> list[Batch]:
    found = []
    for topic in request.topic_data:
        name = topic.name or topic.topic_id.hex()
        for partition in topic.partition_data:
            data = partition.records or b""
            try:
                placed = list(batches(data))
            except (MalformedMessage, ValueError):
                continue
            if placed:
                position, header = placed[0]
                is_whole = position + header.size_bytes <= len(data)
                is_sound = is_whole and (lacks_records or crc_ok(data, position, header.size_bytes))
                content = None
                if header.has_producer_id and not lacks_records:
                    content = crc32(memoryview(data)[position + HEADER_BYTES : position + header.size_bytes])
                found.append(Batch(name, partition.index, header, is_sound, len(placed) == 1, content))
    return found


def forget_records(message: Message | None) -> None:
    """Puts zeros that all share in the place of records: an exchange is remembered longer than its frame is needed."""
    if isinstance(message, ProduceRequest):
        for topic in message.topic_data:
            for partition in topic.partition_data:
                partition.records = _zeros(partition.records)
    elif isinstance(message, (FetchResponse, ShareFetchResponse)):
        for answered in message.responses:
            for data in answered.partitions:
                data.records = _zeros(data.records)


def _zeros(records: RecordChunks | None) -> memoryview | None:
    """Zeros, as many as there are bytes of records."""
    if records is None:
        return None
    size = records_size(records)
    if size > len(_shared[0]):
        _shared[0] = memoryview(bytes(size))
    return _shared[0][:size]


_shared: Final = [memoryview(b"")]


def knows(request: Exchange, answered: Exchange) -> bool:
    """Whether the client must have known the answer when it sent the request.

    Never an answer that was not written whole, or that was written shortly before its connection was closed.
    """
    written_us, closed_us = answered.written_us, answered.connection.closed_us
    if answered.fate is not AnswerFate.ANSWERED or written_us is None or request.number == answered.number:
        return False
    if closed_us is not None and closed_us < written_us + GRACE_US:
        return False
    if request.earliest_us - written_us >= GRACE_US:
        return True
    connection = request.connection
    is_next = answered.connection is connection and answered.number < request.number
    return is_next and not connection.is_pipelined and request.is_after_answer
