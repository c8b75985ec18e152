"""Tests a segment's offset, time and transaction indexes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.files.indexes import AbortedTxn, CorruptIndex, OffsetIndex, TimeIndex, TxnIndex

BASE = 1_000


def offset_index(*entries: tuple[int, int]) -> OffsetIndex:
    index = OffsetIndex(BASE)
    for last_offset, position in entries:
        index.append(last_offset, position)
    return index


def time_index(*entries: tuple[int, int]) -> TimeIndex:
    index = TimeIndex(BASE)
    for timestamp, offset in entries:
        index.maybe_append(timestamp, offset)
    return index


@pytest.mark.parametrize(
    ("offset", "position"), [(1_000, 0), (1_009, 0), (1_010, 500), (1_019, 500), (1_020, 900), (9_999, 900)]
)
def test_the_search_for_an_offset_starts_at_the_last_entry_not_above_it(offset: int, position: int) -> None:
    assert offset_index((1_010, 500), (1_020, 900)).position_before(offset) == position


@pytest.mark.parametrize(("position", "offset"), [(0, 1_010), (500, 1_010), (501, 1_020), (901, None)])
def test_the_first_entry_at_or_behind_a_position_bounds_the_offsets_before_it(
    position: int, offset: int | None
) -> None:
    assert offset_index((1_010, 500), (1_020, 900)).offset_beyond(position) == offset


@pytest.mark.parametrize(("timestamp", "offset"), [(50, BASE), (100, BASE), (101, 1_005), (200, 1_005), (201, 1_010)])
def test_the_search_for_a_timestamp_starts_at_the_last_entry_below_it(timestamp: int, offset: int) -> None:
    assert time_index((100, 1_005), (200, 1_010)).offset_before(timestamp) == offset


def test_timestamps_that_do_not_grow_make_no_entry() -> None:
    index = time_index((100, 1_001), (100, 1_002), (90, 1_003), (101, 1_004))
    assert index.entries() == [(100, 1_001), (101, 1_004)]
    assert index.last_entry == (101, 1_004)


def test_an_offset_index_entry_is_two_big_endian_int32() -> None:
    assert offset_index((1_002, 3)).to_bytes() == bytes([0, 0, 0, 2, 0, 0, 0, 3])


def test_a_time_index_entry_is_an_int64_and_an_int32() -> None:
    assert time_index((258, 1_005)).to_bytes() == bytes([0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 5])


ascending = st.lists(st.integers(0, 2**31 - 1 - BASE), unique=True, max_size=50).map(sorted)


@given(ascending, ascending)
def test_an_offset_index_survives_its_bytes(offsets: list[int], positions: list[int]) -> None:
    count = min(len(offsets), len(positions))
    index = offset_index(*((BASE + 1 + o, p + 1) for o, p in zip(offsets[:count], positions[:count], strict=True)))
    again = OffsetIndex.from_bytes(BASE, index.to_bytes() + bytes(8 * 3))
    assert again.entries() == index.entries()


@given(ascending, ascending)
def test_a_time_index_survives_its_bytes(timestamps: list[int], offsets: list[int]) -> None:
    count = min(len(timestamps), len(offsets))
    index = time_index(*((t + 1, BASE + o) for t, o in zip(timestamps[:count], offsets[:count], strict=True)))
    assert TimeIndex.from_bytes(BASE, index.to_bytes() + bytes(12 * 3)).entries() == index.entries()


@pytest.mark.parametrize("data", [b"\0" * 7, b"\1" * 9, bytes([0, 0, 0, 2, 0, 0, 0, 3] * 2)])
def test_an_offset_index_that_is_torn_or_does_not_ascend_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptIndex):
        OffsetIndex.from_bytes(BASE, data)


@pytest.mark.parametrize("data", [b"\0" * 11, time_index((5, BASE)).to_bytes() * 2])
def test_a_time_index_that_is_torn_or_does_not_ascend_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptIndex):
        TimeIndex.from_bytes(BASE, data)


# Transaction index

ENTRY = AbortedTxn(producer_id=7, first_offset=1_010, last_offset=1_020, last_stable_offset=1_015)


def test_a_transaction_index_entry_has_34_bytes_and_version_0() -> None:
    index = TxnIndex()
    index.append(ENTRY)
    expected = b"\0\0" + b"".join(number.to_bytes(8, "big") for number in ENTRY)
    assert index.to_bytes() == expected
    assert TxnIndex.from_bytes(BASE, expected).entries() == [ENTRY]


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 33,
        b"\0\1" + b"".join(number.to_bytes(8, "big") for number in ENTRY),
        (b"\0\0" + b"".join(number.to_bytes(8, "big") for number in ENTRY)) * 2,
        b"\0\0" + b"".join(number.to_bytes(8, "big") for number in ENTRY._replace(last_offset=BASE - 1)),
    ],
)
def test_a_transaction_index_that_is_torn_foreign_or_out_of_order_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptIndex):
        TxnIndex.from_bytes(BASE, data)


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [(1_000, 1_010, []), (1_000, 1_011, [ENTRY]), (1_020, 1_021, [ENTRY]), (1_021, 1_100, [])],
)
def test_a_lookup_returns_overlapping_transactions(start: int, end: int, found: list[AbortedTxn]) -> None:
    index = TxnIndex()
    index.append(ENTRY)
    collected: list[AbortedTxn] = []
    index.collect(start, end, collected)
    assert collected == found


def test_a_lookup_ends_with_the_entry_at_which_all_before_the_end_was_decided() -> None:
    index = TxnIndex()
    index.append(ENTRY)
    index.append(ENTRY._replace(last_offset=1_030, first_offset=1_012, last_stable_offset=1_031))
    assert index.collect(1_000, 1_015, []) is True
    assert index.collect(1_000, 1_040, []) is False
    collected: list[AbortedTxn] = []
    index.collect(1_000, 1_014, collected)
    assert collected == [ENTRY], "its last stable offset lies behind the end: nothing later can overlap"
