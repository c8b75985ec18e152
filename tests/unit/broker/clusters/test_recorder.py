"""Memory of a recorder is bounded: by writing on the loop, or by ending a recording that nobody reads fast enough."""

from __future__ import annotations

import asyncio
from io import BytesIO

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.clusters.live_recording import UnreadBlocks
from odradek.broker.clusters.recorder import Recorder
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.recording import Kind, Recording

CONNECTION = ConnectionInfo(1, "localhost", 1)
FRAME = memoryview(request_bytes(MetadataRequest(topics=[]), 12, 7, "a-client"))[4:]


class CountedWrites(BytesIO):
    """Counts writes, and stays readable."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, data: object, /) -> int:
        self.writes += 1
        return super().write(data)  # type: ignore[arg-type]

    def close(self) -> None:
        """What was written stays readable."""


async def test_more_than_may_wait_is_written_by_the_loop_itself_in_order_and_whole() -> None:
    disk = CountedWrites()
    recorder = Recorder(disk, asyncio.get_running_loop(), most_waiting_bytes=1000)
    for number in range(100):  # in one turn of the loop, so that no thread is given anything
        begun = recorder.begin(FRAME, CONNECTION, 1)
        assert begun is not None
        recorder.end(begun, [b"\0\0\0\x04\0\0\0\x07"] if number % 2 else None)
    assert disk.writes > 5  # the head, and what the loop wrote
    recorder.close()
    entries = list(Recording(BytesIO(disk.getvalue()).read).entries())
    assert [entry.exchange for entry in entries if entry.kind is Kind.RECEIVED] == list(range(1, 101))
    assert [entry.time_us for entry in entries] == sorted(entry.time_us for entry in entries)
    assert sum(entry.kind is Kind.ANSWERED for entry in entries) == 50


async def test_a_recorder_that_is_closed_leaves_connections_alone() -> None:
    connection = ConnectionInfo(1, "localhost", 1, sends_files=True)
    disk = CountedWrites()
    recorder = Recorder(disk, asyncio.get_running_loop())
    begun = recorder.begin(FRAME, connection, 1)
    assert begun is not None
    assert not connection.sends_files  # what a file sends, nobody sees
    recorder.close()
    written = disk.getvalue()
    recorder.end(begun, [b"\0\0\0\x04\0\0\0\x07"])
    assert recorder.begin(FRAME, connection, 1) is None
    connection.closed()
    assert connection.sends_files
    assert disk.getvalue() == written


async def test_a_reader_that_is_too_slow_is_told_how_much_it_missed() -> None:
    unread = UnreadBlocks(asyncio.get_running_loop(), most_bytes=10)
    unread.write(b"12345")
    unread.write(b"67890")
    unread.write(b"x")
    unread.write(b"y")  # nothing after a hole
    assert await unread.taken(1) == b"1234567890"
    assert unread.left_out == 2
    unread.write(b"z")
    assert unread.left_out == 3
