"""Tests which segments retention deletes, and when their files are removed from disk."""

from dataclasses import replace

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.storage.log_config import LogConfig
from tests.support.fake_disk import Fault
from tests.support.log_builder import LogOnDisk, offsets, refused

BATCH_BYTES = 76  # size of a batch with one plain record
CONFIG = LogConfig(segment_bytes=2 * BATCH_BYTES, retention_ms=None)


def segments(given: LogOnDisk) -> list[int]:
    return [segment.base_offset for segment in given.log.segments]


def five_segments(config: LogConfig = CONFIG) -> LogOnDisk:
    """Returns a log with segments at base offsets 0, 2, 4, 6 and 8. Record n has the timestamp n * 100 ms. The last
    segment is half full."""
    given = LogOnDisk(config=config)
    for at in range(9):
        given.append(timestamp=at * 100)
    assert segments(given) == [0, 2, 4, 6, 8]
    return given


def retained(given: LogOnDisk, **settings: object) -> list[int]:
    given.log.config = replace(CONFIG, **settings)  # type: ignore[arg-type]  # of that field
    removal = given.log.retention(10_000)
    if removal is not None:
        removal.rename()
        removal.unlink()
    return segments(given)


@pytest.mark.parametrize(
    ("batches", "left"),
    [(9, [0, 2, 4, 6, 8]), (8, [0, 2, 4, 6, 8]), (7, [2, 4, 6, 8]), (5, [4, 6, 8]), (2, [6, 8]), (1, [8]), (0, [9])],
)
def test_as_many_segments_go_as_leave_the_bytes_that_are_to_be_kept(batches: int, left: list[int]) -> None:
    assert retained(five_segments(), retention_bytes=batches * BATCH_BYTES) == left


@pytest.mark.parametrize(
    ("retention_ms", "left"), [(9_900, [0, 2, 4, 6, 8]), (9_899, [2, 4, 6, 8]), (9_500, [4, 6, 8]), (100, [9])]
)
def test_segments_go_whose_newest_record_is_older_than_the_time(retention_ms: int, left: list[int]) -> None:
    assert retained(five_segments(), retention_ms=retention_ms) == left


def test_a_young_segment_keeps_older_ones_behind_it() -> None:
    given = LogOnDisk(config=CONFIG)
    for timestamp in (9_000, 9_000, 100, 100, 100):
        given.append(timestamp=timestamp)
    assert retained(given, retention_ms=2_000) == [0, 2, 4]


def test_a_segment_without_timestamps_goes_by_the_age_of_its_file() -> None:
    given = LogOnDisk(config=CONFIG)
    for _ in range(3):
        given.append(timestamp=-1)
    given.disk.now_ms = 5_000
    assert retained(given, retention_ms=6_000) == [0, 2]
    assert retained(given, retention_ms=4_000) == [3]


def test_segments_below_the_log_start_are_removed_under_every_policy() -> None:
    given = five_segments()
    given.log.delete_records_before(5)
    assert retained(given, cleanup_policy=frozenset({"compact"})) == [4, 6, 8]
    assert given.log.log_start_offset == 5


def test_compacted_topics_are_not_cut_by_time_or_size() -> None:
    config = {"cleanup_policy": frozenset({"compact"}), "retention_bytes": 0, "retention_ms": 0}
    assert retained(five_segments(), **config) == [0, 2, 4, 6, 8]


def test_offsets_continue_after_all_records_were_deleted() -> None:
    given = five_segments()
    assert retained(given, retention_ms=0) == [9]
    assert (given.log.log_start_offset, given.log.log_end_offset) == (9, 9)
    assert given.append().base_offset == 9
    assert retained(given, retention_ms=None) == [9]


def test_an_empty_log_has_nothing_to_let_go() -> None:
    assert LogOnDisk(config=replace(CONFIG, retention_ms=0)).log.retention(10_000) is None


def test_the_log_starts_behind_what_went_and_that_is_out_of_range() -> None:
    given = five_segments()
    retained(given, retention_bytes=3 * BATCH_BYTES)
    assert given.log.log_start_offset == 6
    assert offsets(given.log) == [6, 7, 8]
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        given.log.reader.read(5, max_bytes=100)


def test_files_are_renamed_first_and_unlinked_later_snapshots_with_them() -> None:
    given = five_segments()
    given.sync()
    given.log.config = replace(CONFIG, retention_bytes=5 * BATCH_BYTES)
    removal = given.log.retention(10_000)
    assert removal is not None
    removal.rename()
    names = given.disk.list_directory("/data/t-0")
    assert f"{2:020d}.snapshot.deleted" in names
    assert f"{2:020d}.log.deleted" in names
    assert f"{2:020d}.log" not in names
    removal.unlink()
    assert not [name for name in given.disk.list_directory("/data/t-0") if name.endswith(".deleted")]


def test_a_reader_of_a_removed_segment_can_finish() -> None:
    given = five_segments()
    row = given.log.segments
    retained(given, retention_bytes=3 * BATCH_BYTES)
    assert len(row[0].read(2 * BATCH_BYTES, 0, cached=False)) == 2 * BATCH_BYTES


def test_nothing_goes_while_a_sync_is_under_way() -> None:
    given = five_segments()
    ticket = given.log.start_sync()
    assert retained(given, retention_bytes=0) == [0, 2, 4, 6, 8]
    ticket.run()
    given.log.finish_sync(ticket)
    assert retained(given, retention_bytes=0) == [9]


def test_a_disk_that_takes_no_new_segment_keeps_the_old_ones() -> None:
    given = five_segments()
    given.disk.fail(1, Fault.ENOSPC)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        retained(given, retention_ms=0)
    assert offsets(given.log) == list(range(9))
    assert retained(given, retention_ms=0) == [9]


@pytest.mark.parametrize(("offset", "start"), [(0, 0), (5, 5), (9, 9)])
def test_deleting_records_moves_the_start_and_never_back(offset: int, start: int) -> None:
    given = five_segments()
    assert given.log.delete_records_before(offset) == start
    assert given.log.delete_records_before(0) == start


@pytest.mark.parametrize("offset", [10, -1])
def test_records_that_are_not_there_cannot_be_deleted(offset: int) -> None:
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        five_segments().log.delete_records_before(offset)
