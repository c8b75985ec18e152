"""Tests each compression codec in the framings used by Kafka's clients. Decompression stops at the limit."""

import contextlib
import gc
import gzip
import os
import tracemalloc
from random import Random

import aiokafka.codec
import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.compression import Compression, DecompressedTooLarge, compress, decompress
from odradek.protocol.errors import MalformedMessage

NONE, GZIP, SNAPPY, LZ4, ZSTD = Compression
CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
LEVELS = {GZIP: (-1, 1, 9), SNAPPY: (None,), LZ4: (1, 9, 12, 17), ZSTD: (-5, 1, 22)}

PLAIN = [b"", b"x", b"records " * 50_000, bytes(300_000), Random(1).randbytes(200_000), b"ab" * 32_768 + b"c"]


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("plain", PLAIN, ids=len)
def test_compressed_data_decompresses_to_the_same_bytes(codec: Compression, plain: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, plain))) == plain
    assert bytes(decompress(codec, memoryview(bytearray(compress(codec, memoryview(plain)))))) == plain


@pytest.mark.parametrize("codec", CODECS)
def test_data_of_every_compression_level_decompresses_to_the_same_bytes(codec: Compression) -> None:
    plain = b"levels " * 1000
    for level in LEVELS[codec]:
        assert bytes(decompress(codec, compress(codec, plain, level))) == plain


THEIRS = {
    GZIP: (aiokafka.codec.gzip_encode, aiokafka.codec.gzip_decode),
    SNAPPY: (aiokafka.codec.snappy_encode, aiokafka.codec.snappy_decode),
    LZ4: (aiokafka.codec.lz4_encode, aiokafka.codec.lz4_decode),
    ZSTD: (aiokafka.codec.zstd_encode, aiokafka.codec.zstd_decode),
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("plain", PLAIN[1:], ids=len)
def test_a_client_library_opens_ours_and_we_open_theirs(codec: Compression, plain: bytes) -> None:
    their_encode, their_decode = THEIRS[codec]
    assert bytes(their_decode(compress(codec, plain))) == plain
    # The client's library writes LZ4 blocks that depend on one another, which Kafka refuses.
    if codec is not LZ4:
        assert bytes(decompress(codec, their_encode(plain))) == plain


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("plain", PLAIN[1:], ids=len)
def test_the_limit_is_exact(codec: Compression, plain: bytes) -> None:
    packed = compress(codec, plain)
    assert bytes(decompress(codec, packed, len(plain))) == plain
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, packed, len(plain) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_costs_no_more_memory_than_the_limit(codec: Compression) -> None:
    bomb = compress(codec, bytes(50_000_000))
    limit = 32_000_000
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedTooLarge):
            decompress(codec, bomb, limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * limit


@pytest.mark.parametrize("codec", CODECS)
def test_a_refusal_that_is_kept_keeps_nothing_that_was_opened(codec: Compression) -> None:
    bomb, limit_bytes = compress(codec, bytes(4 * 1024 * 1024)), 2 * 1024 * 1024
    kept: list[Exception] = []
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(10):
            with pytest.raises(DecompressedTooLarge) as refused:
                decompress(codec, bomb, limit_bytes)
            kept.append(refused.value)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert held_bytes < limit_bytes


def test_a_claim_of_more_than_snappy_can_hold_is_refused_before_memory_is_taken() -> None:
    claim = b"\xff\xff\xff\x1f" + b"\0" * 20  # a block of 24 bytes claims to contain 64 MB
    with pytest.raises(MalformedMessage, match="cannot decompress"):
        decompress(SNAPPY, claim)


@pytest.mark.parametrize("codec", CODECS)
def test_every_strict_prefix_is_malformed_or_opens_to_less(codec: Compression) -> None:
    plain = Random(2).randbytes(300) + b"the same again and again " * 40
    packed = compress(codec, plain)
    for size in range(len(packed)):
        try:
            assert len(decompress(codec, packed[:size])) < len(plain)
        except MalformedMessage:
            continue


@given(codec=st.sampled_from(CODECS), garbage=st.binary(max_size=200))
def test_garbage_is_malformed_and_nothing_else(codec: Compression, garbage: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        decompress(codec, garbage, 1 << 20)


def test_gzip_members_follow_one_another() -> None:
    assert decompress(GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


@pytest.mark.parametrize("behind", [b"", b"\x1f", b"not gzip"])
def test_gzip_members_of_any_size_follow_one_another(behind: bytes) -> None:
    """Checks that gzip members of various sizes can follow one another. They are read and decompressed in pieces, and a
    member can end within a piece."""
    plain = [Random(size).randbytes(size) + bytes(size * 50) for size in (0, 1, 50_000, 0, 100_000, 16_385)]
    packed = b"".join(map(gzip.compress, plain))
    opened = b"".join(plain)
    assert decompress(GZIP, packed + behind) == opened
    assert decompress(GZIP, packed + behind, len(opened)) == opened
    with pytest.raises(DecompressedTooLarge):
        decompress(GZIP, packed + behind, len(opened) - 1)
    with pytest.raises(MalformedMessage, match="too early"):
        decompress(GZIP, packed[:-1])


def test_xerial_streams_follow_one_another_and_raw_snappy_is_known_too() -> None:
    assert decompress(SNAPPY, compress(SNAPPY, b"one ") + compress(SNAPPY, b"two")) == b"one two"
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(b"raw"))) == b"raw"


def test_lz4_frames_end_where_they_say() -> None:
    assert bytes(decompress(LZ4, compress(LZ4, b"one") + b"whatever")) == b"one"


def test_lz4_blocks_that_depend_on_one_another_are_refused_as_kafka_refuses_them() -> None:
    with pytest.raises(MalformedMessage, match="depend"):
        decompress(LZ4, bytes(cramjam.lz4.compress(b"linked" * 100_000)))


def test_lz4_with_block_checksums_is_opened_and_checked() -> None:
    encoder = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
    encoder.compress(b"checked" * 30_000)
    packed = bytearray(encoder.finish())
    assert packed[4] & 0x10
    assert bytes(decompress(LZ4, packed)) == b"checked" * 30_000
    packed[-5] ^= 1
    with pytest.raises(MalformedMessage):
        decompress(LZ4, packed)


def test_lz4_is_framed_byte_for_byte_as_by_kafkas_java_client() -> None:
    packed = compress(LZ4, b"x")
    assert packed == bytes.fromhex("04224d18 604082 01000080 78 00000000")


def test_zstd_frames_follow_one_another_and_others_are_skipped() -> None:
    skipped = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    assert bytes(decompress(ZSTD, compress(ZSTD, b"one ") + skipped + compress(ZSTD, b"two"))) == b"one two"


def test_noise_is_stored_and_not_made_larger_than_a_little() -> None:
    noise = os.urandom(1_000_000)
    for codec in CODECS:
        assert len(compress(codec, noise)) < len(noise) + 1000
