"""Tests one log: appending in steps, rolling, reading by offset and by time, and closing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.records import NewRecord, batches, build_batch, read_batch_header
from odradek.storage.disk import WouldBlock
from odradek.storage.log import AppendResult, LogFailed, Origin
from odradek.storage.log_config import LogConfig
from odradek.storage.log_reader import ReadResult
from odradek.storage.staging import TailCache
from tests.support.fake_disk import FakeDisk, Fault
from tests.support.log_builder import NODE, NOW_MS, LogOnDisk, offsets, refused

BATCH_BYTES = 76  # size of a batch with one plain record
TWO_BATCHES = LogConfig(segment_bytes=2 * BATCH_BYTES)


def bases(given: LogOnDisk) -> list[int]:
    return [segment.base_offset for segment in given.log.segments]


# Appending


def test_offsets_and_leader_epoch_are_written_into_the_batch_and_its_crc_stays_right() -> None:
    given = LogOnDisk()
    given.fill_to(41)
    given.log.assign_leader_epoch(6)
    batch = build_batch([NewRecord(None, b"a", 5), NewRecord(None, b"b", 6)])
    crc = read_batch_header(batch).crc
    assert given.log.append(batch, now_ms=5) == AppendResult(41, 42)
    header = read_batch_header(batch)
    assert (header.base_offset, header.leader_epoch, header.crc) == (41, 6, crc)


def test_staged_batches_cannot_be_read_until_they_are_written() -> None:
    given = LogOnDisk()
    given.stage()
    assert (given.log.log_end_offset, given.log.size_bytes) == (0, 0)
    assert given.log.reader.read(0, max_bytes=100).size_bytes == 0
    given.log.write_staged()
    assert (given.log.log_end_offset, given.log.size_bytes) == (1, BATCH_BYTES)


def test_all_staged_batches_share_one_write() -> None:
    given = LogOnDisk()
    given.disk.log.clear()
    for _ in range(2):
        for _ in range(10):
            given.stage()
        given.log.write_staged()
    path = "/data/t-0/00000000000000000000.log"
    assert given.disk.log == [f"create {path}", f"write {path}", f"write {path}"]


@pytest.mark.parametrize("call", [1, 2], ids=["create", "write"])
def test_a_log_whose_first_write_fails_goes_on_and_its_file_is_durable_with_the_next_sync(call: int) -> None:
    given = LogOnDisk()
    given.stage()
    given.disk.fail(call, Fault.ENOSPC)
    with pytest.raises(LogFailed):
        given.log.write_staged()
    assert given.log.offline_reason is None
    given.stage()
    given.log.write_staged()
    ticket = given.log.start_sync()
    ticket.run()
    given.log.finish_sync(ticket)
    for state in given.disk.after_power_failure(call):
        assert state.disk.size("/data/t-0/00000000000000000000.log") == BATCH_BYTES, state.name


def test_the_file_of_a_log_that_was_synced_while_it_was_empty_is_durable_with_its_first_record() -> None:
    given = LogOnDisk()
    for _ in range(2):
        ticket = given.log.start_sync()
        ticket.run()
        given.log.finish_sync(ticket)
    given.stage()
    given.log.write_staged()
    ticket = given.log.start_sync()
    ticket.run()
    given.log.finish_sync(ticket)
    for state in given.disk.after_power_failure(1):
        assert state.disk.size("/data/t-0/00000000000000000000.log") == BATCH_BYTES, state.name


def test_a_write_without_staged_batches_makes_no_system_call() -> None:
    given = LogOnDisk()
    calls = given.disk.calls
    given.log.write_staged()
    assert given.disk.calls == calls


def test_the_append_time_is_returned_if_the_topic_uses_log_append_time() -> None:
    given = LogOnDisk()
    batch = build_batch([NewRecord(None, b"", 5)], log_append_time_ms=1234)
    assert given.log.append(batch, now_ms=1234).log_append_time_ms == 1234
    assert given.append().log_append_time_ms is None


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    with refused(ErrorCode.RECORD_LIST_TOO_LARGE):
        LogOnDisk(config=replace(TWO_BATCHES, segment_bytes=BATCH_BYTES - 1)).append()


# Rolling


def test_a_segment_rolls_when_the_next_batch_does_not_fit() -> None:
    given = LogOnDisk(config=TWO_BATCHES)
    for _ in range(5):
        given.append()
    assert bases(given) == [0, 2, 4]


def test_one_write_may_fill_several_segments() -> None:
    given = LogOnDisk(config=TWO_BATCHES)
    for _ in range(5):
        given.stage()
    assert bases(given) == [0]
    given.log.write_staged()
    assert bases(given) == [0, 2, 4]
    assert offsets(given.log) == [0, 1, 2, 3, 4]


def test_a_segment_rolls_when_records_are_too_much_younger_than_its_first() -> None:
    given = LogOnDisk(config=LogConfig(segment_ms=1_000))
    for timestamp in (5_000, 5_500, 6_000, 6_001, 7_001):
        given.append(timestamp=timestamp)
    assert bases(given) == [0, 3]


def test_staged_records_roll_by_time_too() -> None:
    given = LogOnDisk(config=LogConfig(segment_ms=1_000))
    for timestamp in (5_000, 6_001, 6_002):
        given.stage(timestamp=timestamp)
    given.log.write_staged()
    assert bases(given) == [0, 1]


def test_records_without_timestamp_roll_by_the_clock() -> None:
    given = LogOnDisk(config=LogConfig(segment_ms=1_000))
    given.append(timestamp=-1)
    given.now_ms += 1_000
    given.append(timestamp=-1)
    given.now_ms += 1
    given.append(timestamp=-1)
    assert bases(given) == [0, 2]


def test_the_age_of_a_segment_survives_a_restart() -> None:
    given = LogOnDisk(config=LogConfig(segment_ms=1_000))
    given.append(timestamp=5_000)
    given = given.closed_and_opened()
    given.append(timestamp=6_001)
    assert bases(given) == [0, 1]


def test_a_segment_rolls_when_an_index_is_full() -> None:
    config = LogConfig(segment_index_bytes=8 * 3, index_interval_bytes=0)  # three offset entries and two time entries
    given = LogOnDisk(config=config)
    for at in range(6):
        given.append(timestamp=at)
    assert all(len(segment.offset_index) <= 3 for segment in given.log.segments)
    assert all(len(segment.time_index) <= 2 for segment in given.log.segments)
    assert len(bases(given)) > 1


def test_a_segment_rolls_before_an_offset_would_not_fit_its_index() -> None:
    given = LogOnDisk()
    given.append()
    header = read_batch_header(build_batch([NewRecord(None, b"", 0)]))
    batch = build_batch([NewRecord(None, b"", 0)])
    given.log.append(batch, now_ms=0, header=replace(header, last_offset_delta=2**31 - 2))
    given.log.write_staged()
    assert bases(given) == [0], "the last offset is the base offset and 2**31 - 1"
    given.append()
    assert bases(given) == [0, 2**31]


def test_a_change_of_settings_holds_from_the_next_batch_on() -> None:
    given = LogOnDisk()
    given.append()
    given.append()
    given.log.config = TWO_BATCHES
    given.append()
    assert bases(given) == [0, 2]


def test_jitter_makes_segments_roll_earlier() -> None:
    given = LogOnDisk(config=LogConfig(segment_ms=1_000, segment_jitter_ms=400))
    directory = given.directory
    log = directory.create_log("u", 0, None, given.config, now_ms=0)
    assert log.segments[0].roll_jitter_ms == 0
    jittered = (
        type(directory)
        .open(FakeDisk(), "/data", NODE, jitter_ms=lambda limit: limit // 2)
        .create_log("u", 0, None, given.config, now_ms=0)
    )
    jittered.append(build_batch([NewRecord(None, b"", 0)]), now_ms=0)
    jittered.append(build_batch([NewRecord(None, b"", 1_001)]), now_ms=0)  # this log rolls by age, with jitter
    jittered.append(build_batch([NewRecord(None, b"", 1_001 + 801)]), now_ms=0)
    jittered.write_staged()
    assert [segment.base_offset for segment in jittered.segments] == [0, 1, 2]


def test_finished_segments_ask_for_a_sync_that_nobody_waits_for() -> None:
    given = LogOnDisk(config=TWO_BATCHES)
    given.append()
    assert not given.log.has_rolled
    given.append()
    given.append()
    assert given.log.has_rolled
    assert not given.log.needs_sync
    given.sync()
    assert not given.log.has_rolled


def test_flush_messages_asks_for_a_sync_that_acknowledgements_wait_for() -> None:
    given = LogOnDisk(config=LogConfig(flush_messages=2))
    given.append()
    assert not given.log.needs_sync
    given.append()
    assert given.log.needs_sync
    given.sync()
    assert not given.log.needs_sync
    assert given.log.synced_offset == 2


def test_batches_written_during_a_sync_do_not_count_as_synced() -> None:
    given = LogOnDisk()
    given.append()
    ticket = given.log.start_sync()
    given.append()
    ticket.run()
    given.log.finish_sync(ticket)
    assert (given.log.synced_offset, given.log.log_end_offset) == (1, 2)


# Reading


def big_log(*, cached: bool) -> LogOnDisk:
    """Returns a log with nine batches in five segments. Reads come from the tail cache if `cached` is set, and
    otherwise from the files."""
    given = LogOnDisk(config=TWO_BATCHES)
    given.directory._tail_cache = TailCache(10_000 if cached else 0)
    given.log = given.directory.create_log("u", 0, None, TWO_BATCHES, now_ms=NOW_MS)
    for _ in range(9):
        given.append()
    return given


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize(
    ("start", "max_bytes", "first", "size_bytes"),
    [
        (0, 10_000, 0, 2 * BATCH_BYTES),  # a read covers one segment, as in Kafka
        (0, 100, 0, 100),
        (0, 1, 0, BATCH_BYTES),  # a read returns at least one batch
        (1, 10_000, 1, BATCH_BYTES),
        (8, 10_000, 8, BATCH_BYTES),
        (9, 10_000, None, 0),
    ],
)
def test_a_read_begins_with_the_batch_that_holds_the_offset(
    start: int, max_bytes: int, first: int | None, size_bytes: int, cached: bool
) -> None:
    result = big_log(cached=cached).log.reader.read(start, max_bytes=max_bytes)
    data = b"".join(result.chunks)
    assert len(data) == result.size_bytes == size_bytes
    assert (read_batch_header(data).base_offset if data else None) == first


def test_an_offset_within_a_batch_is_found() -> None:
    given = LogOnDisk()
    given.append(records=5)
    given.append(records=5)
    for read in (given.log.reader.read, given.log.reader.read_cold):
        data = b"".join(read(7, max_bytes=1).chunks)
        assert read_batch_header(data).base_offset == 5


@pytest.mark.parametrize("cached", [True, False])
def test_a_first_batch_that_is_too_large_is_left_out_if_it_may_be(cached: bool) -> None:
    log = big_log(cached=cached).log
    assert log.reader.read(8, max_bytes=BATCH_BYTES - 1, min_one_batch=False) == ReadResult([], 0, 8)
    assert log.reader.read(8, max_bytes=BATCH_BYTES, min_one_batch=False).size_bytes == BATCH_BYTES


@pytest.mark.parametrize("start", [-1, 10])
def test_offsets_that_are_not_in_the_log_are_out_of_range(start: int) -> None:
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        big_log(cached=True).log.reader.read(start, max_bytes=1)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("end", range(10))
def test_nothing_at_or_beyond_the_bound_is_read(end: int, cached: bool) -> None:
    log = big_log(cached=cached).log
    for start in range(10):
        data = b"".join(log.reader.read(start, max_bytes=10_000, end_offset=end).chunks)
        found = [header.base_offset for _, header in batches(data)]
        assert found == list(range(start, min(end, start // 2 * 2 + 2, 9)))


def test_a_read_of_records_that_are_not_in_memory_would_block() -> None:
    given = big_log(cached=False)
    given.disk.evict()
    with pytest.raises(WouldBlock):
        given.log.reader.read(3, max_bytes=100)
    assert given.log.reader.read_cold(3, max_bytes=100).size_bytes == BATCH_BYTES
    assert given.log.reader.read(3, max_bytes=100).size_bytes == BATCH_BYTES, "it has been read, so it is in memory now"


def test_the_last_batches_are_read_from_memory_without_the_disk() -> None:
    given = big_log(cached=True)
    given.disk.evict()
    assert given.log.reader.read(8, max_bytes=100).size_bytes == BATCH_BYTES


def test_the_end_of_a_read_is_rounded_up_with_the_offset_index() -> None:
    given = LogOnDisk(config=LogConfig(index_interval_bytes=2 * BATCH_BYTES))
    for _ in range(12):
        given.append()
    assert given.log.segments[0].offset_index.entries() == [
        (3, 3 * BATCH_BYTES),
        (6, 6 * BATCH_BYTES),
        (9, 9 * BATCH_BYTES),
    ]
    for read in (given.log.reader.read, given.log.reader.read_cold):
        assert [read(start, max_bytes=1).end_offset for start in (0, 2, 3, 5, 9)] == [3, 3, 6, 6, 12]


def test_a_scan_yields_whole_batches_over_all_segments() -> None:
    log = big_log(cached=False).log
    assert [header.base_offset for portion in log.reader.scan(3, 7) for _, header in batches(portion)] == [3, 4, 5, 6]


def test_a_scan_reads_batches_larger_than_its_portions() -> None:
    given = LogOnDisk()
    for size in (10, 3_000_000, 10, 1_048_500, 500):
        given.append(value=b"v" * size)
    assert offsets(given.log) == [0, 1, 2, 3, 4]


def test_a_file_that_is_gone_is_a_storage_error() -> None:
    given = big_log(cached=False).closed_and_opened()
    log = given.directory.open_log("u", 0, None, TWO_BATCHES, now_ms=NOW_MS)
    given.disk.unlink("/data/u-0/00000000000000000002.log")
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        log.reader.read(2, max_bytes=100)


# Reading by time


def timed(*timestamps: int, config: LogConfig = TWO_BATCHES) -> LogOnDisk:
    given = LogOnDisk(config=config)
    for timestamp in timestamps:
        given.append(timestamp=timestamp)
    return given


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(0, 0), (100, 0), (101, 1), (300, 1), (301, 4), (500, 5), (501, None)]
)
def test_the_first_record_that_is_not_older_is_found(timestamp: int, offset: int | None) -> None:
    found = timed(100, 300, 200, 250, 400, 500).log.reader.offset_for_timestamp(timestamp)
    assert (None if found is None else found.offset) == offset


def test_records_are_looked_at_within_their_batch() -> None:
    given = LogOnDisk()
    records = [NewRecord(None, b"", timestamp) for timestamp in (10, 30, 20, 40)]
    given.log.append(build_batch(records), now_ms=0)
    given.log.write_staged()
    found = given.log.reader.offset_for_timestamp(20)
    assert found is not None
    assert (found.timestamp, found.offset) == (30, 1)


def test_deleted_records_are_not_found_by_time() -> None:
    given = timed(100, 200, 300)
    given.log.delete_records_before(1)
    found = given.log.reader.offset_for_timestamp(50)
    assert found is not None
    assert (found.timestamp, found.offset) == (200, 1)


@pytest.mark.parametrize("timestamps", [(5, 9, 7), (9, 9, 1), (1, 2, 9), (9, 1, 2, 3, 4)])
def test_the_first_record_with_the_largest_timestamp_is_found(timestamps: tuple[int, ...]) -> None:
    found = timed(*timestamps).log.reader.offset_of_max_timestamp()
    assert found is not None
    assert (found.timestamp, found.offset) == (9, timestamps.index(9))


def test_an_empty_log_has_no_largest_timestamp() -> None:
    assert LogOnDisk().log.reader.offset_of_max_timestamp() is None


# Closing


def test_nothing_is_appended_to_a_log_that_is_closed_or_deleted() -> None:
    for leave in ("close", "abandon"):
        given = LogOnDisk()
        getattr(given.log, leave)()
        with refused(ErrorCode.KAFKA_STORAGE_ERROR):
            given.append()


def test_a_log_that_cannot_be_closed_raises_an_error() -> None:
    given = LogOnDisk()
    given.append()
    given.disk.fail(1, Fault.EIO)
    with pytest.raises(LogFailed):
        given.log.close()


def test_the_coordinators_batches_are_no_duplicates_of_one_another() -> None:
    given = LogOnDisk()
    for _ in range(3):
        assert not given.append(1, sequence=0, origin=Origin.COORDINATOR).is_duplicate
