"""Tests the fixed-size batch header: its bytes, its bits, and the fields that a broker changes."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.batch_header import (
    HEADER_BYTES,
    BatchHeader,
    assign,
    batches,
    crc_ok,
    pack_batch,
    read_batch_header,
    set_log_append_time,
    set_max_timestamp,
)
from odradek.protocol.compression import Compression
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import records_of
from tests.support.batches import NOW_MS, changed, good_batch


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


HEADERS = st.builds(
    BatchHeader,
    base_offset=signed(64),
    batch_length=st.just(0),
    leader_epoch=signed(32),
    magic=st.just(2),
    crc=st.just(0),
    attributes=signed(16),
    last_offset_delta=signed(32),
    base_timestamp=signed(64),
    max_timestamp=signed(64),
    producer_id=signed(64),
    producer_epoch=signed(16),
    base_sequence=signed(32),
    record_count=signed(32),
)


@given(header=HEADERS, payload=st.binary(max_size=100))
def test_a_packed_header_is_read_back(header: BatchHeader, payload: bytes) -> None:
    batch = pack_batch(header, payload)
    read = read_batch_header(batch)
    assert read == replace(header, batch_length=49 + len(payload), crc=read.crc)
    assert read.size_bytes == len(batch) == HEADER_BYTES + len(payload)
    assert crc_ok(batch, 0, len(batch))


def test_the_crc_covers_what_stands_behind_it_and_nothing_before() -> None:
    batch = good_batch()
    for position in range(len(batch)):
        flipped = bytearray(batch)
        flipped[position] ^= 0x10
        assert crc_ok(flipped, 0, len(batch)) is (position < 17)


@pytest.mark.parametrize("size", range(HEADER_BYTES))
def test_a_header_cut_short_is_malformed(size: int) -> None:
    with pytest.raises(MalformedMessage):
        read_batch_header(good_batch()[:size])


@pytest.mark.parametrize(
    "fields", [{"magic": 0}, {"magic": 1}, {"magic": 3}, {"batch_length": 48}, {"batch_length": -1}]
)
def test_another_magic_or_a_length_below_the_header_is_malformed(fields: dict[str, int]) -> None:
    with pytest.raises(MalformedMessage):
        read_batch_header(changed(good_batch(), seal=False, **fields))


def test_batches_are_found_in_order_and_a_truncated_one_ends_the_walk() -> None:
    one, two = good_batch(2), good_batch(5)
    data = one + two + one[:-1]
    assert [(position, header.record_count) for position, header in batches(data)] == [(0, 2), (len(one), 5)]
    assert [position for position, _ in batches(data, len(one))] == [len(one)]


def test_a_batch_gets_its_place_in_the_log_without_a_new_crc() -> None:
    batch = good_batch()
    crc = read_batch_header(batch).crc
    assign(memoryview(batch), 1_000_000_000_000, 7)
    header = read_batch_header(batch)
    assert (header.base_offset, header.leader_epoch, header.crc) == (1_000_000_000_000, 7, crc)
    assert crc_ok(batch, 0, len(batch))
    assert header.last_offset == 1_000_000_000_002
    assert header.next_offset == 1_000_000_000_003


def test_log_append_time_is_every_records_timestamp() -> None:
    batch = good_batch()
    set_log_append_time(batch, NOW_MS + 5)
    assert crc_ok(batch, 0, len(batch))
    assert read_batch_header(batch).is_log_append_time
    assert {record.timestamp for record in records_of(batch)} == {NOW_MS + 5}


def test_setting_the_largest_timestamp_takes_log_append_time_back() -> None:
    batch = good_batch()
    before = bytes(batch)
    set_log_append_time(batch, NOW_MS + 5)
    set_max_timestamp(batch, NOW_MS)
    assert bytes(batch) == before


def test_each_attribute_bit_has_its_property() -> None:
    header = read_batch_header(good_batch())
    bits = {
        0x08: "is_log_append_time",
        0x10: "is_transactional",
        0x20: "is_control",
        0x40: "has_delete_horizon",
    }
    for bit, name in bits.items():
        with_bit = replace(header, attributes=bit)
        assert [other for other in bits.values() if getattr(with_bit, other)] == [name]
    for codec in Compression:
        assert replace(header, attributes=codec.value | 0x78).compression is codec
    for unknown in (5, 6, 7):
        with pytest.raises(MalformedMessage):
            _ = replace(header, attributes=unknown).compression


def test_the_delete_horizon_stands_where_the_base_timestamp_was() -> None:
    header = read_batch_header(good_batch())
    assert header.delete_horizon_ms is None
    assert replace(header, attributes=0x40, base_timestamp=99).delete_horizon_ms == 99


def test_sequences_wrap_to_zero() -> None:
    header = replace(read_batch_header(good_batch()), base_sequence=2**31 - 2, last_offset_delta=3)
    assert header.last_sequence == 1
    assert replace(header, base_sequence=-1).last_sequence == -1


def test_the_layout_is_that_of_the_format_page() -> None:
    batch = good_batch(3)
    assert struct.unpack_from(">qi", batch) == (0, len(batch) - 12)
    assert batch[16] == 2
    assert struct.unpack_from(">i", batch, 23) == (2,)
    assert struct.unpack_from(">qhii", batch, 43) == (-1, -1, -1, 3)
