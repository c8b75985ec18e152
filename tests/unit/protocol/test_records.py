"""Tests that Odradek and client libraries read one another's record batches, and that other bytes are refused."""

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from odradek.protocol.batch_header import HEADER_BYTES, crc_ok, read_batch_header
from odradek.protocol.compression import Compression
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import Headers, NewRecord, Record, batch_of_one, build_batch, plain_batch, records_of
from tests.support.batches import NOW_MS, batch_of, changed, good_batch, record, record_of

CODECS = list(Compression)

CONTENT = st.none() | st.binary(max_size=300)
NAMES = st.text(max_size=20)
NEW_RECORDS = st.builds(
    NewRecord,
    key=CONTENT,
    value=CONTENT,
    timestamp=st.integers(0, 2**48),
    headers=st.lists(st.tuples(NAMES, CONTENT), max_size=4).map(tuple),
)


@given(new=st.lists(NEW_RECORDS, min_size=1, max_size=20), codec=st.sampled_from(CODECS), base=st.integers(0, 2**62))
def test_a_batch_is_read_as_it_was_built(new: list[NewRecord], codec: Compression, base: int) -> None:
    batch = build_batch(new, base_offset=base, compression=codec)
    assert crc_ok(batch, 0, len(batch))
    read = list(records_of(batch))
    assert read == [
        Record(base + index, one.timestamp, one.key, one.value, one.headers) for index, one in enumerate(new)
    ]
    header = read_batch_header(batch)
    assert header.record_count == len(new)
    assert header.last_offset == base + len(new) - 1
    assert header.max_timestamp == max(one.timestamp for one in new)
    assert header.base_timestamp == new[0].timestamp


@given(new=st.lists(NEW_RECORDS, min_size=1, max_size=20), codec=st.sampled_from(CODECS))
def test_client_libraries_read_what_we_build(new: list[NewRecord], codec: Compression) -> None:
    batch = bytes(build_batch(new, compression=codec))
    for reader in (DefaultRecordBatch, KafkaPythonBatch):
        theirs: Any = reader(batch)
        assert theirs.validate_crc()
        assert [(one.timestamp, one.key, one.value, list(one.headers)) for one in theirs] == [
            (one.timestamp, one.key, one.value, list(one.headers)) for one in new
        ]


@given(new=st.lists(NEW_RECORDS, min_size=1, max_size=20), codec=st.sampled_from(CODECS))
def test_we_read_what_client_libraries_build(new: list[NewRecord], codec: Compression) -> None:
    for builder in (DefaultRecordBatchBuilder, KafkaPythonBuilder):
        theirs: Any = builder(
            magic=2,
            compression_type=codec.value,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 20,
        )
        for index, one in enumerate(new):
            theirs.append(index, one.timestamp, one.key, one.value, list(one.headers))
        batch = bytes(theirs.build())
        assert crc_ok(batch, 0, len(batch))
        assert [(one.timestamp, one.key, one.value, one.headers) for one in records_of(batch)] == [
            (one.timestamp, one.key, one.value, one.headers) for one in new
        ]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 100_000])
def test_a_batch_of_one_is_built_alike(size: int) -> None:
    for key, value in ((b"k", b"v" * size), (b"k" * size, b"v"), (b"k" * size, None)):
        built = build_batch([NewRecord(key, value, NOW_MS)], base_sequence=7)
        assert batch_of_one(key, value, NOW_MS, base_sequence=7) == (built, read_batch_header(built))


@pytest.mark.parametrize("size", [0, 64, 8192])
def test_a_plain_batch_is_built_alike(size: int) -> None:
    headers: Headers = (("a", b"b" * size), ("c", None))
    records: list[tuple[bytes, bytes | None, Headers]] = [
        (b"k", b"v" * size, ()),
        (b"k" * size, None, headers),
        *[(b"", b"", ())] * 64,
    ]
    built = build_batch([NewRecord(key, value, NOW_MS, own) for key, value, own in records], base_sequence=7)
    assert plain_batch(records, NOW_MS, 7) == (built, read_batch_header(built))


def test_a_header_key_that_is_not_utf_8_survives() -> None:
    (read,) = records_of(batch_of(record_of(b"\0\0\0\x02k\x02v\x02\x04\xff\xfe\x01")))
    (again,) = records_of(build_batch([NewRecord(read.key, read.value, 0, read.headers)]))
    assert again.headers == read.headers
    assert again.headers[0][0].encode("utf-8", "surrogateescape") == b"\xff\xfe"


def test_with_a_delete_horizon_timestamps_count_from_it() -> None:
    new = [NewRecord(b"k", None, NOW_MS), NewRecord(b"l", b"v", NOW_MS + 3)]
    batch = build_batch(new, delete_horizon_ms=NOW_MS + 86_400_000)
    assert read_batch_header(batch).delete_horizon_ms == NOW_MS + 86_400_000
    assert [one.timestamp for one in records_of(batch)] == [NOW_MS, NOW_MS + 3]


def test_a_batch_without_records_reads_as_none() -> None:
    empty = changed(good_batch()[:HEADER_BYTES], batch_length=49, record_count=0)
    assert list(records_of(empty)) == []


def test_building_a_batch_of_nothing_is_a_bug_of_the_caller() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])


@pytest.mark.parametrize("codec", CODECS)
def test_every_strict_prefix_is_malformed(codec: Compression) -> None:
    batch = good_batch(20, codec)
    for size in range(len(batch)):
        with pytest.raises(MalformedMessage):
            list(records_of(batch[:size]))


@pytest.mark.parametrize("codec", CODECS)
def test_records_cut_short_within_a_whole_batch_are_malformed(codec: Compression) -> None:
    payload = good_batch(20)[HEADER_BYTES:]
    for size in range(len(payload)):
        with pytest.raises(MalformedMessage):
            list(records_of(batch_of(bytes(payload[:size]), 20, compression=codec)))


@pytest.mark.parametrize("codec", CODECS)
def test_flipped_bits_are_malformed_or_another_record_but_never_another_exception(codec: Compression) -> None:
    batch = good_batch(20, codec)
    for position in range(len(batch)):
        for bit in range(8):
            flipped = bytearray(batch)
            flipped[position] ^= 1 << bit
            try:
                list(records_of(flipped))
            except MalformedMessage:
                continue


@pytest.mark.parametrize("count", [-1, 2**31 - 1])
def test_an_impossible_count_is_refused_before_anything_is_read(count: int) -> None:
    with pytest.raises(MalformedMessage, match="cannot fit into"):
        next(records_of(batch_of(record(), count)))
