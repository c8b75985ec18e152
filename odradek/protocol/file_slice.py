"""Represents parts of a response that are in an open file instead of a buffer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from odradek.protocol.struct import Buffer


class SendableFile(Protocol):
    """The part of the `odradek.storage.disk.DiskFile` interface that is needed to send bytes."""

    def read_at(self, size_bytes: int, position: int) -> Buffer: ...
    def is_cached_at(self, size_bytes: int, position: int) -> bool: ...
    def send_to(self, descriptor: int, size_bytes: int, position: int) -> int: ...


@dataclass(slots=True)
class FileSlice:
    """`size_bytes` bytes of a file, starting at `position`. The file is kept open, so that the bytes can be sent even
    if the file is deleted in the meantime. The bytes never change, because they are below the high watermark."""

    file: SendableFile
    position: int
    size_bytes: int

    def __len__(self) -> int:
        return self.size_bytes

    def behind(self, sent_bytes: int) -> FileSlice:
        return FileSlice(self.file, self.position + sent_bytes, self.size_bytes - sent_bytes)

    def read(self) -> Buffer:
        """Returns the bytes. May block to read from disk."""
        return self.file.read_at(self.size_bytes, self.position)


Chunk: TypeAlias = Buffer | FileSlice  # a part of a response


def in_memory(chunks: Iterable[Chunk]) -> list[Buffer]:
    """Returns the chunks as buffers. Reads the chunks that are in files, which may block to read from disk."""
    return [chunk.read() if isinstance(chunk, FileSlice) else chunk for chunk in chunks]
