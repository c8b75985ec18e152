"""Converts a recording's entries into exchanges, and passes these to the rules' functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from struct import Struct as Packing
from typing import Final

from odradek.protocol.api_facts import API_OF_KEY
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.exchange import read_answer, request_form
from odradek.protocol.frames import REQUEST_START
from odradek.protocol.recording import Kind, RecordingEntry
from odradek.protocol.struct import Message
from odradek.testing.judge.brokers import note_sender
from odradek.testing.judge.exchanges import AnswerStatus, Connection, Exchange, forget_records
from odradek.testing.judge.rule import RuleFunction
from odradek.testing.judge.rules import FAMILIES
from odradek.testing.judge.scene import Client, Scene
from odradek.testing.judge.topic_names import note_topics
from odradek.testing.judge.topics import Topics

CORRELATION_BYTES: Final = 4
# API key, version and correlation id. A recording contains these fields even if it masks the request.
FRAME_START: Final = Packing(">hhi")
MASKED_BYTES: Final = FRAME_START.size
BOOTSTRAP_APIS: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.METADATA,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.FIND_COORDINATOR,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    }
)


def pipelined(entries: Iterable[RecordingEntry]) -> set[int]:
    """Returns the connections on which the client sent at least one request before the response to the previous
    request."""
    return {entry.connection for entry in entries if entry.is_behind}


class JudgedRecording:
    """One pass over a recording.

    exchanges             number of exchanges so far
    bypassing_addresses   addresses that clients received and that do not belong to the recording proxy
    is_of_bootstrap_only  whether the clients have sent only requests of the kind that they send to any broker before
                          connecting to leaders and coordinators
    """

    def __init__(self, pipelined_connections: set[int]) -> None:
        self.scene = Scene()
        self.exchanges = 0
        self.bypassing_addresses: list[str] = []
        self.is_of_bootstrap_only = True
        self._pipelined = pipelined_connections
        self._connections: dict[int, Connection] = {}
        self._open: dict[int, Exchange] = {}  # exchanges whose response has not been written, keyed by number
        self._all_sent = [function for family in FAMILIES for function in family.on_every_request]
        self._all_answered = [function for family in FAMILIES for function in family.on_every_response]
        self._sent: dict[ApiKey, list[RuleFunction]] = {}
        self._answered: dict[ApiKey, list[RuleFunction]] = {}
        for family in FAMILIES:
            for api, functions in family.on_request.items():
                self._sent.setdefault(api, []).extend(functions)
            for api, functions in family.on_response.items():
                self._answered.setdefault(api, []).extend(functions)

    def add_entry(self, entry: RecordingEntry) -> None:
        self.scene.move_to(entry.time_us)
        match entry.kind:
            case Kind.OPENED:
                details = json.loads(entry.body)
                self._connections[entry.connection] = Connection(
                    entry.connection,
                    details.get("node", 0),
                    details.get("host", ""),
                    details.get("is_sasl", False),
                    entry.connection in self._pipelined,
                    entry.time_us,
                )
            case Kind.RECEIVED:
                self._received(entry)
            case Kind.ANSWERED | Kind.UNANSWERED | Kind.HUNG_UP:
                self._answered_by(entry)
            case Kind.WRITTEN:
                exchange = self._open.pop(entry.exchange, None)
                if exchange is not None:
                    exchange.written_us = entry.time_us
            case Kind.EVENT:
                elsewhere = json.loads(entry.body).get("elsewhere")
                if elsewhere is not None:
                    self.bypassing_addresses.append(elsewhere)
            case Kind.CLOSED:
                connection = self._connections.pop(entry.connection, None)
                if connection is not None:
                    connection.closed_us = entry.time_us
                    for number in connection.waiting:
                        self._open.pop(number, None)

    def clients(self) -> list[Client]:
        return self.scene.clients()

    def _received(self, entry: RecordingEntry) -> None:
        connection = self._connections.get(entry.connection)
        if connection is None:  # the recording started after the connection was opened
            is_pipelined = entry.connection in self._pipelined
            connection = self._connections[entry.connection] = Connection(
                entry.connection, is_pipelined=is_pipelined, requests=1
            )
        exchange = _exchange(entry, connection, self.scene.topics)
        self.exchanges += 1
        note_sender(connection, exchange)
        if exchange.api not in BOOTSTRAP_APIS and not connection.is_of_broker:
            self.is_of_bootstrap_only = False
        connection.first_us = connection.first_us or entry.time_us
        connection.last_us = entry.time_us
        if exchange.client_id is not None:
            connection.client_id = exchange.client_id
        self._apply_rules(self._all_sent, exchange)
        if exchange.api is not None and exchange.request is not None:
            self._apply_rules(self._sent.get(exchange.api, ()), exchange)
        if exchange.batches:  # `batches` has parsed the records, which are no longer needed
            forget_records(exchange.request)
        connection.requests += 1
        connection.waiting[exchange.number] = self._open[exchange.number] = exchange
        connection.previous = exchange

    def _answered_by(self, entry: RecordingEntry) -> None:
        exchange = self._open.get(entry.exchange)
        if exchange is None:
            return
        exchange.answered_us = entry.time_us
        exchange.connection.waiting.pop(exchange.number, None)
        if entry.kind is Kind.ANSWERED:
            exchange.status = AnswerStatus.ANSWERED
            exchange.answer = _answer(entry, exchange)
        else:
            exchange.status = AnswerStatus.UNANSWERED if entry.kind is Kind.UNANSWERED else AnswerStatus.HUNG_UP
            del self._open[exchange.number]
        note_topics(exchange, self.scene.topics)
        self._apply_rules(self._all_answered, exchange)
        if exchange.api is not None and exchange.request is not None:
            self._apply_rules(self._answered.get(exchange.api, ()), exchange)
        forget_records(exchange.answer)

    def _apply_rules(self, functions: Iterable[RuleFunction], exchange: Exchange) -> None:
        scene = self.scene
        for function in functions:
            function(exchange, scene)


def _exchange(entry: RecordingEntry, connection: Connection, topics: Topics) -> Exchange:
    frame = entry.body
    earliest_us = entry.time_us - entry.waited_us
    exchange = Exchange(
        entry.exchange,
        connection,
        None,
        0,
        0,
        None,
        topics,
        None,
        entry.time_us,
        earliest_us,
        entry.is_behind,
        entry.is_unsure,
        entry.lacks_records,
    )
    if len(frame) < MASKED_BYTES:
        return exchange
    key, exchange.version, exchange.correlation_id = FRAME_START.unpack_from(frame)
    exchange.api = API_OF_KEY.get(key)
    if exchange.api is None or len(frame) < REQUEST_START.size:
        return exchange
    try:
        form = request_form(key, exchange.version)
    except MalformedMessage:  # the version is unknown
        return exchange
    view = memoryview(frame)
    exchange.is_flexible = form.has_tags
    try:
        header, position = form.header(view)
        exchange.client_id = header.client_id
        exchange.request = form.message(view, position)
    except (MalformedMessage, ValueError, IndexError) as error:
        exchange.unreadable = str(error)
    return exchange


def _answer(entry: RecordingEntry, exchange: Exchange) -> Message | None:
    """Parses a response. Returns None if the response is masked or cannot be read."""
    if exchange.api is None or len(entry.body) <= CORRELATION_BYTES:
        return None
    version = exchange.version
    if exchange.request is None and exchange.api is ApiKey.API_VERSIONS:
        version = 0  # the response has version 0 if the broker does not support the requested version
    try:
        return read_answer(exchange.api.value, version, memoryview(entry.body), has_length=False).message
    except (MalformedMessage, ValueError, IndexError):
        return None


def judge(entries: Callable[[], Iterable[RecordingEntry]]) -> JudgedRecording:
    """Judges a recording. `entries` is called twice and must return all the entries from the beginning each time."""
    judged = JudgedRecording(pipelined(entries()))
    for entry in entries():
        judged.add_entry(entry)
    return judged
