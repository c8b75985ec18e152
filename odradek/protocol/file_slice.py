"""Bytes that an answer names by their place in an open file, in place of a buffer that holds them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from odradek.protocol.struct import Buffer


class SendableFile(Protocol):
    """`odradek.storage.disk.DiskFile`, as far as sending needs it."""

    def read_at(self, size_bytes: int, position: int) -> Buffer: ...
    def is_cached_at(self, size_bytes: int, position: int) -> bool: ...
    def send_to(self, descriptor: int, size_bytes: int, position: int) -> int: ...


@dataclass(slots=True)
class FileSlice:
    """`size_bytes` from `position` on. It keeps the file open, so that what is deleted meanwhile can still be sent; and
    these bytes never change, as they lie below the high watermark."""

    file: SendableFile
    position: int
    size_bytes: int

    def __len__(self) -> int:
        return self.size_bytes

    def behind(self, sent_bytes: int) -> FileSlice:
        return FileSlice(self.file, self.position + sent_bytes, self.size_bytes - sent_bytes)

    def read(self) -> Buffer:
        """May wait for the disk."""
        return self.file.read_at(self.size_bytes, self.position)


Chunk: TypeAlias = Buffer | FileSlice  # of an answer


def in_memory(chunks: Iterable[Chunk]) -> list[Buffer]:
    """The same bytes, with those read that are in files; may wait for the disk."""
    return [chunk.read() if isinstance(chunk, FileSlice) else chunk for chunk in chunks]
