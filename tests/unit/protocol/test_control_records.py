"""Tests transaction markers and the other control records."""

import pytest

from odradek.protocol.batch_header import crc_ok, read_batch_header
from odradek.protocol.control_records import (
    ControlType,
    Marker,
    control_type,
    leader_change_batch,
    marker_batch,
    read_marker,
    sealed_marker,
)
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import NewRecord, build_batch
from tests.support.batches import NOW_MS, changed, good_batch


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_takes_78_bytes_and_is_read_again(is_commit: bool) -> None:
    batch, header = sealed_marker(
        producer_id=4, producer_epoch=9, is_commit=is_commit, coordinator_epoch=3, timestamp_ms=NOW_MS, base_offset=50
    )
    assert len(batch) == 78
    assert crc_ok(batch, 0, 78)
    assert header == read_batch_header(batch)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert read_marker(batch) == Marker(50, 4, 9, is_commit, 3, NOW_MS)


def test_a_marker_is_byte_for_byte_kafkas() -> None:
    """Checks that the marker equals Kafka 4.3.1's marker at offset 2 of `ledger-0` in the recorded directory
    transactions-tv2."""
    batch = marker_batch(
        producer_id=0,
        producer_epoch=1,
        is_commit=True,
        coordinator_epoch=0,
        timestamp_ms=1795268526811,
        base_offset=2,
        leader_epoch=0,
    )
    assert read_batch_header(batch).crc == 1892765501


def test_a_leader_change_is_byte_for_byte_kafkas() -> None:
    """Checks that the batch equals Kafka's batch at offset 0 of the metadata log in the recorded directory
    plain-4.3.1."""
    batch = leader_change_batch(leader_id=1, voter_ids=[1], timestamp_ms=1795271352567, base_offset=0, leader_epoch=1)
    assert len(batch) == 91
    assert read_batch_header(batch).crc == 886977018
    assert read_marker(batch) is None


def test_a_control_batch_without_records_has_no_marker() -> None:
    empty = changed(good_batch()[:61], batch_length=49, record_count=0, attributes=0x30)
    assert read_marker(empty) is None


def test_newer_versions_and_further_bytes_are_read_over() -> None:
    newer = build_batch(
        [NewRecord(b"\0\1\0\1more", b"\0\2\0\0\0\7more", NOW_MS)], producer_id=1, producer_epoch=0, is_control=True
    )
    marker = read_marker(newer)
    assert marker is not None
    assert (marker.is_commit, marker.coordinator_epoch) == (True, 7)


def test_control_records_of_unknown_kinds_are_skipped() -> None:
    assert control_type(b"\0\0\0\x63") is None
    assert control_type(b"\0\0\0\x02") is ControlType.LEADER_CHANGE


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b""), (b"\0\0\0", b""), (b"\xff\xff\0\1", b""), (b"\0\0\0\1", None), (b"\0\0\0\1", b"\0\0\0\0\0"),
     (b"\0\0\0\1", b"\xff\xff\0\0\0\0")],
)  # fmt: skip
def test_a_marker_cut_short_is_malformed(key: bytes | None, value: bytes | None) -> None:
    batch = build_batch([NewRecord(key, value, NOW_MS)], producer_id=1, producer_epoch=0, is_control=True)
    with pytest.raises(MalformedMessage):
        read_marker(batch)
