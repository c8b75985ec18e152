"""Writes a recording's blocks to a file or to a reader. Must be called in the event loop's thread.

A single thread compresses and writes the blocks of a file. To preserve the order of the entries, the event loop writes
a block only after the entries that the thread has received but not started to write.
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

LACKS: Final = "the recording is incomplete, because it could not be written: %s"


class RecordingOutput(Protocol):
    """Receives the head and the blocks of a recording in order. Called by the event loop or by a thread."""

    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class RecordingWriter:
    """Writes blocks to an output. If blocks are compressed, a thread writes them.

    is_busy  whether the thread is still writing a block
    """

    def __init__(
        self,
        output: RecordingOutput,
        head: bytes,
        loop: asyncio.AbstractEventLoop,
        compression: Compression,
        wrote: Callable[[], None],
    ) -> None:
        """Creates a writer and writes the head of the recording.

        compression  how a thread compresses the blocks. With NONE, the event loop itself calls `output`, which must
                     then not block
        wrote        called when the thread has written a block

        Raises OSError if the head cannot be written.
        """
        self._output = output
        self._compression = compression
        self._wrote = wrote
        self._workers = ThreadWorkers(loop, 1, "recorder")
        self._lock = Lock()  # guards `_handed_over` and the output
        self._handed_over: PackedEntries | None = None  # entries that the thread has not started to write
        self.is_busy = False
        output.write(head)
        output.flush()

    def hand_over(self, entries: PackedEntries) -> None:
        """Passes a block of entries to the thread for writing. Must not be called while `is_busy` is true."""
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
        """Writes the last entries and closes the output. Raises OSError."""
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
