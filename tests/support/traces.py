"""Builds traces for the rules of `odradek.testing.judge` in a few lines: connections, their requests and responses.

    trace = Trace()
    broker = trace.connect()
    broker.ask(InitProducerIdRequest(), 4, InitProducerIdResponse(producer_id=7))
    assert trace.judged() == ...

By default a request is sent TURN_MS after the previous one, which is longer than the grace time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from odradek.protocol.codec import is_flexible
from odradek.protocol.frames import LENGTH_BYTES, request_bytes, response_chunks
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from odradek.protocol.recording import Kind, RecordingEntry
from odradek.protocol.struct import Message
from odradek.testing.judge.judging import judge
from odradek.testing.judge.scene import Tally

TURN_MS = 100
# a request, its version, and its response, or None if there is no response
Asked: TypeAlias = tuple[Message, int, Message | None]


@dataclass(slots=True)
class Trace:
    entries: list[RecordingEntry] = field(default_factory=list)
    now_us: int = 0
    connections: int = 0
    exchanges: int = 0

    def connect(self, *, sasl: bool = False, host: str = "localhost") -> Peer:
        self.connections += 1
        self.add(Kind.OPENED, self.connections, body=json.dumps({"node": 1, "host": host, "is_sasl": sasl}).encode())
        return Peer(self, self.connections)

    def add(self, kind: Kind, connection: int, exchange: int = 0, body: bytes = b"", *, behind: bool = False) -> None:
        self.entries.append(RecordingEntry(kind, connection, exchange, self.now_us, body, is_behind=behind))

    def wait(self, ms: float) -> None:
        self.now_us += int(ms * 1000)

    def interleaved(self) -> Trace:
        """Returns a copy of this trace in which each request is sent before the response to the previous request on its
        connection arrives.

        The requests keep their order, and so do the responses. A request follows the response to the request before the
        previous one.
        """
        entries = [replace(entry) for entry in self.entries]
        for place, entry in enumerate(entries):
            if entry.kind is not Kind.RECEIVED:
                continue
            behind = place
            while behind > 0 and entries[behind - 1].kind is not Kind.RECEIVED:
                behind -= 1
            before = next((at for at in range(place - 1, -1, -1) if entries[at].connection == entry.connection), None)
            if before is None or entries[before].kind in (Kind.OPENED, Kind.RECEIVED):
                continue
            sent = next(
                at
                for at in range(before, -1, -1)
                if entries[at].kind is Kind.RECEIVED and entries[at].connection == entry.connection
            )
            entry.time_us, entry.is_behind = entries[sent].time_us, True
            entries.insert(max(sent + 1, behind), entries.pop(place))
        return Trace(entries, self.now_us, self.connections, self.exchanges)

    def tallies(self) -> dict[str, Tally]:
        """Returns the tallies of all clients, added up by rule."""
        found: dict[str, Tally] = {}
        for client in judge(lambda: self.entries).clients():
            for rule, tally in client.tallies.items():
                found.setdefault(rule, Tally()).add(tally)
        return found

    def verdict(self, rule: str) -> str:
        """Returns `kept`, `broken` or `not exercised`."""
        tally = self.tallies().get(rule)
        if tally is None:
            return "not exercised"
        return "broken" if tally.broken else "kept" if tally.kept else "not exercised"


@dataclass(slots=True)
class Peer:
    """A client's connection."""

    trace: Trace
    number: int
    sent: int = 0

    def ask(
        self,
        request: Message,
        version: int,
        answer: Message | None = None,
        *,
        after_ms: float = TURN_MS,
        behind: bool = False,
        client_id: str = "a-client",
    ) -> None:
        """Adds a request, and its response 1 ms later. If `answer` is None, a fault drops the response."""
        exchange = self.send(request, version, after_ms=after_ms, behind=behind, client_id=client_id)
        self.trace.wait(1)
        self.reply(exchange, request, version, answer)

    def ask_interleaved(self, *requests: Asked) -> None:
        """Sends all the requests before any response arrives. The responses follow in the same order."""
        sent = [
            (self.send(request, version, after_ms=0 if place else TURN_MS, behind=place > 0), request, version, answer)
            for place, (request, version, answer) in enumerate(requests)
        ]
        for exchange, request, version, answer in sent:
            self.trace.wait(1)
            self.reply(exchange, request, version, answer)

    def send(
        self,
        request: Message,
        version: int,
        *,
        after_ms: float = TURN_MS,
        behind: bool = False,
        correlation_id: int | None = None,
        client_id: str = "a-client",
    ) -> int:
        """Adds a request without a response. Returns its number."""
        number = self.sent if correlation_id is None else correlation_id
        return self.send_bytes(
            request_bytes(request, version, number, client_id)[LENGTH_BYTES:], after_ms=after_ms, behind=behind
        )

    def send_bytes(self, frame: bytes, *, after_ms: float = TURN_MS, behind: bool = False) -> int:
        self.trace.wait(after_ms)
        self.trace.exchanges += 1
        self.sent += 1
        self.trace.add(Kind.RECEIVED, self.number, self.trace.exchanges, frame, behind=behind)
        return self.trace.exchanges

    def reply(self, exchange: int, request: Message, version: int, answer: Message | None) -> None:
        if answer is None:
            self.trace.add(Kind.UNANSWERED, self.number, exchange)
            return
        encoded = version if version <= type(answer).MAX_VERSION else 0
        body = b"".join(response_chunks(request.API_KEY, encoded, self.sent, answer))[LENGTH_BYTES:]
        self.trace.add(Kind.ANSWERED, self.number, exchange, body)
        self.trace.add(Kind.WRITTEN, self.number, exchange)

    def greet(self, *, transaction_version: int = 2, **ranges: tuple[int, int]) -> None:
        """Sends ApiVersions v4. The response advertises v0 to v99 of every API.

        ranges  other version ranges, by the names of `ApiKey`
        """
        from odradek.protocol.api_keys import ApiKey

        keys = [
            ApiVersion(api_key=key.value, min_version=low, max_version=high)
            for key in ApiKey
            for low, high in [ranges.get(key.name, (0, 99))]
        ]
        level = FinalizedFeatureKey(
            name="transaction.version", max_version_level=transaction_version, min_version_level=transaction_version
        )
        response = ApiVersionsResponse(
            api_keys=keys, finalized_features_epoch=1, finalized_features=[level] if transaction_version else []
        )
        self.ask(ApiVersionsRequest(client_software_name="tester", client_software_version="1.0"), 4, response)

    def close(self) -> None:
        self.trace.add(Kind.CLOSED, self.number)


def header_size(request: Message, version: int) -> int:
    """Returns the number of bytes before the body in a frame that `Peer.send` creates."""
    return 10 + len("a-client") + is_flexible(type(request), version)
