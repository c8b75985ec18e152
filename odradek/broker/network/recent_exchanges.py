"""Stores the recent requests to a controlled broker and their responses, as its clients saw them.

To keep the cost low, a connection stores only the time and bytes that are already in memory; nothing is decoded until
the exchanges are read. If a request or response is longer than MAX_KEPT_BYTES or may contain a secret, its content is
not stored, only its size and, for a request, its first HEAD_BYTES.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from odradek.broker.network.controlled_connection import ExchangeObserver
from odradek.protocol.file_slice import Chunk, in_memory
from odradek.protocol.recording_masks import SECRET_KEYS

if TYPE_CHECKING:
    from odradek.broker.network.controlled_connection import ControlledConnection
    from odradek.broker.runtime.controlled_time import Pace

MAX_EXCHANGES: Final = 1_000
SPARE_EXCHANGES: Final = 100  # the oldest exchanges are dropped when MAX_EXCHANGES is exceeded by more than this
MAX_BYTES: Final = 4 * 1024 * 1024
MAX_KEPT_BYTES: Final = 16 * 1024  # maximum size of a stored request or response
HEAD_BYTES: Final = 8  # size of the start of a frame: API key, version, correlation id


# A request: the id of its connection, the clock's pace, the loop's time, the frame or its beginning, the size of the
# frame, and whether the response may be stored.
Received: TypeAlias = "tuple[int, Pace, float, bytes, int, bool]"
# A response: the pace, the loop's time, the response with its length field or None if it is not stored, its size, and
# whether either side closed the connection instead of answering.
Answered: TypeAlias = "tuple[Pace, float, Chunk | None, int, bool]"


class RecentExchange:
    """A request and its response. They are stored as two tuples, because setting the same number of attributes would
    take three times as long. Times are from the loop's clock; the pace converts them to the cluster's time. `answered`
    is None while the client is waiting."""

    __slots__ = ("answered", "received")

    received: Received
    answered: Answered | None

    @property
    def request(self) -> bytes:
        return self.received[3]

    @property
    def stored_bytes(self) -> int:
        answer = None if self.answered is None else self.answered[2]
        return len(self.received[3]) + (0 if answer is None else len(answer))


class PacedClock(Protocol):
    """A clock with a pace. Implemented by `odradek.broker.runtime.controlled_time.ControlledTime`."""

    @property
    def pace(self) -> Pace: ...


class RecentExchanges:
    """The most recent exchanges of one cluster, across its restarts: at most MAX_EXCHANGES, and at most MAX_BYTES in
    total."""

    __slots__ = ("clients", "dropped", "exchanges", "now_s", "stored_bytes", "time")

    def __init__(self, time: PacedClock, now_s: Callable[[], float]) -> None:
        """Creates a store without exchanges. `now_s` returns the loop's time."""
        self.time = time
        self.now_s = now_s
        self.exchanges: deque[RecentExchange] = deque()
        self.stored_bytes = 0
        self.dropped = 0  # number of the last dropped exchange
        self.clients: dict[int, ObservedClient] = {}  # clients by the `id` of their connection's ConnectionInfo

    def observe(self, connection: ControlledConnection) -> ObservedClient:
        return ObservedClient(self, connection)

    def last(self) -> Iterator[tuple[int, RecentExchange]]:
        """Yields the exchanges with their numbers, oldest first."""
        self.trim()
        return enumerate(list(self.exchanges), self.dropped + 1)

    def trim(self) -> None:
        while len(self.exchanges) > MAX_EXCHANGES or self.stored_bytes > MAX_BYTES:
            oldest = self.exchanges.popleft()
            self.dropped += 1
            self.stored_bytes -= oldest.stored_bytes
            if oldest.answered is None:  # its response may still arrive, but must not be stored
                oldest.received = (*oldest.received[:5], False)


class ObservedClient(ExchangeObserver):
    """Stores the exchanges of one connection. `first_request` is the beginning of its first request, or None before the
    first request."""

    __slots__ = ("_connection", "_connection_id", "_info", "_recent", "first_request", "unanswered")

    def __init__(self, recent: RecentExchanges, connection: ControlledConnection) -> None:
        super().__init__(recent)
        self._recent = recent
        self._connection, self._info = connection, connection.info
        self._connection_id = connection.info.connection_id
        self.first_request: bytes | None = None
        # Unanswered exchanges, oldest first. None marks an exchange that is not stored.
        self.unanswered: deque[RecentExchange | None] = deque()

    @property
    def in_flight(self) -> int:
        """The number of unanswered requests, including requests whose responses are being sent."""
        return len(self.unanswered) + self._connection.senders

    def request_received(self, frame: memoryview) -> bool:
        if not self._info.is_authenticated:  # the request belongs to a login, and may contain secrets
            self.unanswered.append(None)
            return False
        recent = self._recent
        size = len(frame)
        is_secret = size < HEAD_BYTES or frame[1] in SECRET_KEYS
        request = bytes(frame if size <= MAX_KEPT_BYTES and not is_secret else frame[:HEAD_BYTES])
        exchange = RecentExchange()
        exchange.received = (self._connection_id, recent.time.pace, recent.now_s(), request, size, not is_secret)
        exchange.answered = None
        if self.first_request is None:
            self._introduce(frame)
        self.unanswered.append(exchange)
        exchanges = recent.exchanges
        exchanges.append(exchange)
        recent.stored_bytes += len(request)
        if recent.stored_bytes > MAX_BYTES or len(exchanges) > MAX_EXCHANGES + SPARE_EXCHANGES:
            recent.trim()
        return False

    def response_sent(self, chunks: list[Chunk]) -> None:
        if self.unseen:
            self.unseen -= 1
            return
        exchange = self.unanswered.popleft() if self.unanswered else None
        if exchange is None:
            return
        recent = self._recent
        answer, size = (chunks[0], len(chunks[0])) if len(chunks) == 1 else (None, sum(map(len, chunks)))
        if size > MAX_KEPT_BYTES or not exchange.received[5]:
            answer = None
        elif answer is None and size:
            answer = b"".join(in_memory(chunks))
        exchange.answered = (recent.time.pace, recent.now_s(), answer, size, False)
        if answer is not None:
            recent.stored_bytes += size
            if recent.stored_bytes > MAX_BYTES:
                recent.trim()

    def closed_without_response(self, is_newest: bool) -> None:
        exchange = self.unanswered[-1 if is_newest else 0] if self.unanswered else None
        if exchange is not None:
            exchange.answered = (self._recent.time.pace, self._recent.now_s(), None, 0, True)

    def _introduce(self, frame: memoryview) -> None:
        """Registers the client with the beginning of its first request."""
        clients, key = self._recent.clients, id(self._info)
        self.first_request = bytes(frame[:MAX_KEPT_BYTES])
        clients[key] = self
        self._info.when_closed(self._closed)

    def _closed(self) -> None:
        recent = self._recent
        recent.clients.pop(id(self._info), None)
        for exchange in self.unanswered:
            if exchange is not None and exchange.answered is None:
                exchange.answered = (recent.time.pace, recent.now_s(), None, 0, True)
