"""What is left of an answer that has parts in files, and how the next of it has to be sent. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odradek.protocol.file_slice import Chunk, FileSlice
from odradek.protocol.struct import Buffer

MOST_BUFFERS: Final = 512  # in one call; IOV_MAX is 1024


class Unsent:
    """`next` until it is None; each time `sent` says how much of that has left, which may be less than all of it."""

    __slots__ = ("_at", "_chunks", "_sent_bytes")

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = chunks
        self._at = 0  # the first chunk that has not left as a whole
        self._sent_bytes = 0  # of that chunk

    def next(self) -> list[Buffer] | FileSlice | None:
        """Buffers that may be sent in one call, or a part in a file."""
        chunks, at, sent_bytes = self._chunks, self._at, self._sent_bytes
        if at == len(chunks):
            return None
        first = chunks[at]
        if isinstance(first, FileSlice):
            return first.behind(sent_bytes) if sent_bytes else first
        buffers: list[Buffer] = [memoryview(first)[sent_bytes:] if sent_bytes else first]
        for chunk in chunks[at + 1 : at + MOST_BUFFERS]:
            if isinstance(chunk, FileSlice):
                break
            buffers.append(chunk)
        return buffers

    def sent(self, size_bytes: int) -> None:
        chunks, at = self._chunks, self._at
        size_bytes += self._sent_bytes
        while at < len(chunks) and size_bytes >= len(chunks[at]):
            size_bytes -= len(chunks[at])
            at += 1
        self._at, self._sent_bytes = at, size_bytes
