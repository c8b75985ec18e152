"""Decodes a cluster's most recent requests and responses as the clients saw them, after all rules had acted.

The bytes are stored by `odradek/broker/network/recent_exchanges.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.broker.control.problems import Problem
from odradek.broker.network.recent_exchanges import HEAD_BYTES, RecentExchanges
from odradek.protocol.api_facts import API_OF_KEY
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.exchange import api_and_version, read_answer, read_request
from odradek.protocol.file_slice import Chunk, in_memory
from odradek.protocol.frames import read_header_fields
from odradek.protocol.kafka_json import kafka_json
from odradek.protocol.messages import request_class

if TYPE_CHECKING:
    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.network.recent_exchanges import ObservedClient, PacedClock, RecentExchange


class Exchanges:
    """The most recent exchanges of a cluster, decoded only when they are read."""

    def __init__(self, time: PacedClock, now_s: Callable[[], float]) -> None:
        self.recent = RecentExchanges(time, now_s)
        self.are_kept = True
        self.readers = 0  # number of clients receiving the exchanges as server-sent events

    def require(self) -> None:
        """Raises Problem if the cluster does not keep its exchanges."""
        if not self.are_kept:
            raise Problem(409, "this cluster does not store its requests: set odradek.control.requests.enable=true")

    def completed_since(self, number: int, api: str | None, client_id: str | None) -> Iterator[dict[str, object]]:
        """Yields the completed exchanges with a number above `number`, oldest first. Raises Problem.

        api        selects the exchanges of this API; None for all APIs
        client_id  selects the exchanges of this client; None for all clients
        """
        self.require()
        for each_number, each in self.recent.last():
            event = None if each_number <= number else self.decoded(each_number, each, api, client_id)
            if event is not None:
                yield event

    @property
    def dropped(self) -> int:
        """The number of the newest exchange that was discarded."""
        self.recent.trim()
        return self.recent.dropped

    def completed(self) -> Iterator[tuple[int, RecentExchange]]:
        """Yields, oldest first, each exchange that has been answered or whose connection has closed, together with its
        number."""
        return ((number, each) for number, each in self.recent.last() if each.answered is not None)

    def decoded(
        self, number: int, exchange: RecentExchange, api: str | None, client_id: str | None
    ) -> dict[str, object] | None:
        """Decodes an exchange. Returns None if the exchange belongs to another API or client or is not a Kafka
        request."""
        kind = kind_of(exchange.request)
        if kind is None or (api is not None and kind[0].kafka_name != api):
            return None
        event = as_json(number, exchange, *kind)
        return event if client_id is None or event["client_id"] == client_id else None

    def client(self, connection: ConnectionInfo) -> ClientState | None:
        """Returns the client of a connection, or None before the connection's first request."""
        found = self.recent.clients.get(id(connection))
        return None if found is None else client_state(found)

    def clients(self) -> Iterator[ClientState]:
        """Returns the clients of all open connections. Raises Problem if the cluster does not keep its exchanges."""
        self.require()
        return map(client_state, self.recent.clients.values())


@dataclass(frozen=True, slots=True)
class ClientState:
    """The client of one connection.

    client_id  client id in the connection's first request
    in_flight  number of requests whose responses have not been sent yet
    """

    client_id: str | None
    in_flight: int


def client_state(client: ObservedClient) -> ClientState:
    return ClientState(client_id_in(client.first_request or b""), client.in_flight)


def client_id_in(frame: bytes) -> str | None:
    """Returns a request's client id, or None if the frame is not a request or ends before the client id."""
    try:
        return read_header_fields(memoryview(frame), has_tags=False)[1]  # the client id comes before any tagged fields
    except (MalformedMessage, ValueError, IndexError):
        return None


def kind_of(frame: bytes) -> tuple[ApiKey, int] | None:
    """Returns the API and version of a request, or None if the frame is not a Kafka request of a known version."""
    head = api_and_version(frame, HEAD_BYTES)
    if head is None:
        return None
    number, version = head
    api = API_OF_KEY.get(number)
    if api is None or not request_class(number).MIN_VERSION <= version <= request_class(number).MAX_VERSION:
        return None
    return api, version


def as_json(number: int, exchange: RecentExchange, api: ApiKey, version: int) -> dict[str, object]:
    """Decodes an exchange to JSON.

    The field `answered_ms` is None while the client waits for the response. The field `closed` is true if the
    connection was closed without a response.
    """
    client_id, request = _decoded_request(exchange, api, version)
    connection_id, received_pace, received_s, frame, request_bytes, _ = exchange.received
    answered_ms, answer, answer_bytes, is_closed = None, None, 0, False
    if exchange.answered is not None:
        answered_pace, answered_s, answer, answer_bytes, is_closed = exchange.answered
        answered_ms = answered_pace.wall_ms(answered_s)
    return {
        "number": number,
        "api": api.kafka_name,
        "version": version,
        "client_id": client_id,
        "correlation_id": int.from_bytes(frame[4:8], signed=True),
        "connection": connection_id,
        "received_ms": received_pace.wall_ms(received_s),
        "request_bytes": request_bytes,
        "request": request,
        "answered_ms": answered_ms,
        "answer_bytes": answer_bytes,
        "answer": _decoded_answer(answer, api, version),
        "closed": is_closed,
    }


def _decoded_request(
    exchange: RecentExchange, api: ApiKey, version: int
) -> tuple[str | None, Mapping[str, object] | None]:
    _, _, _, request, request_bytes, _ = exchange.received
    if len(request) < request_bytes:
        return None, None
    frame = memoryview(request)
    try:
        decoded = read_request(frame)
    except (MalformedMessage, ValueError, IndexError):
        return None, None
    return decoded.header.client_id, kafka_json(decoded.message, version)


def _decoded_answer(answer: Chunk | None, api: ApiKey, version: int) -> Mapping[str, object] | None:
    if answer is None:
        return None
    try:
        return kafka_json(read_answer(api.value, version, b"".join(in_memory([answer]))).message, version)
    except (MalformedMessage, ValueError, IndexError):
        return None  # for example, the response to an ApiVersions request with an unsupported version
