"""Selects and describes batches without decoding their records.

`visible_batches` selects the batches that a reader sees: no control batches, no aborted transactions, and nothing
outside the reader's offsets. `read_headers` reads batch headers into columns, with one row per batch.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from odradek.client.consuming.fetched import AbortedFilter
from odradek.protocol.batch_header import (
    CONTROL,
    HEADER_BYTES,
    LOG_OVERHEAD,
    TRANSACTIONAL,
    BatchHeader,
    batches,
    crc_ok,
)
from odradek.protocol.control_records import ControlType, read_marker
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.fetch_response import AbortedTransaction

Buffer: TypeAlias = bytes | bytearray | memoryview


class CorruptBatch(MalformedMessage):
    """Raised for a batch with a wrong CRC. The message contains the batch's offsets."""


def visible_batches(
    data: Buffer,
    aborted: Iterable[AbortedTransaction],
    start_offset: int | None = None,
    end_offset: int | None = None,
    *,
    check_crcs: bool = True,
) -> Iterator[tuple[int, BatchHeader]]:
    """Yields the position and header of each batch with visible records, in the order of the log.

    The first and the last batch may also contain records outside [start_offset, end_offset). If `aborted` is empty, no
    transaction is left out, as with read_uncommitted. Raises CorruptBatch, and MalformedMessage for bytes that are not
    a batch. A batch that is cut short at the end of `data` is left out.
    """
    filter_ = AbortedFilter(aborted)
    for position, header in batches(data):
        if end_offset is not None and header.base_offset >= end_offset:
            return
        if header.is_control:
            filter_.hides(header, _marker_type(data, position, header))
            continue
        if filter_.hides(header, None) or not header.record_count:
            continue
        if start_offset is not None and header.last_offset < start_offset:
            continue
        if check_crcs and not crc_ok(data, position, header.size_bytes):
            raise CorruptBatch(f"the CRC of the batch of offsets {header.base_offset} to {header.last_offset} is wrong")
        yield position, header


def _marker_type(data: Buffer, position: int, header: BatchHeader) -> ControlType | None:
    marker = read_marker(data, position, header)
    if marker is None:
        return None
    return ControlType.COMMIT if marker.is_commit else ControlType.ABORT


_HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
assert _HEADER.itemsize == HEADER_BYTES

HEADER_SCHEMA = pa.schema(
    [
        ("position", pa.int64()),  # position of the batch in the data
        ("base_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("size_bytes", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("crc", pa.uint32()),
        ("compression", pa.int8()),
        ("is_transactional", pa.bool_()),
        ("is_control", pa.bool_()),
        ("base_timestamp", pa.int64()),
        ("max_timestamp", pa.int64()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int16()),
        ("base_sequence", pa.int32()),
        ("record_count", pa.int32()),
    ]
)


def header_array(data: Buffer) -> tuple[NDArray[np.int64], NDArray[np.void]]:
    """Returns the positions of all complete batches, and their headers as a structured array with the field names of
    `_HEADER`.

    A batch that is cut short at the end is left out. Raises MalformedMessage for any other damage.
    """
    positions = np.fromiter((position for position, _ in batches(data)), dtype=np.int64)
    rows = np.frombuffer(data, dtype=np.uint8)[positions[:, None] + np.arange(HEADER_BYTES)]
    return positions, np.ascontiguousarray(rows).view(_HEADER).reshape(-1)


def read_headers(data: Buffer) -> pa.Table:
    """Returns a table with one row per complete batch of `data`, in the format HEADER_SCHEMA. Neither CRCs nor records
    are checked.

    Raises MalformedMessage for bytes that are not a batch. A batch that is cut short at the end is left out.
    """
    if len(data) == 0:
        return HEADER_SCHEMA.empty_table()
    positions, header = header_array(data)
    attributes = header["attributes"].astype(np.int16)
    columns = {
        "position": positions,
        "last_offset": header["base_offset"].astype(np.int64) + header["last_offset_delta"],
        "size_bytes": header["batch_length"].astype(np.int32) + LOG_OVERHEAD,
        "compression": (attributes & 7).astype(np.int8),
        "is_transactional": attributes & TRANSACTIONAL != 0,
        "is_control": attributes & CONTROL != 0,
    }
    return pa.table(
        [
            pa.array(columns[field.name] if field.name in columns else _native(header[field.name]), type=field.type)
            for field in HEADER_SCHEMA
        ],
        schema=HEADER_SCHEMA,
    )


def _native(column: NDArray[np.generic]) -> NDArray[np.generic]:
    return column.astype(column.dtype.newbyteorder("="))
