"""Tests that the client reads the same records from a fetched batch, in any layout, as the slow reader in
`odradek.protocol`."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.common.values import ConsumerRecord
from odradek.client.consuming.fetched import records_in
from odradek.protocol.batch_header import HEADER_BYTES, pack_batch, read_batch_header
from odradek.protocol.compression import Compression
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import NewRecord, build_batch, records_of

BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(NewRecord, key=BYTES, value=BYTES, timestamp=st.integers(0, 2**45), headers=HEADERS), min_size=1
)


def read(batch: bytes | bytearray) -> list[ConsumerRecord]:
    return records_in(memoryview(batch), read_batch_header(batch), "orders", 3)


def as_the_judge_reads(batch: bytes | bytearray) -> list[ConsumerRecord]:
    return [ConsumerRecord("orders", 3, *record) for record in records_of(batch)]


def alike(count: int, *, key: bytes | None = None, value: bytes | None = b"v" * 100, every_ms: int = 0) -> bytearray:
    return build_batch([NewRecord(key, value, 1_000 + index * every_ms) for index in range(count)], base_offset=70)


@given(RECORDS)
def test_any_records_are_read_as_they_were_written(records: list[NewRecord]) -> None:
    batch = build_batch(records, base_offset=2**40)
    assert read(batch) == as_the_judge_reads(batch)
    assert all(type(record) is ConsumerRecord for record in read(batch))


@pytest.mark.parametrize("count", [1, 2, 9, 10, 63, 64, 65, 200, 9_000, 17_000])
@pytest.mark.parametrize("key", [None, b"", b"key"])
@pytest.mark.parametrize("value", [None, b"", b"v" * 100])
def test_records_laid_out_alike_are_read_as_they_were_written(
    count: int, key: bytes | None, value: bytes | None
) -> None:
    batch = alike(count, key=key, value=value, every_ms=1)
    assert read(batch) == as_the_judge_reads(batch)


@pytest.mark.parametrize("odd", [0, 1, 40, 99])
def test_one_different_record_does_not_change_how_the_others_are_read(odd: int) -> None:
    records = [NewRecord(b"k", b"v" * 100, 1_000 + index // 3) for index in range(100)]
    records[odd] = NewRecord(b"k", b"other" * 70, 5, (("trace", b"1"),))
    batch = build_batch(records)
    assert read(batch) == as_the_judge_reads(batch)


def test_the_broker_s_time_stands_for_all_records_of_a_batch_of_append_time() -> None:
    batch = build_batch([NewRecord(None, b"v", index) for index in range(100)], log_append_time_ms=77)
    assert {record.timestamp_ms for record in read(batch)} == {77}


def test_offsets_that_compaction_has_taken_are_missing() -> None:
    whole = [NewRecord(b"k%d" % index, b"v", 1_000) for index in range(4)]
    batches = [build_batch([record], base_offset=index) for index, record in enumerate(whole)]
    # Only records 0 and 3 of the four are left in the batch. Record 3 gets its original offset delta.
    left = bytes(batches[0][HEADER_BYTES:]) + bytes(batches[3][HEADER_BYTES:]).replace(b"\0\0\0", b"\0\0\x06", 1)
    header = replace(read_batch_header(build_batch(whole, base_offset=500)), record_count=2)
    assert [record.offset for record in read(pack_batch(header, left))] == [500, 503]


@pytest.mark.parametrize("compression", Compression)
def test_compressed_records_are_opened(compression: Compression) -> None:
    batch = build_batch([NewRecord(b"k", b"v" * 100, 1_000) for _ in range(100)], compression=compression)
    assert read(batch) == as_the_judge_reads(batch)


@given(st.integers(0, 1_000), st.integers(0, 255))
def test_damaged_records_raise_one_kind_of_exception_or_are_read(place: int, byte: int) -> None:
    batch = alike(40, value=b"v" * 20)
    batch[HEADER_BYTES + place % (len(batch) - HEADER_BYTES)] = byte
    try:
        expected = as_the_judge_reads(batch)
    except MalformedMessage:
        with pytest.raises(MalformedMessage):
            read(batch)
    else:
        assert read(batch) == expected


@pytest.mark.parametrize("count", [-1, 39, 41, 2**30])
def test_a_count_that_does_not_fit_the_records_is_refused(count: int) -> None:
    batch = alike(40)
    header = replace(read_batch_header(batch), record_count=count)
    with pytest.raises(MalformedMessage):
        read(pack_batch(header, batch[HEADER_BYTES:]))
