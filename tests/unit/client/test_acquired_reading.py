"""Tests which fetched records count as acquired, and which offsets count as gaps (docs/spec/share-groups.md#s1-5)."""

from __future__ import annotations

import pytest

from odradek.client.common.values import TopicPartition
from odradek.client.sharing.acquired import GAP, MAX_OFFSETS, OPEN, REJECT, RELEASE, FetchedShareRecords, read_acquired
from odradek.protocol.batch_header import (
    HEADER_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    seal_batch,
)
from odradek.protocol.control_records import marker_batch
from odradek.protocol.messages.share_fetch_response import AcquiredRecords
from odradek.protocol.records import append_record

P = TopicPartition("jobs", 3)


def batch(first: int, last: int, *, missing: tuple[int, ...] = ()) -> bytes:
    """Returns a batch with a record for each offset, except for the offsets in `missing`, which compaction has
    removed."""
    offsets = [offset for offset in range(first, last + 1) if offset not in missing]
    made = bytearray(HEADER_BYTES)
    for offset in offsets:
        append_record(made, offset - first, 0, None, b"%d" % offset)
    nobody = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
    seal_batch(made, first, NO_LEADER_EPOCH, 0, last - first, 0, 0, *nobody, len(offsets))
    return bytes(made)


def read(records: bytes, *acquired: tuple[int, int, int]) -> FetchedShareRecords:
    ranges = [AcquiredRecords(first_offset=a, last_offset=b, delivery_count=count) for a, b, count in acquired]
    return read_acquired(P, records, ranges, checks_crcs=True)


def ranges(found: FetchedShareRecords) -> list[tuple[int, bytes]]:
    return [(each.first_offset, bytes(each.types)) for each in found.ranges]


def given(found: FetchedShareRecords) -> list[tuple[int, bytes | None, int]]:
    assert {(record.topic, record.partition) for record in found.records} <= {P}
    return [(record.offset, record.value, record.delivery_count) for record in found.records]


def test_a_batch_that_is_acquired_as_a_whole_is_read_as_a_whole() -> None:
    found = read(batch(10, 12), (10, 12, 1))
    assert given(found) == [(10, b"10", 1), (11, b"11", 1), (12, b"12", 1)]
    assert ranges(found) == [(10, bytes([OPEN] * 3))]


def test_records_of_others_in_the_same_batches_are_left_out() -> None:
    found = read(batch(0, 9) + batch(10, 19) + batch(20, 29), (3, 3, 2), (5, 6, 4), (18, 21, 1))
    assert given(found) == [
        (3, b"3", 2),
        (5, b"5", 4),
        (6, b"6", 4),
        (18, b"18", 1),
        (19, b"19", 1),
        (20, b"20", 1),
        (21, b"21", 1),
    ]
    assert ranges(found) == [(3, bytes([OPEN])), (5, bytes([OPEN] * 2)), (18, bytes([OPEN] * 4))]


def test_offsets_that_compaction_took_and_control_records_are_gaps() -> None:
    marker = marker_batch(
        producer_id=1, producer_epoch=0, is_commit=True, coordinator_epoch=0, timestamp_ms=0, base_offset=4
    )
    found = read(batch(0, 3, missing=(1, 2)) + marker + batch(5, 6), (0, 6, 1))
    assert [offset for offset, _, _ in given(found)] == [0, 3, 5, 6]
    assert ranges(found) == [(0, bytes([OPEN, GAP, GAP, OPEN, GAP, OPEN, OPEN]))]


def test_a_range_between_two_batches_consists_of_gaps() -> None:
    found = read(batch(0, 1) + batch(5, 6), (2, 4, 1))
    assert (given(found), ranges(found)) == ([], [(2, bytes([GAP] * 3))])


def test_a_batch_with_a_wrong_crc_is_rejected_and_the_others_are_given() -> None:
    damaged = bytearray(batch(2, 3))
    damaged[-1] ^= 1
    found = read(batch(0, 1) + bytes(damaged) + batch(4, 5), (0, 5, 1))
    assert [offset for offset, _, _ in given(found)] == [0, 1, 4, 5]
    assert ranges(found) == [(0, bytes([OPEN, OPEN, REJECT, REJECT, OPEN, OPEN]))]
    assert found.damage is not None
    assert "CRC" in found.damage


def test_offsets_whose_records_did_not_come_are_released_and_no_gaps() -> None:
    found = read(batch(0, 1) + batch(2, 3)[:-5], (0, 3, 1))
    assert [offset for offset, _, _ in given(found)] == [0, 1]
    assert ranges(found) == [(0, bytes([OPEN] * 2)), (2, bytes([RELEASE] * 2))]
    assert ranges(read(b"", (5, 6, 1))) == [(5, bytes([RELEASE] * 2))]


@pytest.mark.parametrize(("first", "last"), [(5, 4), (0, MAX_OFFSETS)])
def test_ranges_that_cannot_be_are_damage(first: int, last: int) -> None:
    found = read(batch(0, 1), (first, last, 1))
    assert (ranges(found), given(found)) == ([], [])
    assert found.damage is not None
