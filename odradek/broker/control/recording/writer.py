"""Blocks of a recording on their way into a file, or to whoever reads it; loop thread only.

A thread compresses and writes those of a file, one after the other. Entries are in order: what the loop itself writes
comes behind all that the thread was given.
"""

from __future__ import annotations

import logging
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.runtime.workers import JobResult, ThreadWorkers
from odradek.protocol.compression import Compression
from odradek.protocol.recording import PackedEntries, pack_block

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

log = logging.getLogger("odradek.recording")

LACKS: Final = "the recording lacks what could not be written: %s"


class RecordingOutput(Protocol):
    """Receives the head and the blocks of a recording, of the loop or of a thread, one after the other."""

    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class RecordingWriter:
    """is_busy: the thread has not written what it was given"""

    def __init__(
        self,
        output: RecordingOutput,
        head: bytes,
        loop: asyncio.AbstractEventLoop,
        compression: Compression,
        wrote: Callable[[], None],
    ) -> None:
        """
        compression  in a thread; with NONE, the loop itself hands blocks to `output`, which must not wait
        wrote        called when the thread has

        Raises OSError where the head cannot be written.
        """
        self._output = output
        self._compression = compression
        self._wrote = wrote
        self._workers = ThreadWorkers(loop, 1, "recorder")
        self._lock = Lock()  # of what is handed over, and of the output
        self._handed_over: PackedEntries | None = None  # to the thread, which has not begun with it
        self.is_busy = False
        output.write(head)
        output.flush()

    def hand_over(self, entries: PackedEntries) -> None:
        """Writes them beside the loop. Only while it is not busy."""
        if self._compression is Compression.NONE:
            self.write(entries)
            return
        self.is_busy = True
        self._handed_over = entries
        self._workers.run(self._write_handed_over, self._has_written)

    def write(self, entries: PackedEntries) -> None:
        try:
            self._write_here(entries)
        except OSError as error:
            log.error(LACKS, error)

    def close(self, entries: PackedEntries) -> None:
        """Writes the last ones. Raises OSError."""
        self._workers.close()
        self._write_here(entries)
        self._output.close()

    def _has_written(self, result: JobResult[None]) -> None:
        self.is_busy = False
        try:
            result.result()
        except OSError as error:
            log.error(LACKS, error)
        self._wrote()

    def _write_handed_over(self) -> None:
        with self._lock:
            entries, self._handed_over = self._handed_over, None
            self._write(entries)

    def _write_here(self, entries: PackedEntries) -> None:
        with self._lock:
            earlier, self._handed_over = self._handed_over, None
            self._write(earlier)
            self._write(entries)

    def _write(self, entries: PackedEntries | None) -> None:
        if entries is not None and entries.size_bytes:
            self._output.write(pack_block(entries.pack(), self._compression))
            self._output.flush()
