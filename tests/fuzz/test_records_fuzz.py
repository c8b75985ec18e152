"""Tests that readers and the validation of record batches handle mutated batches. Every reader returns records or
raises MalformedMessage. The fast walk agrees with the reader of single records. Validation accepts only batches that
every reader can read.

The environment variable FUZZ sets the number of executions per codec and reader, and FUZZ_SEED selects another series
of batches.
"""

import os
from collections.abc import Callable
from random import Random

import pytest

from odradek.protocol.batch_header import HEADER_BYTES, batches, crc_ok, read_batch_header
from odradek.protocol.compression import Compression, compress, decompress
from odradek.protocol.control_records import marker_batch, read_marker
from odradek.protocol.errors import KafkaError, MalformedMessage
from odradek.protocol.record_walk import survey_records
from odradek.protocol.records import NewRecord, build_batch, records_of
from odradek.storage.log_config import LogConfig
from odradek.storage.validation import BatchRules, check_produced, is_cheap, is_first_batch_transactional
from tests.support.batches import NOW_MS, batch_of, changed

EXECUTIONS = int(os.environ.get("FUZZ", "200"))
SEED = os.environ.get("FUZZ_SEED", "0")
LIMIT = 1 << 20
INTERESTING = (0, 1, 2, 3, 0x3F, 0x40, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


def mutate(rng: Random, data: bytearray, start: int = 0) -> bytearray:
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if len(data) <= start:
            break
        at = rng.randrange(start, len(data))
        match rng.randrange(5):
            case 0:
                data[at] = rng.choice(INTERESTING)
            case 1:
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                data[at:at] = rng.randbytes(rng.randint(1, 6))
            case 3:
                del data[at : at + rng.randint(1, 6)]
            case _:
                data[at:at] = data[start:at][-rng.randint(1, 40) :]
    return data


def some_records(rng: Random) -> list[NewRecord]:
    """Returns random records. They are often of equal size, because the fast walk is optimized for that case."""
    count = rng.choice((1, 2, 30, 100))
    sizes = [rng.randrange(80)] * count if rng.random() < 0.6 else [rng.randrange(80) for _ in range(count)]
    key = rng.choice((None, b"", b"key"))
    headers = (("h", b"v"),) if rng.random() < 0.3 else ()
    return [NewRecord(key, b"v" * size, NOW_MS + index % 3, headers) for index, size in enumerate(sizes)]


def thorough(data: bytes, count: int) -> bool:
    """Returns whether the reader of single records accepts these decompressed records."""
    try:
        read = list(records_of(batch_of(data, count)))
    except MalformedMessage:
        return False
    return [record.offset for record in read] == list(range(count))


@pytest.mark.parametrize("codec", Compression)
def test_readers_of_batches_survive_mutated_bytes(codec: Compression) -> None:
    rng = Random(f"{SEED} read {codec.name}")
    for _ in range(EXECUTIONS):
        batch = build_batch(some_records(rng), compression=codec)
        data = mutate(rng, batch + batch if rng.random() < 0.2 else batch)
        try:
            for position, header in batches(data):
                for _ in records_of(data, position, limit_bytes=LIMIT):
                    pass
                if header.is_control:
                    read_marker(data, position)
        except MalformedMessage:
            continue


def test_the_reader_of_markers_survives_mutated_bytes() -> None:
    rng = Random(f"{SEED} markers")
    for _ in range(EXECUTIONS):
        batch = marker_batch(producer_id=1, producer_epoch=2, is_commit=True, coordinator_epoch=3, timestamp_ms=NOW_MS)
        try:
            read_marker(mutate(rng, batch, HEADER_BYTES))
        except MalformedMessage:
            continue


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
def test_damaged_compressed_data_is_refused_or_stays_below_the_limit(codec: Compression) -> None:
    rng = Random(f"{SEED} open {codec.name}")
    for _ in range(EXECUTIONS):
        plain = rng.randbytes(rng.randrange(100)) + b"again " * rng.randrange(2000)
        data = mutate(rng, bytearray(compress(codec, plain)))
        try:
            assert len(decompress(codec, data, LIMIT)) <= LIMIT
        except MalformedMessage:
            continue


@pytest.mark.parametrize("as_view", [False, True], ids=["bytes", "view"])
def test_the_fast_walk_agrees_with_the_reader_of_single_records(as_view: bool) -> None:
    rng = Random(f"{SEED} walk {as_view}")
    agreed = {True: 0, False: 0}
    for _ in range(EXECUTIONS * 2):
        new = some_records(rng)
        data = bytes(mutate(rng, build_batch(new)[HEADER_BYTES:]))
        try:
            survey_records(memoryview(data) if as_view else data, len(new))
            is_sound = True
        except MalformedMessage:
            is_sound = False
        assert is_sound is thorough(data, len(new)), data.hex()
        agreed[is_sound] += 1
    assert min(agreed.values()) > EXECUTIONS // 8, "a fuzzer that only makes one kind proves little"


RULES: dict[str, Callable[[], LogConfig]] = {
    "plain": LogConfig,
    "rewriting": lambda: LogConfig(compression_type="lz4", message_timestamp_type="LogAppendTime"),
    "compacted": lambda: LogConfig(cleanup_policy=frozenset({"compact"}), compression_type="uncompressed"),
}


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("codec", Compression)
def test_every_reader_can_read_a_batch_that_passes_validation(codec: Compression, kind: str) -> None:
    rng = Random(f"{SEED} validate {codec.name} {kind}")
    rules = BatchRules.of("t", 0, RULES[kind]())
    for _ in range(EXECUTIONS):
        batch = mutate(rng, build_batch(some_records(rng), compression=codec))
        if len(batch) >= HEADER_BYTES and rng.random() < 0.9:
            batch = changed(batch, batch_length=len(batch) - 12)
        try:
            is_cheap(batch, rules)
            is_first_batch_transactional(batch)
            accepted = check_produced(batch, rules, NOW_MS, 8)
        except KafkaError:
            continue
        assert crc_ok(accepted.batch, 0, len(accepted.batch))
        assert read_batch_header(accepted.batch) == accepted.header
        read = list(records_of(accepted.batch))
        assert [record.offset for record in read] == list(range(len(read)))
