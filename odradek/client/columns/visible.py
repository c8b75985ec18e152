"""Which batches of a log a reader sees: no control batches, no aborted transactions, nothing outside its offsets."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from odradek.client.consuming.fetched import AbortedFilter
from odradek.protocol.batch_header import BatchHeader, batches, crc_ok
from odradek.protocol.control_records import ControlType, read_marker
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.fetch_response import AbortedTransaction

Buffer: TypeAlias = bytes | bytearray | memoryview


class CorruptBatch(MalformedMessage):
    """A batch whose CRC does not hold; the message names its offsets."""


def visible_batches(
    data: Buffer,
    aborted: Iterable[AbortedTransaction],
    start_offset: int | None = None,
    end_offset: int | None = None,
    *,
    check_crcs: bool = True,
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch with visible records, in the order of the log.

    The first and the last one may hold records outside [start_offset, end_offset), too. Without `aborted` that is what
    read_uncommitted shows. Raises MalformedMessage where no batch begins, and CorruptBatch; a batch cut short at the
    end of `data` is left out.
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
