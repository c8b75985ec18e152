"""Traces for rules of `odradek.testing.judge`: connections that ask and are answered, told in a few lines.

    trace = Trace()
    broker = trace.connect()
    broker.ask(InitProducerIdRequest(), 4, InitProducerIdResponse(producer_id=7))
    assert trace.judged() == ...

Times move on by TURN_MS with every request, which is more than the grace time, unless one says otherwise.
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
Asked: TypeAlias = tuple[Message, int, Message | None]  # a request, its version, and its answer; None: it gets none


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
        """Returns this trace with each request sent before the answer to the one before it on its connection.

        The order of requests and that of answers stays; a request follows the answer to the last request but one.
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
        """Of all clients together, by rule."""
        found: dict[str, Tally] = {}
        for client in judge(lambda: self.entries).clients():
            for rule, tally in client.tallies.items():
                found.setdefault(rule, Tally()).add(tally)
        return found

    def verdict(self, rule: str) -> str:
        """`kept`, `broken` or `not exercised`."""
        tally = self.tallies().get(rule)
        if tally is None:
            return "not exercised"
        return "broken" if tally.broken else "kept" if tally.kept else "not exercised"


@dataclass(slots=True)
class Peer:
    """One connection of a client."""

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
        """A request, and its answer 1 ms later. answer: None where a fault drops it."""
        exchange = self.send(request, version, after_ms=after_ms, behind=behind, client_id=client_id)
        self.trace.wait(1)
        self.reply(exchange, request, version, answer)

    def ask_interleaved(self, *asked: Asked) -> None:
        """Sends all these requests behind one another; then they are answered in the same order."""
        sent = [
            (self.send(request, version, after_ms=0 if place else TURN_MS, behind=place > 0), request, version, answer)
            for place, (request, version, answer) in enumerate(asked)
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
        """A request that is not answered yet; returns its number."""
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
        """ApiVersions v4. ranges: by the names of `ApiKey`; all of v0 to v99 where there are none."""
        from odradek.protocol.api_keys import ApiKey

        keys = [
            ApiVersion(api_key=key.value, min_version=low, max_version=high)
            for key in ApiKey
            for low, high in [ranges.get(key.name, (0, 99))]
        ]
        level = FinalizedFeatureKey(
            name="transaction.version", max_version_level=transaction_version, min_version_level=transaction_version
        )
        told = ApiVersionsResponse(
            api_keys=keys, finalized_features_epoch=1, finalized_features=[level] if transaction_version else []
        )
        self.ask(ApiVersionsRequest(client_software_name="tester", client_software_version="1.0"), 4, told)

    def close(self) -> None:
        self.trace.add(Kind.CLOSED, self.number)


def header_size(request: Message, version: int) -> int:
    """Bytes before the body of a frame that `Peer.send` made."""
    return 10 + len("a-client") + is_flexible(type(request), version)
