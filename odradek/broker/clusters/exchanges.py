"""The last requests of a cluster and their answers, as its clients saw them: what rules did to them included.

Bytes are kept as they are, up to MOST_BYTES in all, and decoded when somebody asks. A request or an answer of more than
MOST_KEPT_BYTES is kept by its size only, and so is whatever may hold a secret.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from odradek.broker.api.dispatch import KEY_AND_VERSION, REQUEST_START
from odradek.broker.runtime.delayed import CloseConnection
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, reader
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.file_slice import Chunk, in_memory
from odradek.protocol.frames import RESPONSE_START, read_client_id, request_header_version, response_has_tags
from odradek.protocol.kafka_json import kafka_json
from odradek.protocol.messages import request_class, response_class
from odradek.protocol.recording_masks import BY_NUMBER, SECRET

if TYPE_CHECKING:
    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.network.connection_host import FrameReceiver, LoginCounts
    from odradek.broker.runtime.clock import Clock
    from odradek.broker.runtime.delayed import Parked

E = TypeVar("E")  # an exchange under way
MOST_EXCHANGES: Final = 1_000
MOST_BYTES: Final = 4 * 1024 * 1024
MOST_KEPT_BYTES: Final = 16 * 1024  # of a request, and of an answer


@dataclass(slots=True)
class ClusterExchange:
    """`request` and `answer` are None where they are not kept; times in ms of the cluster's clock."""

    number: int
    api: ApiKey
    version: int
    correlation_id: int
    connection: int
    received_ms: int
    request_bytes: int
    request: bytes | None
    answered_ms: int | None = None
    answer_bytes: int = 0
    answer: bytes | None = None
    is_closed: bool = False
    client: SeenClient | None = None

    @property
    def kept_bytes(self) -> int:
        return len(self.request or b"") + len(self.answer or b"")

    def told(self) -> dict[str, object]:
        """Returns its JSON: `answered_ms` is None while the client waits, `closed` tells that the connection was."""
        client_id, request = self._decoded_request()
        return {
            "number": self.number,
            "api": self.api.kafka_name,
            "version": self.version,
            "client_id": client_id,
            "correlation_id": self.correlation_id,
            "connection": self.connection,
            "received_ms": self.received_ms,
            "request_bytes": self.request_bytes,
            "request": request,
            "answered_ms": self.answered_ms,
            "answer_bytes": self.answer_bytes,
            "answer": self._decoded_answer(),
            "closed": self.is_closed,
        }

    def _decoded_request(self) -> tuple[str | None, Mapping[str, object] | None]:
        if self.request is None:
            return None, None
        frame, number = memoryview(self.request), self.api.value
        try:
            _, _, size = REQUEST_START.unpack_from(frame)
            client_id, position = read_client_id(frame, size, request_header_version(number, self.version) == 2)
            message = reader(request_class(number), self.version)(frame, position)[0]
        except (MalformedMessage, ValueError, IndexError):
            return None, None
        return client_id, kafka_json(message, self.version)

    def _decoded_answer(self) -> Mapping[str, object] | None:
        if not self.answer:
            return None
        kind = response_class(self.api.value)
        position = RESPONSE_START.size + response_has_tags(self.api.value, kind, self.version)
        try:
            return kafka_json(decode(kind, self.version, self.answer, position), self.version)
        except (MalformedMessage, ValueError, IndexError):
            return None  # ApiVersions of a version that is not served, for one


@dataclass(slots=True)
class SeenClient:
    """client_id: of the first request of its connection; in_flight: requests without an answer."""

    client_id: str | None = None
    in_flight: int = 0
    has_asked: bool = False


class Exchanges:
    """The last MOST_EXCHANGES of one cluster, over its restarts."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._kept: deque[ClusterExchange] = deque()
        self._kept_bytes = 0
        self._numbers = 0
        self.clients: dict[int, SeenClient] = {}  # by the identity of their connections

    def since(self, number: int, api: str | None, client_id: str | None) -> Iterator[dict[str, object]]:
        """Yields those behind `number`, the oldest first; of this API and client only, where they are given."""
        for each in list(self._kept):
            if each.number <= number or (api is not None and each.api.kafka_name != api):
                continue
            told = each.told()
            if client_id is None or told["client_id"] == client_id:
                yield told

    def connected(self, connection: ConnectionInfo) -> None:
        key = id(connection)
        self.clients[key] = SeenClient()

        def closed() -> None:
            self.clients.pop(key, None)

        connection.when_closed(closed)

    def _client(self, frame: memoryview, number: int, version: int, connection: ConnectionInfo) -> SeenClient:
        client = self.clients.get(id(connection))
        if client is None:  # control came after it
            self.connected(connection)
            client = self.clients[id(connection)]
        if not client.has_asked:
            client.has_asked = True
            _, _, size = REQUEST_START.unpack_from(frame)
            with suppress(MalformedMessage, ValueError, IndexError):
                client.client_id = read_client_id(frame, size, request_header_version(number, version) == 2)[0]
        client.in_flight += 1
        return client

    def begin(self, frame: memoryview, connection: ConnectionInfo) -> ClusterExchange | None:
        """None for what is no request of Kafka's, such as the bytes of a login."""
        if len(frame) < REQUEST_START.size or not connection.is_authenticated:
            return None
        number, version = KEY_AND_VERSION.unpack_from(frame)
        api = BY_NUMBER.get(number)
        if api is None or not (request_class(number).MIN_VERSION <= version <= request_class(number).MAX_VERSION):
            return None
        is_kept = len(frame) <= MOST_KEPT_BYTES and api not in SECRET
        self._numbers += 1
        begun = ClusterExchange(
            self._numbers,
            api,
            version,
            int.from_bytes(frame[4:8], signed=True),
            connection.connection_id,
            self.clock.now_ms(),
            len(frame),
            bytes(frame) if is_kept else None,
            client=self._client(frame, number, version, connection),
        )
        self._kept.append(begun)
        self._kept_bytes += begun.kept_bytes
        self._trim()
        return begun

    def end(self, exchange: ClusterExchange, answer: list[Chunk] | None) -> None:
        """None: the connection was closed instead."""
        exchange.answered_ms = self.clock.now_ms()
        if exchange.client is not None:
            exchange.client.in_flight -= 1
        exchange.is_closed = answer is None
        exchange.answer_bytes = sum(map(len, answer or ()))
        is_left_behind = not self._kept or self._kept[0].number > exchange.number
        if not answer or is_left_behind or exchange.api in SECRET or exchange.answer_bytes > MOST_KEPT_BYTES:
            return
        self._kept_bytes -= exchange.kept_bytes
        exchange.answer = b"".join(in_memory(answer))
        self._kept_bytes += exchange.kept_bytes
        self._trim()

    def _trim(self) -> None:
        while len(self._kept) > MOST_EXCHANGES or self._kept_bytes > MOST_BYTES:
            self._kept_bytes -= self._kept.popleft().kept_bytes


class Watch(Protocol[E]):
    """Whoever is told of each exchange: `Exchanges`, or a recorder."""

    def connected(self, connection: ConnectionInfo) -> None: ...

    def begin(self, frame: memoryview, connection: ConnectionInfo) -> E | None:
        """None: nothing is told of its end."""

    def end(self, exchange: E, answer: list[Chunk] | None) -> None:
        """None: the connection was closed instead. No bytes: there is no answer."""


class WatchedRequests(Generic[E]):
    """In front of what answers frames; `odradek.broker.network.connection_host.Requests`."""

    def __init__(self, plain: FrameReceiver, exchanges: Watch[E]) -> None:
        self.plain = plain
        self.exchanges = exchanges

    @property
    def logins(self) -> LoginCounts | None:
        return self.plain.logins

    def connected(self, connection: ConnectionInfo) -> None:
        self.plain.connected(connection)
        self.exchanges.connected(connection)

    def too_long(self, reason: str, connection: ConnectionInfo) -> Parked | None:
        return self.plain.too_long(reason, connection)

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | Parked:
        exchange = self.exchanges.begin(frame, connection)
        if exchange is None:
            return self.plain.start(frame, connection)
        try:
            reply = self.plain.start(frame, connection)
        except (CloseConnection, MalformedMessage):
            self.exchanges.end(exchange, None)
            raise
        if isinstance(reply, list):
            self.exchanges.end(exchange, reply)
            return reply
        return _WatchedReply(reply, exchange, self.exchanges)


class _WatchedReply(Generic[E]):
    """An answer that is not there yet; `odradek.broker.runtime.delayed.Parked`."""

    def __init__(self, reply: Parked, exchange: E, exchanges: Watch[E]) -> None:
        self._reply = reply
        self._exchange = exchange
        self._exchanges = exchanges

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
        try:
            answer = self._reply.chunks()
        except CloseConnection:
            self._exchanges.end(self._exchange, None)
            raise
        self._exchanges.end(self._exchange, answer)
        return answer

    def abandon(self) -> None:
        self._reply.abandon()
