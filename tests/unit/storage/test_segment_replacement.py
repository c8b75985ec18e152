"""Tests that compacted segments replace the old ones either completely or not at all, even if the broker crashes during
any disk operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from odradek.protocol.records import batches
from odradek.storage.log import Log
from odradek.storage.log_config import LogConfig
from odradek.storage.segment import Segment
from odradek.storage.segment_removal import SegmentReplacement
from tests.support.fake_disk import FakeDisk, ProcessCrashed
from tests.support.log_builder import NOW_MS, LogOnDisk, offsets

BATCH_BYTES = 76
CONFIG = LogConfig(segment_bytes=2 * BATCH_BYTES, cleanup_policy=frozenset({"compact"}))
OLD = [0, 1, 2, 3, 4, 5, 6]
NEW = [1, 3, 4, 5, 6]


def four_segments() -> LogOnDisk:
    """Returns a log with segments at base offsets 0, 2, 4 and 6. All segments except the last are synced, as compaction
    requires."""
    given = LogOnDisk(config=CONFIG)
    for _ in range(7):
        given.append()
    given.sync()
    given.directory.write_checkpoints()
    return given


def cleaned(given: LogOnDisk, keep: list[int], base_offset: int) -> Segment:
    """Returns a `.cleaned` segment with the batches at the offsets in `keep`. The segment and its indexes are durable,
    as after a cleaning pass."""
    segment = Segment.new(given.disk, given.log.directory, base_offset, now_ms=NOW_MS, file_suffix=".cleaned")
    segment.create_file()
    for portion in given.log.reader.scan(0):
        for position, header in batches(portion):
            if header.base_offset in keep:
                at = segment.size_bytes
                segment.file.write_at([portion[position : position + header.size_bytes]], at)
                segment.note_batch(at, header, CONFIG.index_interval_bytes)
    segment.seal_time_index()
    segment.file.sync()
    for path, data in segment.index_files():
        given.disk.write_bytes(path, data)
        given.disk.open(path).sync()
    given.disk.sync_directory(given.log.directory)
    return segment


def one_for_two(given: LogOnDisk) -> SegmentReplacement:
    new = [cleaned(given, [1, 3], 0)]
    return SegmentReplacement(given.disk, given.log.directory, new, given.log.segments[:2])


def two_for_two(given: LogOnDisk) -> SegmentReplacement:
    new = [cleaned(given, [1], 0), cleaned(given, [3], 3)]
    return SegmentReplacement(given.disk, given.log.directory, new, given.log.segments[:2])


SHAPES: list[Callable[[LogOnDisk], SegmentReplacement]] = [one_for_two, two_for_two]


def replace(given: LogOnDisk, replacement: SegmentReplacement) -> None:
    replacement.prepare()
    assert given.log.replace_segments(replacement)
    replacement.finish()
    replacement.unlink()


@pytest.mark.parametrize("shape", SHAPES)
def test_readers_see_the_new_segments_and_so_does_the_next_start(
    shape: Callable[[LogOnDisk], SegmentReplacement],
) -> None:
    given = four_segments()
    replace(given, shape(given))
    assert offsets(given.log) == NEW
    assert offsets(given.closed_and_opened().log) == NEW
    names = given.disk.list_directory("/data/t-0")
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_a_reader_of_a_replaced_segment_can_continue() -> None:
    given = four_segments()
    old = given.log.segments[1]
    replace(given, one_for_two(given))
    assert len(old.read(2 * BATCH_BYTES, 0, cached=False)) == 2 * BATCH_BYTES


def test_segments_that_retention_took_meanwhile_are_not_brought_back() -> None:
    given = four_segments()
    replacement = one_for_two(given)
    replacement.prepare()
    given.log.delete_records_before(2)
    removal = given.log.retention(NOW_MS)
    assert removal is not None
    assert not given.log.replace_segments(replacement)
    replacement.discard()
    removal.rename()
    assert offsets(given.log) == offsets(given.killed_and_opened().log) == [2, 3, 4, 5, 6]


def test_nothing_is_replaced_while_a_sync_may_be_writing_to_it() -> None:
    given = four_segments()
    replacement = one_for_two(given)
    replacement.prepare()
    ticket = given.log.start_sync()
    assert not given.log.replace_segments(replacement)
    ticket.run()
    given.log.finish_sync(ticket)
    assert given.log.replace_segments(replacement)


def crashes(shape: Callable[[LogOnDisk], SegmentReplacement]) -> Iterator[tuple[int, FakeDisk]]:
    call = 0
    while True:
        call += 1
        given = four_segments()
        given.disk.crash_before(call)
        try:
            replace(given, shape(given))
        except ProcessCrashed:
            yield call, given.disk
        else:
            return


@pytest.mark.parametrize("shape", SHAPES)
def test_after_a_crash_the_log_is_the_old_or_the_new_one(shape: Callable[[LogOnDisk], SegmentReplacement]) -> None:
    seen = set()
    for call, disk in crashes(shape):
        states = [("killed", disk.after_kill()), *((s.name, s.disk) for s in disk.after_power_failure(call))]
        for name, left in states:
            log = LogOnDisk(left, CONFIG).log
            found = tuple(offsets(log))
            assert found in (tuple(OLD), tuple(NEW)), f"call {call}, {name}: {found}"
            seen.add(found)
            assert read_one_by_one(log) == list(found)
    assert seen == {tuple(OLD), tuple(NEW)}


def read_one_by_one(log: Log) -> list[int]:
    """Returns the offsets of all records. Reads one batch at a time and finds each batch through the offset index."""
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = b"".join(log.reader.read_cold(offset, max_bytes=1).chunks)
        if not data:
            break
        header = next(iter(batches(data)))[1]
        found += range(header.base_offset, header.next_offset)
        offset = header.next_offset
    return found
