"""Reads a segment batch by batch for recovery and checks CRCs to find the valid part."""

from collections.abc import Iterator
from typing import Final

from odradek.files.indexes import MAX_RELATIVE_OFFSET
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import HEADER_BYTES, BatchHeader, crc_ok, read_batch_header
from odradek.storage.segment import Segment

_PORTION_BYTES: Final = 1024 * 1024


def whole_batches(segment: Segment, first_offset: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yields the position, header and bytes of each batch from the start of the file up to the first invalid batch.

    first_offset  minimum base offset of the first batch; later offsets must ascend

    Every byte is read once. The bytes of a batch are only valid until the next batch is requested. The iteration ends
    the same way at an incomplete batch, zeros, a wrong CRC and the end of the file, so the caller must distinguish
    these cases by the last position and the recovery point.
    """
    position, size_bytes = 0, segment.size_bytes
    portion, portion_position = memoryview(b""), 0

    def read(wanted_bytes: int) -> memoryview:
        # Do not read beyond the initial size. The caller may be rebuilding the segment, which changes
        # `segment.size_bytes`.
        return memoryview(segment.read(min(wanted_bytes, size_bytes - position), position, cached=False))

    while position + HEADER_BYTES <= size_bytes:
        at = position - portion_position
        if at + HEADER_BYTES > len(portion):
            portion, portion_position, at = read(_PORTION_BYTES), position, 0
        try:
            header = read_batch_header(portion, at)
        except MalformedMessage:
            return
        batch_bytes = header.size_bytes
        if position + batch_bytes > size_bytes or header.base_offset < first_offset or header.last_offset_delta < 0:
            return
        if header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            return
        if at + batch_bytes > len(portion):
            portion, portion_position, at = read(max(batch_bytes, _PORTION_BYTES)), position, 0
        if at + batch_bytes > len(portion) or not crc_ok(portion, at, batch_bytes):
            return
        yield position, header, portion[at : at + batch_bytes]
        position += batch_bytes
        first_offset = header.next_offset
