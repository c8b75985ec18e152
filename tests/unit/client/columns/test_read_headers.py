"""Tests that the columns of batch headers have one row per batch, and the same values as
`odradek.protocol.batch_header`."""

import pytest

from odradek.client.columns import HEADER_SCHEMA, read_headers
from odradek.protocol.control_records import marker_batch
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import Compression, NewRecord, batches, build_batch


def test_rows_are_the_headers() -> None:
    records = [NewRecord(b"k", b"v" * 100, 1000), NewRecord(b"k", b"w", 2000)]
    data = bytes(
        build_batch(records, base_offset=10, compression=Compression.ZSTD, leader_epoch=4)
        + build_batch(records, base_offset=12, producer_id=5, producer_epoch=6, base_sequence=7, is_transactional=True)
        + marker_batch(
            producer_id=5, producer_epoch=6, is_commit=True, coordinator_epoch=0, timestamp_ms=9, base_offset=14
        )
    )
    table = read_headers(data + data[:70])
    assert table.schema == HEADER_SCHEMA
    assert table.to_pylist() == [
        {
            "position": position,
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "size_bytes": header.size_bytes,
            "leader_epoch": header.leader_epoch,
            "crc": header.crc,
            "compression": header.compression.value,
            "is_transactional": header.is_transactional,
            "is_control": header.is_control,
            "base_timestamp": header.base_timestamp,
            "max_timestamp": header.max_timestamp,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "record_count": header.record_count,
        }
        for position, header in batches(data)
    ]


def test_empty_bytes_have_no_rows() -> None:
    assert read_headers(b"").num_rows == 0
    assert read_headers(b"\0" * 20).num_rows == 0


def test_bytes_that_are_no_batches_are_refused() -> None:
    with pytest.raises(MalformedMessage):
        read_headers(b"\1" * 100)
