"""Streams a recording over HTTP while it is being made, for a judge running in a separate process.

Nothing is recorded without a reader. At most MAX_UNREAD_BYTES are buffered for a reader. If the reader is too slow, the
stream reports this and ends, because a gap in the recording would make the judge wrongly accuse clients.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Final

from aiohttp import web

from odradek.broker.control.problems import Problem
from odradek.broker.control.recording.recorder import Recorder
from odradek.protocol.compression import Compression
from odradek.protocol.recording import Kind, RecordingEntry, pack_block, pack_entries

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from odradek.broker.control.clusters.clusters import Cluster

log = logging.getLogger("odradek.recording")

MAX_UNREAD_BYTES: Final = 64 * 1024 * 1024
MAX_READERS: Final = 4  # maximum number of readers per cluster
CHECK_INTERVAL_S: Final = 0.5  # interval at which the reader's connection is checked while nothing is recorded


class UnreadBlocks:
    """A buffer for blocks between the recorder, which may run in a thread, and the reader. Implements
    `RecordingOutput`.

    left_out  number of bytes that were discarded because the buffer would have exceeded `max_bytes`
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, max_bytes: int = MAX_UNREAD_BYTES) -> None:
        self.left_out = 0
        self._loop = loop
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._blocks: list[bytes] = []
        self._bytes = 0
        self._is_there = asyncio.Event()

    def write(self, data: bytes) -> None:
        with self._lock:
            if self.left_out or self._bytes + len(data) > self._max_bytes:
                self.left_out += len(data)
            else:
                self._blocks.append(data)
                self._bytes += len(data)
        self._loop.call_soon_threadsafe(self._is_there.set)

    def flush(self) -> None:
        """Does nothing, because blocks are buffered only in this object."""

    def close(self) -> None:
        """Does nothing, so that the remaining blocks can still be read."""

    async def wait_for_blocks(self, timeout_s: float) -> bytes:
        """Waits for blocks and returns all of them. Returns no bytes if no block arrives within `timeout_s`."""
        try:
            await asyncio.wait_for(self._is_there.wait(), timeout_s)
        except TimeoutError:
            return b""
        return self.take_all()

    def take_all(self) -> bytes:
        """Removes and returns all blocks in the buffer."""
        with self._lock:
            blocks, self._blocks, self._bytes = self._blocks, [], 0
            self._is_there.clear()
        return b"".join(blocks)


async def send_recording(
    cluster: Cluster, request: web.Request, headers: Mapping[str, str], is_there: Callable[[], bool]
) -> web.StreamResponse:
    """Answers a request with a recording that lasts until the reader disconnects or is too slow, or until the cluster
    is removed. Raises Problem.

    With `?records=false`, only the headers of large record batches are recorded, since the judge's rules do not read
    records.
    """
    keeps_records = request.query.get("records", "true")
    if keeps_records not in ("true", "false"):
        raise Problem(400, "records must be true or false", field="records")
    if len(cluster.faults.recorders) >= MAX_READERS:
        raise Problem(409, f"a cluster sends at most {MAX_READERS} recordings at a time: close one of them first")
    loop = asyncio.get_running_loop()
    unread = UnreadBlocks(loop)
    recorder = Recorder(unread, loop, compression=Compression.NONE, keeps_records=keeps_records == "true")
    cluster.faults.recorders.append(recorder)
    try:
        cluster.faults.install()
        response = web.StreamResponse(headers=headers)
        with suppress(ConnectionResetError):
            await response.prepare(request)
            await pass_on(recorder, unread, response.write, is_there, lambda: _is_read(request))
        return response
    finally:
        cluster.faults.recorders.remove(recorder)
        cluster.faults.install()
        if not recorder.is_closed:
            recorder.close()


async def pass_on(
    recorder: Recorder,
    unread: UnreadBlocks,
    write: Callable[[bytes], Awaitable[None]],
    is_there: Callable[[], bool],
    is_read: Callable[[], bool],
    check_interval_s: float = CHECK_INTERVAL_S,
) -> None:
    """Passes blocks from the recorder to the reader until the reader disconnects or is too slow, or until the cluster
    is removed."""
    while is_read():
        blocks = await unread.wait_for_blocks(check_interval_s)
        if blocks:
            await write(blocks)
        elif not is_there():
            recorder.close()  # writes the cluster's last exchanges, which are not yet in a block
            await write(unread.take_all())
            break
        if unread.left_out:
            await write(_ending(unread.left_out))
            break


def _is_read(request: web.Request) -> bool:
    return request.transport is not None and not request.transport.is_closing()


def _ending(left_out: int) -> bytes:
    why = f"the reader was too slow: {left_out} bytes of the recording were left out"
    log.warning("%s", why)
    return pack_block(pack_entries([RecordingEntry(Kind.EVENT, 0, 0, 0, json.dumps({"ended": why}).encode())]))
