"""Tests where a walk over a log's batches ends, and which bytes it reports as damage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odradek.files.offline import DamagedLog, headers, segments_of, stretches
from odradek.protocol.batch_header import batches
from odradek.protocol.records import NewRecord
from tests.support.written_log import WrittenLog, flip


def offsets(log: WrittenLog, start: int = 0, end: int = 1 << 62, stretch_bytes: int = 1 << 20) -> list[int]:
    """Returns the first offset of each batch found by a walk."""
    found = []
    for stretch in stretches(log.directory, start, end, stretch_bytes=stretch_bytes):
        found += [first for first, _ in batches_in(stretch.data)]
    return found


def batches_in(data: memoryview) -> list[tuple[int, int]]:
    return [(header.base_offset, header.last_offset) for _, header in batches(data)]


def by_headers(log: WrittenLog) -> list[int]:
    return [header.base_offset for segment in segments_of(log.directory) for _, header, _ in headers(segment)]


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """Returns a log with ten batches of two records each, in two segments. The second segment starts at offset 12."""
    log = WrittenLog(tmp_path)
    for number in range(10):
        if number == 6:
            log.roll()
        log.append(2, value=b"%d" % number)
    return log


def test_all_batches_are_read_whatever_the_size_of_a_stretch(log: WrittenLog) -> None:
    for stretch_bytes in (1, 61, 100, 173, 400, 1 << 20):
        assert offsets(log, stretch_bytes=stretch_bytes) == list(range(0, 20, 2))
    assert by_headers(log) == list(range(0, 20, 2))
    large = log.append([NewRecord(b"k", os.urandom(70_000), 1)])
    assert offsets(log, stretch_bytes=1000)[-1] == large == by_headers(log)[-1]


@pytest.mark.parametrize(("start", "end", "expected"), [(3, 15, range(2, 16, 2)), (12, 13, [12]), (19, 99, [18])])
def test_the_batches_that_overlap_a_range_are_read(log: WrittenLog, start: int, end: int, expected: list[int]) -> None:
    assert offsets(log, start, end) == list(expected)


@pytest.mark.parametrize("cut", [1, 30, 60, 61, 70])
def test_a_batch_that_is_being_written_is_not_shown(log: WrittenLog, cut: int) -> None:
    size = log.active.stat().st_size
    log.append(2)
    os.truncate(log.active, size + cut)
    assert offsets(log) == by_headers(log) == list(range(0, 20, 2))


@pytest.mark.parametrize("zeros", [1, 61, 4096])
def test_zeros_behind_the_last_batch_are_no_damage(log: WrittenLog, zeros: int) -> None:
    log.write(bytes(zeros))
    assert offsets(log) == by_headers(log) == list(range(0, 20, 2))


def test_the_last_batch_of_all_may_be_torn(log: WrittenLog) -> None:
    flip(log.active, log.active.stat().st_size - 1)
    assert offsets(log) == list(range(0, 18, 2))


def test_the_end_of_a_finished_segment_has_to_be_whole(log: WrittenLog) -> None:
    first = log.directory / f"{0:020d}.log"
    os.truncate(first, first.stat().st_size - 1)
    for read in (offsets, by_headers):
        with pytest.raises(DamagedLog, match="cut short") as raised:
            read(log)
        assert (raised.value.path, raised.value.offset) == (first, 10)


def test_a_wrong_crc_names_file_position_and_offset(log: WrittenLog) -> None:
    size = log.active.stat().st_size // 4
    flip(log.active, size + 70)
    with pytest.raises(DamagedLog, match=rf"{log.active} is damaged at byte {size}, offset 14: the CRC"):
        offsets(log)
    skipped: list[DamagedLog] = []
    found = [
        first
        for stretch in stretches(log.directory, 0, 99, on_damage=skipped.append)
        for first, _ in batches_in(stretch.data)
    ]
    assert found == [0, 2, 4, 6, 8, 10, 12, 16, 18]
    assert [each.offset for each in skipped] == [14]


def test_where_no_batch_begins_reading_goes_on_behind_it_only_if_an_index_knows_a_batch(log: WrittenLog) -> None:
    size = log.active.stat().st_size // 4
    flip(log.active, size + 16)  # damages the magic byte
    damages: list[DamagedLog] = []
    assert [len(each.data) for each in stretches(log.directory, 12, 99, on_damage=damages.append)] == [size]
    log.active.with_suffix(".index").write_bytes((7).to_bytes(4) + (3 * size).to_bytes(4))
    damages.clear()
    data = [each.data for each in stretches(log.directory, 12, 99, on_damage=damages.append)]
    assert [first for each in data for first, _ in batches_in(each)] == [12, 18]
    assert "no batch begins here: magic" in damages[0].reason


def test_files_that_are_no_part_of_the_log_are_left_out(log: WrittenLog) -> None:
    for name in (
        f"{4:020d}.log.deleted",
        f"{4:020d}.log.cleaned",
        f"{4:020d}.txnindex.swap",
        "leader-epoch-checkpoint",
    ):
        (log.directory / name).write_bytes(b"anything")
    assert offsets(log) == list(range(0, 20, 2))


def test_a_finished_swap_stands_for_the_segments_it_was_made_from(log: WrittenLog, tmp_path: Path) -> None:
    """Checks that a `.swap` file replaces the segments that it was made from. After a crash, or while a reader is
    running, the log may be between the renames of a compaction."""
    compacted = WrittenLog(tmp_path / "elsewhere")
    compacted.append(2)
    compacted.skip(6)
    compacted.append(4)
    swap = log.directory / f"{0:020d}.log.swap"
    swap.write_bytes(compacted.active.read_bytes())
    assert offsets(log) == [0, 8, 12, 14, 16, 18]
    (log.directory / f"{0:020d}.log").rename(log.directory / f"{0:020d}.log.deleted")
    assert offsets(log) == [0, 8, 12, 14, 16, 18]


def test_compaction_between_two_stretches_takes_nothing_that_is_left(log: WrittenLog, tmp_path: Path) -> None:
    reading = stretches(log.directory, 0, 99, stretch_bytes=100)
    assert [first for first, _ in batches_in(next(reading).data)] == [0]
    compacted = WrittenLog(tmp_path / "elsewhere")
    compacted.append(2)
    compacted.skip(8)
    compacted.append(2)
    merged = log.directory / f"{0:020d}.log"
    merged.unlink()
    merged.write_bytes(compacted.active.read_bytes() + log.active.read_bytes())
    log.active.unlink()
    rest = [first for stretch in reading for first, _ in batches_in(stretch.data)]
    assert rest[-5:] == [10, 12, 14, 16, 18]
