"""Answers that are lawful and that Kafka seldom gives: each with a name and a percentage, repeatable by a seed.

They stand in the place of what answers requests, before the rules: a rule sees what a client sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Final

from odradek.broker.api.dispatch import KEY_AND_VERSION, REQUEST_START
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode, is_flexible, reader
from odradek.protocol.errors import ErrorCode
from odradek.protocol.file_slice import Chunk, in_memory
from odradek.protocol.frames import (
    LENGTH_BYTES,
    RESPONSE_START,
    read_client_id,
    request_header_version,
    response_has_tags,
    response_writer,
)
from odradek.protocol.messages import request_class, response_class
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.schema import load

if TYPE_CHECKING:
    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.api.dispatch import Dispatcher
    from odradek.broker.broker import Broker
    from odradek.broker.network.connection_host import FrameReceiver, LoginCounts
    from odradek.broker.runtime.delayed import Parked
    from odradek.protocol.struct import Message

NEVER: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
BY_NUMBER: Final = {api.value: api for api in ApiKey if api not in NEVER}
PERCENT: Final = {
    "unknown tags": 20,  # a tagged field that no version knows, at the end of a flexible answer
    "other order": 30,  # of brokers, topics and partitions in Metadata
    "throttled": 5,  # for 1 to 5 ms, without a quota
    "passing error": 5,  # that a client is to try again after
    "early fetch": 20,  # answered at once, though nothing may be there
}
LOADING, MOVED = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR
PASSING: Final[Mapping[ApiKey, tuple[ErrorCode, ...]]] = {
    **dict.fromkeys(
        (
            ApiKey.JOIN_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.OFFSET_COMMIT,
            ApiKey.OFFSET_FETCH,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ),
        (LOADING, MOVED),
    ),
    **dict.fromkeys(
        (ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN),
        (ErrorCode.CONCURRENT_TRANSACTIONS, LOADING, MOVED),
    ),
    ApiKey.FIND_COORDINATOR: (ErrorCode.COORDINATOR_NOT_AVAILABLE,),
    ApiKey.PRODUCE: (ErrorCode.NOT_LEADER_OR_FOLLOWER,),
    ApiKey.LIST_OFFSETS: (ErrorCode.NOT_LEADER_OR_FOLLOWER,),
}
UNKNOWN_TAG: Final = b"\x01\x8f\x4e\x03odd"  # one tag, number 9999, three bytes
MOST_THROTTLE_MS: Final = 5


@dataclass(slots=True)
class Odd:
    """Odd answers of one cluster. `done`: how often, by name."""

    seed: int
    random: Random
    percent: Mapping[str, int]
    done: dict[str, int]

    @classmethod
    def of(cls, seed: int, percent: Mapping[str, int] = PERCENT) -> Odd:
        return cls(seed, Random(seed), percent, dict.fromkeys(percent, 0))

    def told(self) -> dict[str, object]:
        oddities = [{"name": name, "percent": self.percent[name], "done": done} for name, done in self.done.items()]
        return {"seed": self.seed, "oddities": oddities}

    def draw(self, name: str) -> bool:
        return self.random.random() * 100 < self.percent[name]

    def passing_error(self, api: ApiKey, request: Message) -> ErrorCode | None:
        """None: the request is handled. An answer that nobody waits for says nothing."""
        codes = PASSING.get(api, ())
        if isinstance(request, ProduceRequest) and request.acks == 0:
            return None
        if not codes or not self.draw("passing error"):
            return None
        self.done["passing error"] += 1
        return self.random.choice(codes)

    def hurry(self, request: Message) -> bool:
        """Has a Fetch wait for nothing. Returns whether it did."""
        if not isinstance(request, FetchRequest) or not request.max_wait_ms or not self.draw("early fetch"):
            return False
        request.max_wait_ms = 0
        self.done["early fetch"] += 1
        return True

    def reshape(self, answer: Message) -> None:
        if isinstance(answer, MetadataResponse) and self.draw("other order"):
            self.random.shuffle(answer.brokers)
            self.random.shuffle(answer.topics)
            for topic in answer.topics:
                self.random.shuffle(topic.partitions)
            self.done["other order"] += 1
        if getattr(answer, "throttle_time_ms", None) == 0 and self.draw("throttled"):
            setattr(answer, "throttle_time_ms", self.random.randint(1, MOST_THROTTLE_MS))  # noqa: B010
            self.done["throttled"] += 1

    def tag(self, api: ApiKey, version: int, body: bytes) -> bytes:
        """body: an answer whose last byte says that there are no tagged fields."""
        if not ends_in_tag_count(api, version) or not self.draw("unknown tags"):
            return body
        self.done["unknown tags"] += 1
        return body[:-1] + UNKNOWN_TAG


@cache
def ends_in_tag_count(api: ApiKey, version: int) -> bool:
    """Whether an answer's last byte is the count of its tagged fields: it is flexible, and has none of its own."""
    answer_class = response_class(api.value)
    fields = load(answer_class.__module__.rpartition(".")[2]).fields
    return is_flexible(answer_class, version) and all(field.tag is None for field in fields)


class OddRequests:
    """`odradek.broker.network.connection_host.FrameReceiver`."""

    def __init__(self, plain: FrameReceiver, odd: Odd, dispatcher: Dispatcher[Broker]) -> None:
        self.plain = plain
        self.odd = odd
        self._dispatcher = dispatcher

    @property
    def logins(self) -> LoginCounts | None:
        return self.plain.logins

    def connected(self, connection: ConnectionInfo) -> None:
        self.plain.connected(connection)

    def too_long(self, reason: str, connection: ConnectionInfo) -> Parked | None:
        return self.plain.too_long(reason, connection)

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | Parked:
        if len(frame) < REQUEST_START.size or not connection.is_authenticated:
            return self.plain.start(frame, connection)
        number, version = KEY_AND_VERSION.unpack_from(frame)
        api = BY_NUMBER.get(number)
        if api is None or not self._dispatcher.serves(number, version):
            return self.plain.start(frame, connection)
        _, _, size = REQUEST_START.unpack_from(frame)
        _, position = read_client_id(frame, size, request_header_version(number, version) == 2)
        request = reader(request_class(number), version)(frame, position)[0]
        code = self.odd.passing_error(api, request)
        if code is not None:
            return self.made_odd(api, version, self._dispatcher.refusal(frame, connection, code))
        if self.odd.hurry(request):
            frame = memoryview(bytearray(bytes(frame[:position]) + encode(request, version)))
        reply = self.plain.start(frame, connection)
        if isinstance(reply, list):
            return self.made_odd(api, version, reply)
        return OddReply(reply, lambda answer: self.made_odd(api, version, answer))

    def made_odd(self, api: ApiKey, version: int, answer: list[Chunk]) -> list[Chunk]:
        if not answer or api is ApiKey.FETCH:  # whose records stay where they are
            return answer
        data = b"".join(in_memory(answer))
        answer_class = response_class(api.value)
        position = RESPONSE_START.size + response_has_tags(api.value, answer_class, version)
        message = decode(answer_class, version, data, position)
        _, correlation_id = RESPONSE_START.unpack_from(data)
        self.odd.reshape(message)
        again = b"".join(in_memory(response_writer(api.value, answer_class, version)(correlation_id, message)))
        body = self.odd.tag(api, version, again[LENGTH_BYTES:])
        return [len(body).to_bytes(LENGTH_BYTES) + body]


class OddReply:
    """An answer that is not there yet; `odradek.broker.runtime.delayed.Parked`."""

    def __init__(self, reply: Parked, made_odd: Callable[[list[Chunk]], list[Chunk]]) -> None:
        self._reply = reply
        self._made_odd = made_odd

    @property
    def size_bytes(self) -> int:
        return self._reply.size_bytes

    @property
    def overlapping_key(self) -> int | None:
        return self._reply.overlapping_key

    @property
    def waits_for_others(self) -> bool:
        return self._reply.waits_for_others

    @property
    def is_done(self) -> bool:
        return self._reply.is_done

    def when_done(self, action: Callable[[object], None]) -> None:
        self._reply.when_done(lambda _: action(self))

    def chunks(self) -> list[Chunk]:
        return self._made_odd(self._reply.chunks())

    def abandon(self) -> None:
        self._reply.abandon()
