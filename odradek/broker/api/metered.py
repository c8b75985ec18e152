"""Handles requests from clients with quotas. The broker measures their usage and mutes a client's connection if the
client exceeds a quota.

The response is sent immediately and contains the throttle time. After that, the broker does not read from the
connection until the throttle time has passed. Source: docs/spec/security.md#s4-3.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Protocol, TypeVar

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.api.dispatch import Dispatcher, MakePendingRequest, PendingRequest, Route
from odradek.broker.runtime.replies import NO_RESPONSE, NoResponse
from odradek.protocol.api_facts import facts_of
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.file_slice import Chunk
from odradek.protocol.frames import REQUEST_START
from odradek.protocol.struct import Buffer, Message

B = TypeVar("B")

PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
REQUEST, MUTATION = "request_percentage", "controller_mutation_rate"


class MeteredClient(Protocol):
    """The meter of one client; implemented by `odradek.broker.security.quotas.metering.QuotaMeter`. Throttle times are
    in ms."""

    @property
    def max_fetched_bytes(self) -> int | None: ...
    def record_produce(self, size_bytes: int, now_ms: float) -> int: ...
    def record_fetch(self, size_bytes: int, now_ms: float) -> int: ...
    def record_handling(self, time_s: float, now_ms: float) -> int: ...
    def record_mutation(self, partitions: int, now_ms: float, *, is_strict: bool) -> int: ...
    def note_throttle(self, key: str, throttle_ms: int, now_ms: float) -> None: ...


class ClientMetering(Protocol):
    def meter_for(self, user: str, client_id: str) -> MeteredClient | None:
        """Returns the meter of a client, or None if no quota applies to the client."""


class Throttling:
    """Selects the requests whose usage is measured. A dispatcher has a `Throttling` while any client quota is
    configured."""

    def __init__(self, metering: ClientMetering) -> None:
        self._metering = metering

    def metered(self, frame: Buffer, client_id_size: int, connection: ConnectionInfo) -> MakePendingRequest | None:
        """Returns the factory of metered requests if a quota applies to the client, otherwise None.

        Requests sent before a login, such as ApiVersions, count as part of the authentication and are exempt from
        quotas.
        """
        if not connection.is_authenticated:
            return None
        client_id = ""  # as in Kafka, a missing client id is treated as empty
        if client_id_size > 0:
            at = REQUEST_START.size
            client_id = str(frame[at : at + client_id_size], "utf-8", "replace")
        meter = self._metering.meter_for(connection.principal.partition(":")[2], client_id)
        return None if meter is None else partial(MeteredRequest, meter)


class MeteredRequest(PendingRequest[B]):
    """A request whose usage is measured. Handlers access it as `context.meter`."""

    __slots__ = ("_client", "_fetch_throttle_ms", "_mutation_throttle_ms", "_running_since_s", "_spent_s")

    def __init__(
        self,
        client: MeteredClient,
        dispatcher: Dispatcher[B],
        route: Route[B],
        correlation_id: int,
        client_id: str | None,
        now_ms: int,
        connection: ConnectionInfo,
        size_bytes: int,
    ) -> None:
        super().__init__(dispatcher, route, correlation_id, client_id, now_ms, connection, size_bytes)
        self._client = client
        self._fetch_throttle_ms: int | None = None  # None until it has been determined
        self._mutation_throttle_ms = 0
        self._running_since_s: float | None = None  # None while the request is parked
        self._spent_s = 0.0

    @property
    def meter(self) -> MeteredRequest[B]:
        return self

    def handle(self, frame: Buffer, position: int) -> list[Chunk] | PendingRequest[B]:
        self._running_since_s = perf_counter()
        reply = super().handle(frame, position)
        self._spent_s = self._time_s()
        self._running_since_s = None
        return reply

    def chunks(self) -> list[Chunk]:
        self._running_since_s = perf_counter()
        return super().chunks()

    # Handlers call the following methods.

    @property
    def max_fetched_bytes(self) -> int | None:
        """The maximum size of one fetch in bytes, or None if the size is unlimited."""
        return self._client.max_fetched_bytes

    def throttles_fetch(self, answer: Message) -> bool:
        """Returns whether this Fetch response exceeds the quota. If so, the response is not counted and must be
        replaced with a response without records."""
        now_ms = self._dispatcher.now_ms()
        size_bytes = self._size_bytes(answer)
        by_request_ms = self._client.record_handling(self._time_s(), now_ms)
        by_bytes_ms = self._client.record_fetch(size_bytes, now_ms)
        self._fetch_throttle_ms = self._larger_throttle(now_ms, (CONSUMER, by_bytes_ms), (REQUEST, by_request_ms))
        if not self._fetch_throttle_ms:
            return False
        self._client.record_fetch(-size_bytes, now_ms)
        return True

    @property
    def is_throttled_for_fetches(self) -> bool:
        """True if the client had already exceeded its fetch quota before this request."""
        return self._client.record_fetch(0, self._dispatcher.now_ms()) > 0

    def take_partitions(self, count: int, *, is_strict: bool) -> None:
        """Charges the client for partitions that it asks to create or delete (controller_mutation_rate).

        If the client has used up its quota and `is_strict` is set, raises THROTTLING_QUOTA_EXCEEDED. `is_strict` is set
        for request versions that support this code. Clients of older versions are throttled instead. Source:
        docs/spec/security.md#s4-3, row 147
        """
        throttle_ms = self._client.record_mutation(count, self._dispatcher.now_ms(), is_strict=is_strict)
        # A Metadata request can create topics too, but the client is not throttled for them.
        if facts_of(self.api_key).mutation_refused_from is not None:
            self._mutation_throttle_ms = max(self._mutation_throttle_ms, throttle_ms)
        if throttle_ms and is_strict:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    # Response throttling.

    def _encode(self, answer: Message | NoResponse) -> list[Chunk]:
        self._throttle(answer)
        return super()._encode(answer)

    def _throttle(self, answer: Message | NoResponse) -> None:
        throttle_ms = self._throttle_ms(answer)
        if throttle_ms:
            if hasattr(answer, "throttle_time_ms"):
                answer.throttle_time_ms = throttle_ms
            self._route.throttled_ms += throttle_ms
            self.connection.stop_reading(throttle_ms)

    def _throttle_ms(self, answer: Message | NoResponse) -> int:
        now_ms, client, api_key = self._dispatcher.now_ms(), self._client, self.api_key
        if self._fetch_throttle_ms is not None:
            return self._fetch_throttle_ms
        by_request_ms = 0
        facts = facts_of(api_key)
        if not (facts.is_of_brokers or facts.is_login) and answer is not NO_RESPONSE:
            by_request_ms = client.record_handling(self._time_s(), now_ms)
        if api_key is ApiKey.PRODUCE:
            return self._larger_throttle(
                now_ms, (PRODUCER, client.record_produce(self.size_bytes, now_ms)), (REQUEST, by_request_ms)
            )
        if api_key is ApiKey.SHARE_FETCH and isinstance(answer, Message):
            size_bytes = self._size_bytes(answer)
            return self._larger_throttle(
                now_ms, (CONSUMER, client.record_fetch(size_bytes, now_ms)), (REQUEST, by_request_ms)
            )
        return self._larger_throttle(now_ms, (MUTATION, self._mutation_throttle_ms), (REQUEST, by_request_ms))

    def _larger_throttle(self, now_ms: int, first: tuple[str, int], second: tuple[str, int]) -> int:
        """Returns the larger of two throttle times and records it for the quota that caused it."""
        key, throttle_ms = first if first[1] > second[1] else second
        self._client.note_throttle(key, throttle_ms, now_ms)
        return throttle_ms

    def _size_bytes(self, answer: Message) -> int:
        return sum(len(chunk) for chunk in self._route.encode(self.correlation_id, answer))

    def _time_s(self) -> float:
        """Returns the time that the event loop has spent on this request so far."""
        if self._running_since_s is None:
            return self._spent_s
        return self._spent_s + perf_counter() - self._running_since_s
