"""Replays a recording against a live broker.

A request is sent once all responses that preceded it in the recording have arrived, which preserves the recording's
order. Pauses are also preserved unless they are disabled. If the live broker rejects a request with a temporary error
such as NOT_COORDINATOR, the player retries the request, as any client would.

A request that was rejected with a temporary error in the recording is not sent. It is sent, however, if the recording
contains calls to the control interface and the player repeats them, because a fault rule may have caused the error.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.protocol.api_facts import API_OF_KEY, facts_of
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, MalformedMessage
from odradek.protocol.exchange import read_answer, read_request
from odradek.protocol.frames import LENGTH_BYTES, read_request_header, request_bytes
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.recording import Kind, RecordingEntry
from odradek.protocol.struct import Message
from odradek.testing.replay.comparing import Difference, compare, errors_of
from odradek.testing.replay.concurrency import RequestsInFlight
from odradek.testing.replay.ids import IdMap
from odradek.testing.sync import Refused

Entries = Callable[[], Iterable[RecordingEntry]]
# Called with the HTTP method, the path below the cluster's path, and the body. Raises Refused.
Control = Callable[[str, str, object], object]
PATIENCE_S: Final = 30.0
PAUSE_S: Final = 0.05  # pause before a request is retried
CORRELATION_BYTES: Final = 4
TEMPORARY_ERRORS: Final = frozenset(
    code.value
    for code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
)
# The prefixes of the client ids that Kafka's own brokers use when they connect to one another's advertised listeners.
BROKER_CLIENT_IDS: Final = (
    "broker-",
    "AddPartitionsManager-client-",
    "Persister-client-",
)


@dataclass(frozen=True, slots=True)
class FoundDifference:
    """A difference between a recorded and a live response. `is_open` means that concurrent requests or a temporary
    error may explain the difference."""

    exchange: int
    api: str
    version: int
    difference: Difference
    is_open: bool


@dataclass(slots=True)
class ReplayResult:
    """The result of a replay.

    compared           number of compared exchanges
    repeated_requests  number of times that a request was retried after a temporary error
    left_out           number of exchanges that were not replayed or not compared, keyed by reason
    """

    compared: int = 0
    repeated_requests: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    differences: list[FoundDifference] = field(default_factory=list)


@dataclass(slots=True)
class _PlayedRequest:
    """A request sent to the live broker. `answer` resolves to None if the broker closes the connection."""

    api: ApiKey
    version: int
    connection: int
    frame: bytes
    answer: asyncio.Future[bytes | None]


class RecordingPlayer:
    """Replays one recording against a live broker."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        control: Control | None = None,
        with_pauses: bool = True,
        is_exact: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Creates a player for one recording.

        host, port   the live broker's address
        control      function that calls the broker's control interface; None if calls to it are not repeated
        with_pauses  whether to wait between requests for as long as in the recording
        is_exact     whether to send and compare even requests that were rejected with a temporary error
        patience_s   maximum time to wait for a response
        """
        self._host = host
        self._port = port
        self._control = control
        self._with_pauses = with_pauses
        self._is_exact = is_exact
        self._patience_s = patience_s
        self._ids = IdMap()
        self._result = ReplayResult()
        self._connections: dict[int, _LiveConnection] = {}
        self._sent: dict[int, _PlayedRequest] = {}
        self._in_flight = RequestsInFlight()
        self._refused: set[int] = set()

    async def play(self, entries: Entries) -> ReplayResult:
        """Replays a recording and returns the result. `entries` is called twice and must return all the entries from
        the beginning each time. Raises MalformedMessage or OSError."""
        if not self._is_exact:
            self._refused = temporarily_refused(entries(), calls_again=self._control is not None)
        began_s = time.monotonic()
        try:
            for entry in entries():
                if self._with_pauses:
                    await asyncio.sleep(began_s + entry.time_us / 1e6 - time.monotonic())
                await self._play_entry(entry)
        finally:
            for connection in self._connections.values():
                connection.close()
        return self._result

    async def _play_entry(self, entry: RecordingEntry) -> None:
        match entry.kind:
            case Kind.RECEIVED:
                await self._send(entry)
            case Kind.ANSWERED:
                await self._compare(entry)
            case Kind.HUNG_UP:
                await self._hung_up(entry)
            case Kind.UNANSWERED:
                if self._sent.pop(entry.exchange, None) is not None:
                    self._in_flight.end(entry.exchange)
                    self._result.left_out["were not answered"] += 1
            case Kind.CLOSED:
                connection = self._connections.pop(entry.connection, None)
                if connection is not None:
                    connection.close()
            case Kind.EVENT:
                call = _control_call(entry)
                if call is not None:
                    await self._call(**call)
            case _:
                pass

    async def _call(self, method: str, path: str, body: object, holds: Mapping[str, int]) -> None:
        """Repeats a recorded call to the control interface. `holds` contains the number of clients that were waiting at
        each hold when the call was recorded."""
        if self._control is None:
            self._result.left_out["call the control interface"] += 1
            return
        try:
            for hold, waiting in holds.items():
                await asyncio.to_thread(
                    self._control,
                    "POST",
                    "/wait",
                    {"hold": hold, "waiting": waiting, "timeout_ms": int(self._patience_s * 1000)},
                )
            await asyncio.to_thread(self._control, method, path, body)
        except Refused as error:
            self._result.left_out[
                f"call the control interface and were refused, such as {method} {path} ({error.detail})"
            ] += 1

    async def _send(self, entry: RecordingEntry) -> None:
        api = API_OF_KEY.get(int.from_bytes(entry.body[:2], signed=True)) if len(entry.body) >= 2 else None
        if facts_of(api).is_login:
            self._result.left_out["log in"] += 1
        elif entry.is_masked:
            self._result.left_out["contain secrets"] += 1
        elif entry.lacks_records:
            self._result.left_out["lack their records"] += 1
        elif api is None:
            self._result.left_out["are of an unknown API"] += 1
        elif entry.exchange in self._refused and not facts_of(api).creates_topics:
            self._result.left_out["were refused with a temporary error"] += 1
        elif _client_id(entry.body).startswith(BROKER_CLIENT_IDS):
            self._result.left_out["the broker itself sent"] += 1
        else:
            frame, version, has_answer = self._with_live_ids(entry.body)
            connection = await self._connection(entry.connection)
            answer = connection.send(frame, has_answer=has_answer)
            self._sent[entry.exchange] = _PlayedRequest(api, version, entry.connection, frame, answer)
            self._in_flight.begin(entry.exchange, api)

    def _with_live_ids(self, frame: bytes) -> tuple[bytes, int, bool]:
        """Returns the frame with live ids, the request's version, and whether the broker will respond to it."""
        version = int.from_bytes(frame[2:4], signed=True)
        try:
            decoded = read_request(frame)
        except (MalformedMessage, ValueError, IndexError):
            return frame, version, True  # the broker's response will show the problem with the request
        request, header = decoded.message, decoded.header
        has_answer = not (isinstance(request, ProduceRequest) and request.acks == 0)
        if self._ids.translate(request, version):
            frame = request_bytes(request, version, header.correlation_id, header.client_id)[LENGTH_BYTES:]
        return frame, version, has_answer

    async def _connection(self, number: int) -> _LiveConnection:
        connection = self._connections.get(number)
        if connection is None:
            connection = self._connections[number] = _LiveConnection()
            await asyncio.get_running_loop().create_connection(lambda: connection, self._host, self._port)
        return connection

    async def _compare(self, entry: RecordingEntry) -> None:
        played = self._sent.pop(entry.exchange, None)
        if played is None:
            return
        recorded = None if entry.lacks_records else _answer(entry.body, played)
        live = await self._answer_of(played)
        if recorded is None:
            self._in_flight.end(entry.exchange)
            why = "have answers that lack their records" if entry.lacks_records else "have answers that cannot be read"
            self._result.left_out[why] += 1
            return
        ends_s = time.monotonic() + self._patience_s
        is_refused = self._is_exact or _is_refusal(recorded, played.version)
        while live is not None and not is_refused and _is_refusal(live, played.version) and time.monotonic() < ends_s:
            again = self._connections.get(played.connection)
            if again is None or again.is_waiting:  # another request on this connection is waiting for its response
                break
            await asyncio.sleep(PAUSE_S)
            self._result.repeated_requests += 1
            played.answer = again.send(played.frame)
            live = await self._answer_of(played)
        is_raced = self._in_flight.end(entry.exchange)
        self._result.compared += 1
        if live is None:
            self._add_differences(
                entry, played, [Difference("", "an answer", "no answer, or a closed connection")], is_open=False
            )
            return
        found = compare(recorded, live, played.version, self._ids)
        errors = (found.recorded_errors ^ found.live_errors) - {0}
        is_temporary = not self._is_exact and bool(errors) and errors <= TEMPORARY_ERRORS
        self._add_differences(entry, played, found.differences, is_open=is_raced or is_temporary)

    async def _hung_up(self, entry: RecordingEntry) -> None:
        played = self._sent.pop(entry.exchange, None)
        if played is None:
            return
        self._in_flight.end(entry.exchange)
        self._result.compared += 1
        if await self._answer_of(played) is not None:
            self._add_differences(entry, played, [Difference("", "a closed connection", "an answer")], is_open=False)

    def _add_differences(
        self, entry: RecordingEntry, played: _PlayedRequest, differences: Iterable[Difference], *, is_open: bool
    ) -> None:
        self._result.differences += [
            FoundDifference(entry.exchange, played.api.kafka_name, played.version, each, is_open)
            for each in differences
        ]

    async def _answer_of(self, played: _PlayedRequest) -> Message | None:
        """Returns the response, or None if the broker closed the connection, did not respond in time, or sent a
        response that cannot be read."""
        try:
            frame = await asyncio.wait_for(asyncio.shield(played.answer), self._patience_s)
        except TimeoutError:
            return None
        return None if frame is None else _answer(frame, played)


def _client_id(frame: bytes) -> str:
    try:
        return read_request_header(frame)[0].client_id or ""
    except MalformedMessage:
        return ""


def _control_call(entry: RecordingEntry) -> dict[str, Any] | None:
    """Returns an entry's control interface call, or None if it does not contain one."""
    return json.loads(entry.body).get("called") if entry.kind is Kind.EVENT else None


def temporarily_refused(entries: Iterable[RecordingEntry], *, calls_again: bool) -> set[int]:
    """Returns the numbers of the exchanges in which every part of the request was rejected with a temporary error.

    Returns an empty set if the recording contains calls to the control interface and the player repeats them
    (`calls_again`). The requests must then be sent, because fault rules count the requests that they reject.
    """
    requests: dict[int, _PlayedRequest] = {}
    found = set()
    no_answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
    for entry in entries:
        if entry.kind is Kind.RECEIVED and not entry.is_masked and len(entry.body) >= LENGTH_BYTES:
            api = API_OF_KEY.get(int.from_bytes(entry.body[:2], signed=True))
            if api is not None:
                version = int.from_bytes(entry.body[2:4], signed=True)
                requests[entry.exchange] = _PlayedRequest(api, version, entry.connection, b"", no_answer)
        elif calls_again and _control_call(entry) is not None:
            return set()
        elif entry.kind is Kind.ANSWERED and (played := requests.pop(entry.exchange, None)) is not None:
            answer = _answer(entry.body, played)
            if answer is not None and _is_refusal(answer, played.version):
                found.add(entry.exchange)
    return found


def _is_refusal(answer: Message, version: int) -> bool:
    errors = errors_of(answer, version)
    return bool(errors) and errors <= TEMPORARY_ERRORS


def _answer(frame: bytes, played: _PlayedRequest) -> Message | None:
    """Parses a frame without its length. Returns None if the frame cannot be parsed, for example because it is
    masked."""
    versions = [played.version]
    if played.api is ApiKey.API_VERSIONS:
        versions.append(0)  # the response has version 0 if the broker does not support the requested version
    for version in versions:
        try:
            decoded = read_answer(played.api.value, version, memoryview(frame), has_length=False)
        except (MalformedMessage, ValueError, IndexError):
            continue
        if decoded.end == len(frame):
            played.version = version
            return decoded.message
    return None


class _LiveConnection(asyncio.Protocol):
    """A connection to the live broker. Responses arrive in the order of their requests."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: list[asyncio.Future[bytes | None]] = []
        self._data = bytearray()
        self._is_closed = False

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= LENGTH_BYTES:
            end = LENGTH_BYTES + int.from_bytes(self._data[:LENGTH_BYTES])
            if len(self._data) < end:
                return
            frame = bytes(self._data[LENGTH_BYTES:end])
            del self._data[:end]
            if self._waiting:
                self._waiting.pop(0).set_result(frame)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closed = True
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.set_result(None)

    def send(self, frame: bytes, *, has_answer: bool = True) -> asyncio.Future[bytes | None]:
        answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        if self._is_closed or self._transport is None or not has_answer:
            answer.set_result(None)
        else:
            self._waiting.append(answer)
        if not self._is_closed and self._transport is not None:
            self._transport.write(len(frame).to_bytes(LENGTH_BYTES) + frame)
        return answer

    def close(self) -> None:
        if self._transport is not None:
            with suppress(RuntimeError):
                self._transport.close()
