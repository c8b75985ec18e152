"""Defines responses that are sent in pieces, each in its own turn of the event loop. Only controlled brokers send such
responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from odradek.protocol.file_slice import Chunk, FileSlice
from odradek.protocol.struct import Buffer

STEP_MS: Final = 100.0
# A function that divides a response of a given size into pieces. It yields the delay before each piece, in ms, and the
# end position of the piece.
Pieces: TypeAlias = Callable[[int], Iterator[tuple[float, int]]]


class _NoFile:
    def read_at(self, size_bytes: int, position: int) -> Buffer:
        return b""

    def is_cached_at(self, size_bytes: int, position: int) -> bool:
        return True

    def send_to(self, descriptor: int, size_bytes: int, position: int) -> int:
        return 0


class PacedAnswer(list[Chunk]):
    """A response's chunks, and a function that divides it into pieces. An empty FileSlice follows the chunks.
    Connections look for file slices anyway, so ordinary responses need no additional check for this class."""

    def __init__(self, chunks: Iterable[Chunk], pieces: Pieces) -> None:
        super().__init__([*chunks, FileSlice(_NoFile(), 0, 0)])
        self.pieces = pieces


def cut_at(position: int) -> Pieces:
    """Returns a function that divides a response into two pieces and sends the second piece right after the first."""
    return lambda size: iter(((0.0, position), (0.0, size)))


def pieces_at_rate(bytes_per_s: int) -> Pieces:
    """Returns a function that divides a response into pieces and delays them so that the response is sent at this
    rate."""
    step_ms = max(STEP_MS, 1000 / bytes_per_s)

    def pieces(size: int) -> Iterator[tuple[float, int]]:
        left, passed_ms = 0, 0.0
        while left < size:
            passed_ms += step_ms
            end = min(size, int(passed_ms * bytes_per_s / 1000))
            wait_ms = step_ms if end < size else step_ms - (passed_ms - size * 1000 / bytes_per_s)
            left = end
            yield wait_ms, end

    return pieces
