"""Tests reads whose bytes are sent by the kernel. A large read returns a reference to a part of the file instead of the
bytes."""

import pytest

from odradek.protocol.records import NewRecord, build_batch
from odradek.storage.disk import WouldBlock
from odradek.storage.log_reader import MIN_SENT_BYTES, ReadResult
from odradek.storage.segment import MIN_SLICE_BYTES
from odradek.storage.staging import TailCache
from tests.support.log_builder import NOW_MS, LogOnDisk

HALF_SLICE = NewRecord(None, bytes(MIN_SLICE_BYTES // 2), NOW_MS)


def large_log(*, cached: bool) -> LogOnDisk:
    """Returns a log that is about twice as large as the smallest read that the kernel sends. Its records are in the
    tail cache if `cached` is set, and otherwise only in the files."""
    given = LogOnDisk()
    given.directory._tail_cache = TailCache() if cached else TailCache(0)
    given.log = given.directory.create_log("u", 0, None, given.log.config, now_ms=NOW_MS)
    for _ in range(4 * MIN_SENT_BYTES // MIN_SLICE_BYTES):
        given.log.append(build_batch([HALF_SLICE]), now_ms=NOW_MS)
        given.log.write_staged()
    return given


def content(result: ReadResult) -> bytes:
    return b"".join(result.chunks) if result.in_file is None else bytes(result.in_file.read())


@pytest.mark.parametrize(("cached", "min_bytes"), [(False, MIN_SLICE_BYTES), (True, MIN_SENT_BYTES)])
@pytest.mark.parametrize("start", [0, 1])
def test_large_reads_stay_in_the_file_and_hold_the_same_bytes(start: int, cached: bool, min_bytes: int) -> None:
    reader = large_log(cached=cached).log.reader
    for size_bytes in (min_bytes - 1, min_bytes):
        read = reader.read(start, max_bytes=size_bytes)
        sent = reader.read(start, max_bytes=size_bytes, is_sent=True)
        assert (sent.in_file is not None) is (size_bytes >= min_bytes)
        assert (sent.size_bytes, sent.end_offset) == (read.size_bytes, read.end_offset)
        assert content(sent) == content(read)


def test_nobody_gets_a_place_in_a_file_without_asking() -> None:
    assert large_log(cached=False).log.reader.read(0, max_bytes=MIN_SENT_BYTES).in_file is None


def test_cold_records_are_left_to_a_thread_which_reads_them() -> None:
    given = large_log(cached=False)
    given.disk.evict()
    with pytest.raises(WouldBlock):
        given.log.reader.read(0, max_bytes=MIN_SENT_BYTES, is_sent=True)
    assert given.log.reader.read_cold(0, max_bytes=MIN_SENT_BYTES).in_file is None


def test_cold_records_that_memory_holds_are_sent_from_there() -> None:
    given = large_log(cached=True)
    given.disk.evict()
    result = given.log.reader.read(0, max_bytes=MIN_SENT_BYTES, is_sent=True)
    assert result.in_file is None
    assert result.size_bytes == MIN_SENT_BYTES
