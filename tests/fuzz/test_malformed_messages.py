"""Tests that decoders refuse truncated messages with MalformedMessage, and that a message with an edited length is
refused or decoded as another valid message."""

from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, decode_from, encode, is_flexible
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.frames import read_request_header
from odradek.protocol.messages import REQUESTS, message_class, request_class, response_class
from odradek.protocol.primitives import varint
from odradek.protocol.schema import load
from odradek.protocol.struct import Message
from tests.support.length_fields import LengthField, length_fields
from tests.support.message_values import RandomChoices, build_message, versions
from tests.support.oracle import IS_THERE, exchanges, needs_oracle

RECORDED = [exchange for exchange in exchanges() if exchange.failed is None] if IS_THERE else []
KEYS = sorted({exchange.key for exchange in RECORDED}) or sorted(REQUESTS)


def recorded_bodies(key: int) -> Iterator[tuple[type[Message], int, bytes]]:
    """Yields the class, version and body of each recorded request and response of an API."""
    for exchange in RECORDED:
        if exchange.key == key:
            request_type, response_type = request_class(key), response_class(key)
            _, position = read_request_header(exchange.request)
            _, end = decode_from(request_type, exchange.version, exchange.request, position)
            yield request_type, exchange.version, exchange.request[position:end]
            if exchange.response is not None:
                has_tags = is_flexible(response_type, exchange.version) and key != ApiKey.API_VERSIONS.value
                yield response_type, exchange.version, exchange.response[5 if has_tags else 4 :]


def made_bodies(module: str) -> Iterator[tuple[type[Message], int, bytes]]:
    for name, version in versions():
        if name == module:
            message = build_message(name, version, RandomChoices(Random(f"{name} {version}")))
            yield type(message), version, encode(message, version)


def edits(field: LengthField, data: bytes) -> Iterator[bytes]:
    """Yields copies of the data in which one length is wrong: for example null, 0, off by one, or the maximum."""
    before, behind = data[: field.position], data[field.position + field.size :]
    if field.is_varint:
        length = data[field.position] & 0x7F
        for value in (0, 1, length - 1, length + 1, 127, 128, 0x7FFF_FFFF, 0xFFFF_FFFF):
            if value >= 0:
                yield before + varint(value) + behind
        yield before + b"\xff" * 10 + behind
    else:
        most = 2 ** (8 * field.size - 1)
        length = int.from_bytes(data[field.position : field.position + field.size], "big", signed=True)
        for value in {-1, -2, 0, 1, length - 1, length + 1, most - 1, -most}:
            yield before + max(-most, min(most - 1, value)).to_bytes(field.size, "big", signed=True) + behind


def assert_edits_do_no_harm(message_type: type[Message], version: int, body: bytes) -> None:
    """Asserts that a message with an edited length is refused or is decoded as another valid message."""
    schema = load(message_type.__module__.rpartition(".")[2])
    fields, end = length_fields(schema, version, body, 0)
    assert end == len(body)
    for field in fields:
        for edited in edits(field, body):
            with suppress(MalformedMessage):
                message, end = decode_from(message_type, version, edited)
                assert end <= len(edited)
                assert decode(message_type, version, encode(message, version)) == message


@needs_oracle
@pytest.mark.parametrize("key", KEYS)
def test_every_strict_prefix_of_a_recorded_message_is_refused(key: int) -> None:
    for message_type, version, body in recorded_bodies(key):
        for size in range(len(body)):
            try:
                decode(message_type, version, body[:size])
            except MalformedMessage:
                continue
            pytest.fail(f"{message_type.__name__} v{version}: {size} bytes of {len(body)} were taken for all")


@needs_oracle
@pytest.mark.parametrize("key", KEYS)
def test_every_edited_length_of_a_recorded_message_is_refused_or_harmless(key: int) -> None:
    for message_type, version, body in recorded_bodies(key):
        assert_edits_do_no_harm(message_type, version, body)


@pytest.mark.parametrize("module", sorted({module for module, _ in versions()}))
def test_edits_and_prefixes_of_generated_messages_are_refused_or_harmless(module: str) -> None:
    for message_type, version, body in made_bodies(module):
        assert_edits_do_no_harm(message_type, version, body)
        for size in {*range(min(len(body), 64)), *range(0, len(body), 97), max(0, len(body) - 1)} - {len(body)}:
            with pytest.raises(MalformedMessage):
                decode(message_class(module), version, body[:size])


@needs_oracle
def test_every_strict_prefix_of_a_request_header_is_refused() -> None:
    for exchange in RECORDED:
        _, position = read_request_header(exchange.request)
        for size in range(position):
            with pytest.raises(MalformedMessage):
                read_request_header(exchange.request[:size])
