"""Tests that exchanges between real clients and Apache Kafka 4.3.1 are decoded and encoded as in Kafka.

Kafka's own codec is the reference: each recorded frame has the message that Kafka decoded from it. The tests leave out
exchanges that Kafka itself cannot read. The encoding tests also leave out requests with extra bytes at the end, which
Kafka does not encode again.
"""

from collections.abc import Iterator
from struct import Struct as Packing
from typing import Any

import pytest

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode_from, encode, is_flexible
from odradek.protocol.frames import LENGTH_BYTES, read_request_header, request_bytes, response_chunks
from odradek.protocol.kafka_json import kafka_json
from odradek.protocol.messages import request_class, response_class
from odradek.protocol.struct import Message
from tests.support.oracle import IS_THERE, Exchange, exchanges, needs_oracle

pytestmark = needs_oracle

RECORDED = list(exchanges()) if IS_THERE else []
READABLE = [exchange for exchange in RECORDED if exchange.request_json is not None]

RENAMED = {  # fields that Kafka 4.4.0 has renamed, by API
    ApiKey.TXN_OFFSET_COMMIT.value: {"generationId": "generationIdOrMemberEpoch"},
    ApiKey.STREAMS_GROUP_HEARTBEAT.value: {"acceptableRecoveryLag": "acceptableRecoveryLagLegacy"},
}


def each_key() -> Iterator[tuple[int, list[Exchange]]]:
    for key in sorted({exchange.key for exchange in READABLE}):
        yield key, [exchange for exchange in READABLE if exchange.key == key]


def response_body_position(exchange: Exchange) -> int:
    is_api_versions = exchange.key == ApiKey.API_VERSIONS.value
    return 5 if is_flexible(response_class(exchange.key), exchange.version) and not is_api_versions else 4


def as_named_since(key: int, recorded: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns the message that Kafka 4.3.1 read, but with the field names of Kafka 4.4.0
    (docs/spec/kafka-4.4.md#s3-1)."""
    if recorded is None:
        return None
    renamed = RENAMED.get(key, {})
    return {renamed.get(name, name): value for name, value in recorded.items()}


BY_KEY = pytest.mark.parametrize(("key", "recorded"), list(each_key()), ids=lambda value: str(value)[:3])


def test_no_more_is_exempt_than_the_recordings_say() -> None:
    assert len(RECORDED) == 1460
    assert len(READABLE) == len(RECORDED) - sum(exchange.failed is not None for exchange in RECORDED)
    assert sum(not exchange.request_same for exchange in READABLE) == 2
    assert all(exchange.response_same for exchange in READABLE if exchange.response is not None)


@BY_KEY
def test_requests_read_as_kafka_reads_them(key: int, recorded: list[Exchange]) -> None:
    for exchange in recorded:
        header, position = read_request_header(exchange.request)
        assert (header.api_key, header.api_version) == (key, exchange.version)
        assert header.client_id == exchange.client_id
        request, end = decode_from(request_class(key), exchange.version, exchange.request, position)
        assert kafka_json(request, exchange.version) == as_named_since(key, exchange.request_json), exchange
        assert end == len(exchange.request) or not exchange.request_same, exchange


@BY_KEY
def test_requests_are_written_as_their_clients_wrote_them(key: int, recorded: list[Exchange]) -> None:
    for exchange in recorded:
        header, position = read_request_header(exchange.request)
        request, end = decode_from(request_class(key), exchange.version, exchange.request, position)
        written = request_bytes(request, exchange.version, header.correlation_id, header.client_id)
        assert written[LENGTH_BYTES:] == exchange.request[:end], exchange
        assert int.from_bytes(written[:LENGTH_BYTES], "big") == end


@BY_KEY
def test_responses_read_as_kafka_reads_them(key: int, recorded: list[Exchange]) -> None:
    for exchange in recorded:
        if exchange.response is not None:
            position = response_body_position(exchange)
            response, end = decode_from(response_class(key), exchange.version, exchange.response, position)
            assert kafka_json(response, exchange.version) == as_named_since(key, exchange.response_json), exchange
            assert end == len(exchange.response), exchange


@BY_KEY
def test_responses_are_written_as_kafka_wrote_them(key: int, recorded: list[Exchange]) -> None:
    for exchange in recorded:
        if exchange.response is not None:
            position = response_body_position(exchange)
            response, _ = decode_from(response_class(key), exchange.version, exchange.response, position)
            correlation_id = int.from_bytes(exchange.response[:4], "big", signed=True)
            written = b"".join(response_chunks(key, exchange.version, correlation_id, response))
            assert written[LENGTH_BYTES:] == exchange.response, exchange


def test_a_frame_may_be_any_kind_of_buffer() -> None:
    for exchange in READABLE:
        expected = read_request_header(exchange.request)
        _, position = expected
        message: Message = decode_from(request_class(exchange.key), exchange.version, exchange.request, position)[0]
        for frame in (bytearray(exchange.request), memoryview(bytearray(exchange.request))):
            assert read_request_header(frame) == expected
            assert decode_from(request_class(exchange.key), exchange.version, frame, position)[0] == message, exchange


def test_a_message_may_stand_anywhere_in_a_buffer() -> None:
    shift = Packing(">q").pack(-1)
    for exchange in READABLE:
        request_type = request_class(exchange.key)
        _, position = read_request_header(exchange.request)
        message, end = decode_from(request_type, exchange.version, exchange.request, position)
        shifted = memoryview(shift + exchange.request + shift)
        assert decode_from(request_type, exchange.version, shifted, position + 8) == (message, end + 8), exchange
        assert encode(message, exchange.version) == exchange.request[position:end] or not exchange.request_same
