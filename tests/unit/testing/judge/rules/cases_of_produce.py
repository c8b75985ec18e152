"""Cases for the VER, CON, PRD and IDM rules. For each rule, one trace keeps the rule and one breaks it."""

from __future__ import annotations

from odradek.protocol.compression import Compression
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from odradek.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from tests.support.judged_cases import Case, Story, batch, init, produce
from tests.support.traces import Peer, Trace

P = (7, 0)
METADATA, ANSWER = MetadataRequest(topics=[]), MetadataResponse()


def greeted(trace: Trace, metadata: tuple[int, int]) -> Peer:
    peer = trace.connect()
    peer.greet(METADATA=metadata)
    return peer


def first_request_is_metadata(trace: Trace) -> None:
    trace.connect().ask(METADATA, 12, ANSWER)


def metadata_inside(trace: Trace) -> None:
    greeted(trace, (5, 12)).ask(METADATA, 12, ANSWER)


def metadata_outside(trace: Trace) -> None:
    greeted(trace, (5, 12)).ask(METADATA, 13, ANSWER)


def asked_again(version: int) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        keys = [ApiVersion(api_key=18, min_version=0, max_version=3)]
        peer.ask(ApiVersionsRequest(), 4, ApiVersionsResponse(error_code=35, api_keys=keys))
        again = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        peer.ask(again, version, ApiVersionsResponse())

    return story


def name_event(name: str) -> Story:
    def story(trace: Trace) -> None:
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
        trace.connect().ask(request, 3, ApiVersionsResponse())

    return story


def cut_frame(version: int) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        peer.send(METADATA, version)
        entry = trace.entries[-1]
        entry.body = entry.body[:-1]

    return story


def null_where_none_is_allowed(trace: Trace) -> None:
    peer = trace.connect()
    peer.send(HeartbeatRequest(group_id="", member_id=""), 1)
    entry = trace.entries[-1]
    entry.body = entry.body[:18] + b"\xff\xff" + entry.body[20:]


def in_flight(one: int, two: int) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        peer.send(METADATA, 12, correlation_id=one)
        peer.send(METADATA, 12, correlation_id=two)

    return story


def transactional_at(transaction_version: int, produce_version: int) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        peer.greet(transaction_version=transaction_version)
        produce(peer, batch(0, producer=P, transactional=True), version=produce_version, transactional_id="t")

    return story


def throttled(wait_ms: float, version: int = 12) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        peer.ask(METADATA, version, MetadataResponse(throttle_time_ms=500))
        peer.ask(METADATA, version, ANSWER, after_ms=wait_ms)

    return story


def logs_in(peer: Peer, lifetime_ms: int = 0, version: int = 2) -> None:
    peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse())
    peer.ask(SaslAuthenticateRequest(), version, SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms))


def login_first(trace: Trace) -> None:
    peer = trace.connect(sasl=True)
    logs_in(peer)
    peer.ask(METADATA, 12, ANSWER)


def no_login(trace: Trace) -> None:
    trace.connect(sasl=True).ask(METADATA, 12, ANSWER)


def asks_after(ms: float, version: int = 2) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect(sasl=True)
        logs_in(peer, 1000, version)
        peer.ask(METADATA, 12, ANSWER, after_ms=ms)

    return story


def produces(records: bytearray, **how: object) -> Story:
    def story(trace: Trace) -> None:
        produce(trace.connect(), records, **how)  # type: ignore[arg-type]

    return story


def damaged(records: bytearray) -> bytearray:
    records[-1] ^= 1
    return records


def repeats(times: int) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        for _ in range(times):
            produce(peer, batch(), error=10)

    return story


def sequences(*sent: tuple[int, int], epochs: tuple[int, ...] = (), errors: dict[int, int] | None = None) -> Story:
    """Returns a story of batches (sequence, number of records) on one connection, after InitProducerId.

    epochs  the batches' producer epochs
    errors  error codes, keyed by the batch's position
    """

    def story(trace: Trace) -> None:
        peer = trace.connect()
        init(peer, P)
        for place, (sequence, count) in enumerate(sent):
            epoch = epochs[place] if epochs else 0
            error = (errors or {}).get(place, 0)
            produce(peer, batch(sequence, producer=(7, epoch), count=count), error=error)

    return story


def on_a_new_connection(sequence: int) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        init(peer, P)
        produce(peer, batch(0, producer=P))
        produce(peer, batch(1, producer=P), lost=True)
        peer.close()
        produce(trace.connect(), batch(sequence, producer=P))

    return story


def begins_again(value: bytes) -> Story:
    """Returns a story in which three batches are acknowledged and then the producer starts again at sequence 0."""

    def story(trace: Trace) -> None:
        peer = trace.connect()
        init(peer, P)
        for sequence in range(3):
            produce(peer, batch(sequence, producer=P, value=b"a%d" % sequence))
        produce(peer, batch(0, producer=P, value=value))
        produce(peer, batch(3, producer=P, value=b"a3"))

    return story


def sends_again(value: bytes, *, error: int | None = None, timestamp: int = 0) -> Story:
    """Returns a story in which the response to a batch is lost or has `error`. The producer then sends a batch with the
    same sequence and the value `value`."""

    def story(trace: Trace) -> None:
        peer = trace.connect()
        init(peer, P)
        produce(peer, batch(0, producer=P, value=b"first"))
        produce(peer, batch(1, producer=P, value=b"second"), lost=error is None, error=error or 0)
        produce(peer, batch(1, producer=P, value=value, timestamp=timestamp))
        produce(peer, batch(2, producer=P, value=b"last"))

    return story


def at_once(count: int) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        for sequence in range(count):
            produce(peer, batch(sequence, producer=P), lost=True)
            trace.entries.pop()  # the request stays in flight

    return story


def transactional_epochs(epoch: int) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        init(peer, P, "t")
        produce(peer, batch(0, producer=(7, epoch), transactional=True), transactional_id="t")

    return story


def then_without_sequence(sequence: int) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        produce(peer, batch(0, producer=P))
        produce(peer, batch(sequence, producer=P if sequence >= 0 else (-1, -1)))

    return story


CASES = (
    Case("VER.1", metadata_inside, first_request_is_metadata),
    Case("VER.2", asked_again(3), asked_again(4)),
    Case("VER.3", metadata_inside, metadata_outside),
    Case("VER.4", name_event("my-client"), name_event("my client")),
    Case("VER.5", first_request_is_metadata, cut_frame(12)),
    Case("VER.6", in_flight(1, 2), in_flight(1, 1)),
    Case("VER.7", transactional_at(1, 11), transactional_at(1, 12)),
    Case("VER.9", first_request_is_metadata, null_where_none_is_allowed),
    Case("CON.2", throttled(600), throttled(100)),
    Case("CON.2", throttled(600, version=6), throttled(100, version=6)),
    Case("CON.5", login_first, no_login),
    Case("CON.6", asks_after(100), asks_after(1500)),
    Case("CON.6", asks_after(100, version=1), asks_after(1500, version=1)),
    Case("PRD.1", produces(batch()), produces(damaged(batch()))),
    Case("PRD.1", produces(batch()), produces(batch() + batch())),
    Case(
        "PRD.2",
        produces(batch(compression=Compression.ZSTD), version=7),
        produces(batch(compression=Compression.ZSTD), version=6),
    ),
    Case("PRD.3", produces(batch()), produces(batch(control=True))),
    Case("PRD.3", produces(batch()), produces(batch(), transactional_id="t")),
    Case("PRD.4", produces(batch(0, producer=P)), produces(batch(0, producer=P), acks=1)),
    Case("PRD.5", repeats(2), repeats(6)),
    Case("IDM.1", sequences((0, 1)), sequences((3, 1))),
    Case("IDM.2", sequences((0, 2), (2, 1), (3, 1)), sequences((0, 2), (3, 1))),
    Case("IDM.2", sequences((0, 2), (2, 1)), sequences((0, 2), (1, 1))),
    Case("IDM.3", sequences((0, 2), (2, 2), (0, 2)), sequences((0, 2), (2, 2), (0, 1))),
    Case("IDM.2", begins_again(b"a0"), begins_again(b"b0")),
    Case("IDM.3", begins_again(b"a0"), begins_again(b"b0")),
    Case("IDM.3", sends_again(b"second"), sends_again(b"other")),
    Case("IDM.3", sends_again(b"second", timestamp=99), sends_again(b"others", timestamp=99)),
    Case("IDM.3", sends_again(b"second", error=7), sends_again(b"other!", error=7)),
    Case("IDM.4", at_once(5), at_once(6)),
    Case("IDM.5", on_a_new_connection(2), on_a_new_connection(3)),
    Case(
        "IDM.6",
        sequences((0, 1), (1, 1), (0, 1), epochs=(0, 0, 1), errors={1: 59}),
        sequences((0, 1), (1, 1), (1, 1), errors={1: 59}),
    ),
    Case("IDM.6", sequences((0, 1), (0, 1), epochs=(0, 1), errors={0: 45}), sequences((0, 1), (0, 1), errors={0: 45})),
    Case("IDM.7", sequences((0, 1), (1, 1), errors={0: 46}), sequences((0, 1), (0, 1), errors={0: 46})),
    Case("IDM.8", sequences((0, 1), (0, 1), epochs=(0, 1)), sequences((0, 1), (0, 1), (1, 1), epochs=(0, 1, 0))),
    Case("IDM.8", transactional_epochs(0), transactional_epochs(1)),
    Case("IDM.9", sequences((0, 1), epochs=(32_766,)), sequences((0, 1), epochs=(-32_768,))),
    Case("IDM.10", then_without_sequence(1), then_without_sequence(-1)),
)
