"""The offsets and bytes of log batches for share fetches. Only batch headers are read and no records are decoded.
Reading stops at the last offset that the member may acquire.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odradek.protocol.batch_header import CONTROL, HEADER_BYTES, LOG_OVERHEAD, TRANSACTIONAL, unpack_batch_header
from odradek.protocol.control_records import read_marker
from odradek.protocol.struct import Buffer


class LogBatch(NamedTuple):
    """A log batch. `chunk` is the index of the chunk that contains it; `start` and `end` are the batch's position in
    the chunk."""

    first_offset: int
    last_offset: int
    chunk: int
    start: int
    end: int


class LogBatches:
    """The complete batches at the beginning of a read result, up to the batch that contains `until_offset`.

    A batch that is cut off at the end of the result is ignored; the next read begins with it.
    """

    def __init__(self, chunks: Sequence[Buffer], from_offset: int, until_offset: int) -> None:
        self._chunks = chunks
        self._batches: list[LogBatch] = []
        for index, chunk in enumerate(chunks):
            if not self._walk(index, chunk, from_offset, until_offset):
                break

    def _walk(self, index: int, chunk: Buffer, from_offset: int, until_offset: int) -> bool:
        start, size = 0, len(chunk)
        while size - start >= HEADER_BYTES:
            header = unpack_batch_header(chunk, start)
            end = start + header.batch_length + LOG_OVERHEAD
            if end > size:
                return False
            last_offset = header.base_offset + header.last_offset_delta
            if last_offset >= from_offset:
                self._batches.append(LogBatch(header.base_offset, last_offset, index, start, end))
            if last_offset >= until_offset:
                return False
            start = end
        return start == size

    def offsets(self) -> list[tuple[int, int]]:
        return [(each.first_offset, each.last_offset) for each in self._batches]

    def bytes_of(self, first_offset: int, last_offset: int) -> list[Buffer]:
        """Returns the batches that contain any of these offsets, in as few pieces as the chunks allow."""
        pieces: list[Buffer] = []
        chunk, start, end = -1, 0, 0
        for batch in self._batches:
            if batch.last_offset < first_offset or batch.first_offset > last_offset:
                continue
            if batch.chunk == chunk and batch.start == end:
                end = batch.end
                continue
            if chunk >= 0:
                pieces.append(memoryview(self._chunks[chunk])[start:end])
            chunk, start, end = batch.chunk, batch.start, batch.end
        if chunk >= 0:
            pieces.append(memoryview(self._chunks[chunk])[start:end])
        return pieces

    def aborted(self, transactions: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Returns the offsets of data batches that belong to aborted transactions, as inclusive ranges in ascending
        order.

        transactions  (producer id, first offset) of the aborted transactions that the log reports for this read
        """
        if not transactions:
            return []
        waiting = sorted(transactions, key=lambda each: each[1], reverse=True)
        open_producers: set[int] = set()
        found: list[tuple[int, int]] = []
        for batch in self._batches:
            while waiting and waiting[-1][1] <= batch.last_offset:
                open_producers.add(waiting.pop()[0])
            chunk = self._chunks[batch.chunk]
            header = unpack_batch_header(chunk, batch.start)
            if header.producer_id not in open_producers:
                continue
            if header.attributes & CONTROL:
                marker = read_marker(chunk, batch.start, header)
                if marker is not None and not marker.is_commit:
                    open_producers.discard(header.producer_id)
            elif header.attributes & TRANSACTIONAL:
                if found and found[-1][1] + 1 == batch.first_offset:
                    found[-1] = (found[-1][0], batch.last_offset)
                else:
                    found.append((batch.first_offset, batch.last_offset))
        return found
