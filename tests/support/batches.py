"""Builds valid and damaged record batches for tests, byte by byte."""

import struct
from collections.abc import Iterable

from odradek.protocol.batch_header import MAGIC, BatchHeader, computed_crc, pack_batch
from odradek.protocol.compression import Compression, compress
from odradek.protocol.records import NewRecord, append_record, append_varint, build_batch

NOW_MS = 1_700_000_000_000

# The position and format of each field of a batch. This intentionally repeats the layout in
# docs/formats/record-batch.md, so that the tests do not depend on the product's own table.
FIELDS = {
    "base_offset": (0, ">q"),
    "batch_length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}


def good_batch(count: int = 3, compression: Compression = Compression.NONE, now_ms: int = NOW_MS) -> bytearray:
    """Returns a batch with the keys k0, k1 … and the values v0, v1 …. Its timestamps are a millisecond apart and end at
    `now_ms`."""
    return build_batch(
        [NewRecord(b"k%d" % n, b"v%d" % n, now_ms - count + 1 + n) for n in range(count)], compression=compression
    )


def batch_by(
    producer: tuple[int, int],
    sequence: int,
    *values: bytes,
    key: bytes | None = b"k",
    at_ms: int = NOW_MS,
    transactional: bool = True,
    compression: Compression = Compression.NONE,
) -> bytearray:
    """Returns a batch with a record for each value.

    producer  producer id and epoch
    sequence  sequence number of the first record
    """
    return build_batch(
        [NewRecord(key, value, at_ms) for value in values],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        is_transactional=transactional,
        compression=compression,
    )


def changed(batch: bytes | bytearray, *, seal: bool = True, **fields: int) -> bytearray:
    """Returns a copy of the batch with the given values in its header fields. The CRC is recomputed unless `seal` is
    False or `fields` sets the CRC."""
    copy = bytearray(batch)
    for name, value in fields.items():
        at, packing = FIELDS[name]
        struct.pack_into(packing, copy, at, value)
    if seal and "crc" not in fields:
        struct.pack_into(">I", copy, FIELDS["crc"][0], computed_crc(copy, 0, len(copy)))
    return copy


def record(
    offset_delta: int = 0,
    timestamp_delta: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: Iterable[tuple[str, bytes | None]] = (),
) -> bytes:
    """Returns a record's bytes, including its length prefix."""
    out = bytearray()
    append_record(out, offset_delta, timestamp_delta, key, value, headers)
    return bytes(out)


def record_of(body: bytes) -> bytes:
    """Returns the given bytes as a record, prefixed with their correct length."""
    out = bytearray()
    append_varint(out, len(body))
    return bytes(out) + body


def batch_of(
    payload: bytes,
    count: int = 1,
    *,
    compression: Compression = Compression.NONE,
    is_packed: bool = False,
    base_timestamp: int = NOW_MS,
    max_timestamp: int | None = None,
    last_offset_delta: int | None = None,
) -> bytearray:
    """Returns a batch whose record bytes are `payload`. Compresses `payload` unless `is_packed` marks it as already
    compressed."""
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=compression.value,
        last_offset_delta=count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=base_timestamp if max_timestamp is None else max_timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )
    return pack_batch(header, payload if is_packed else compress(compression, payload))
