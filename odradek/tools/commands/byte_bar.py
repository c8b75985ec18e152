"""How far a command has come that reads a known number of bytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

EVERY_S = 0.2
PATIENCE_S = 1.0
_CELLS = 30
_NEVER = float("inf")


class ByteBar:
    """A line on a terminal, once the work has taken a second; wiped out in the end. Other streams get nothing."""

    def __init__(self, size_bytes: int, to: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._size_bytes = max(size_bytes, 1)
        self._to = to
        self._clock = clock
        self._done_bytes = 0
        self._is_drawn = False
        self._begun = clock()
        self._next_at = self._begun + PATIENCE_S if to.isatty() else _NEVER
        self.seconds = 0.0  # of the whole work, when it is done

    def __enter__(self) -> ByteBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = self._clock() - self._begun
        if self._is_drawn:
            self._write("\r\x1b[K")

    def add(self, name: str, size_bytes: int) -> None:
        """name: of what is being read"""
        self._done_bytes += size_bytes
        now = self._clock()
        if now < self._next_at:
            return
        self._next_at, self._is_drawn = now + EVERY_S, True
        share = min(1.0, self._done_bytes / self._size_bytes)
        filled = round(share * _CELLS)
        rate = self._done_bytes / (now - self._begun) / 1e9
        line = (
            f"{'█' * filled}{'░' * (_CELLS - filled)}  {share:4.0%}  {self._done_bytes / 1e9:.1f} GB, {rate:.1f} GB/s"
        )
        self._write(f"\r{line}  {name}\x1b[K")

    def _write(self, text: str) -> None:
        self._to.write(text)
        self._to.flush()
