"""Tests that a decoder, given any bytes, returns a message or raises MalformedMessage, and needs memory in proportion
to its input.

Most inputs are mutations of valid messages, either recorded or generated. The environment variable FUZZ sets the number
of executions per API and version, and FUZZ_SEED selects another series of inputs. A failure prints the bytes.
"""

import os
import tracemalloc
from collections.abc import Callable
from random import Random

import pytest

from odradek.protocol.codec import decode, decode_from, encode, is_flexible
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.frames import read_request_header
from odradek.protocol.messages import MODULES, message_class, request_class, response_class
from odradek.protocol.schema import load
from odradek.protocol.struct import Message
from tests.support.message_values import RandomChoices, build_message
from tests.support.oracle import IS_THERE, Exchange, exchanges

EXECUTIONS = int(os.environ.get("FUZZ", "200"))
SEED = os.environ.get("FUZZ_SEED", "0")
MEASURE_EVERY = 50  # Measuring memory makes decoding slow.

# The smallest list element occupies one or two bytes in a message, and a few hundred bytes as an object.
BYTES_PER_BYTE = 250
BYTES_AT_LEAST = 64 * 1024
LENGTHS = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x07",
    b"\x7f\xff",
    b"\x80\x01",
)


def overwrite(rng: Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def insert(rng: Random, data: bytearray) -> None:
    at = rng.randint(0, len(data))
    data[at:at] = rng.randbytes(rng.randint(1, 8))


def remove(rng: Random, data: bytearray) -> None:
    at = rng.randint(0, len(data))
    del data[at : at + rng.randint(1, 8)]


def cut(rng: Random, data: bytearray) -> None:
    del data[rng.randint(0, len(data)) :]


def put_length(rng: Random, data: bytearray) -> None:
    length, at = rng.choice(LENGTHS), rng.randint(0, len(data))
    data[at : at + len(length)] = length


def repeat(rng: Random, data: bytearray) -> None:
    at, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    data[at:at] = data[at:end] * rng.randint(1, 3)


MUTATIONS: tuple[Callable[[Random, bytearray], None], ...] = (
    overwrite,
    overwrite,
    insert,
    remove,
    cut,
    put_length,
    repeat,
)


def mutated(rng: Random, seed: bytes) -> bytes:
    data = bytearray(seed)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        rng.choice(MUTATIONS)(rng, data)
    return bytes(data)


def recorded() -> dict[tuple[str, int], list[bytes]]:
    """Returns the bodies of recorded requests and responses, by message module and version."""
    found: dict[tuple[str, int], list[bytes]] = {}
    for exchange in exchanges() if IS_THERE else ():
        if exchange.failed is None:
            for message_type, body in bodies(exchange):
                found.setdefault((message_type.__module__.rpartition(".")[2], exchange.version), []).append(body)
    return found


def bodies(exchange: Exchange) -> list[tuple[type[Message], bytes]]:
    request_type, response_type = request_class(exchange.key), response_class(exchange.key)
    found = [(request_type, exchange.request[read_request_header(exchange.request)[1] :])]
    if exchange.response is not None:
        has_tags = is_flexible(response_type, exchange.version) and exchange.api != "ApiVersions"
        found.append((response_type, exchange.response[5 if has_tags else 4 :]))
    return found


RECORDED = recorded()


def execute(message_type: type[Message], version: int, data: bytes) -> None:
    try:
        message, end = decode_from(message_type, version, data)
    except MalformedMessage:
        return
    assert end <= len(data)
    written = encode(message, version)
    # The values cannot be compared, because a float may be NaN.
    assert encode(decode(message_type, version, written), version) == written


def peak_bytes(message_type: type[Message], version: int, data: bytes) -> int:
    tracemalloc.start()
    try:
        decode(message_type, version, data)
    except MalformedMessage:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize("module", MODULES)
def test_a_decoder_survives_mutated_messages(module: str) -> None:
    message_type = message_class(module)
    for version in load(module).version_range():
        rng = Random(f"{SEED} {module} {version}")
        seeds = RECORDED.get((module, version), [])
        seeds = seeds + [encode(build_message(module, version, RandomChoices(rng)), version) for _ in range(5)]
        for number in range(EXECUTIONS):
            data = rng.randbytes(rng.randint(0, 60)) if number % 20 == 0 else mutated(rng, rng.choice(seeds))
            try:
                execute(message_type, version, data)
            except Exception as error:
                error.add_note(f"{module} v{version}, FUZZ_SEED={SEED}, execution {number}: {data.hex()}")
                raise
            if number % MEASURE_EVERY == 0:
                peak = peak_bytes(message_type, version, data)
                assert peak <= BYTES_AT_LEAST + BYTES_PER_BYTE * len(data), f"{module} v{version}: {data.hex()}"


def test_a_request_header_reader_survives_anything() -> None:
    rng = Random(SEED)
    headers = [frame[:60] for frame in (exchange.request for exchange in exchanges())] if IS_THERE else []
    for _ in range(EXECUTIONS * 20):
        data = mutated(rng, rng.choice(headers)) if headers else rng.randbytes(rng.randint(0, 60))
        try:
            _, position = read_request_header(data)
        except MalformedMessage:
            continue
        assert position <= len(data)
