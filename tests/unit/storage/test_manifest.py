"""Tests that a clean stop's manifest is valid only for the same broker epoch, and that a second stop keeps the entries
of unchanged files."""

import pytest

from odradek.files.checkpoints import encode_clean_shutdown
from odradek.files.manifest import decode_manifest, encode_manifest
from odradek.storage.log_config import LogConfig
from tests.support.compaction_scene import COMPACT, CompactedLog
from tests.support.log_builder import LogOnDisk

SEGMENTS = LogConfig(segment_bytes=500, index_interval_bytes=100)
FIRST_INDEX = "/data/t-0/00000000000000000000.index"
DIRECTORIES = {".": {"meta.properties": "3/4"}, "t-0": {"0.log": "5", "0.timeindex": "1/2/3"}}


def filled() -> LogOnDisk:
    given = LogOnDisk(config=SEGMENTS)
    for _ in range(20):
        given.append()
    return given


def flip(given: LogOnDisk | CompactedLog, path: str) -> bytes:
    """Changes one byte of a file. Returns the previous contents."""
    data = given.disk.read_bytes(path)
    given.disk.write_bytes(path, bytes([data[0] ^ 1]) + data[1:])
    return data


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert decode_manifest(encode_manifest(11, DIRECTORIES), 11) == DIRECTORIES


def test_a_manifest_of_another_broker_epoch_counts_for_nothing() -> None:
    assert decode_manifest(encode_manifest(11, DIRECTORIES), 12) is None
    assert decode_manifest(encode_manifest(11, DIRECTORIES), None) is None


def test_after_another_program_has_stopped_the_directory_its_files_are_its_own() -> None:
    given = filled()
    given.directory.close(broker_epoch=11)
    given.disk.write_bytes("/data/.kafka_cleanshutdown", encode_clean_shutdown(12))
    given.disk.write_bytes("/data/log-start-offset-checkpoint", b"0\n1\nt 0 4\n")
    assert LogOnDisk(given.disk, SEGMENTS).log.log_start_offset == 4


def test_a_second_stop_still_knows_the_files_that_nobody_has_touched() -> None:
    given = filled().closed_and_opened()
    given.append()
    given.directory.close()
    before = flip(given, FIRST_INDEX)
    again = LogOnDisk(given.disk, SEGMENTS)
    assert again.log.segments[0].offset_index.to_bytes() != given.disk.read_bytes(FIRST_INDEX)
    again.directory.close()
    assert len(given.disk.read_bytes(FIRST_INDEX)) <= len(before)
    assert given.disk.read_bytes(FIRST_INDEX) != bytes([before[0] ^ 1]) + before[1:], "the damaged file stays"


def test_a_damaged_index_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    given = filled()
    given.directory.close()
    flip(given, FIRST_INDEX)
    opened = LogOnDisk(given.disk, SEGMENTS)
    opened.log.reader.read_cold(2, max_bytes=1)
    assert FIRST_INDEX in caplog.text
    opened.directory.close()
    caplog.clear()
    LogOnDisk(given.disk, SEGMENTS).log.reader.read_cold(2, max_bytes=1)
    assert caplog.text == ""


def test_files_that_compaction_made_are_noted() -> None:
    given = CompactedLog()
    for _ in range(5):
        given.append(("key", "value"))
    given.roll()
    given.clean()
    given.stop()
    index = "/data/t-0/00000000000000000000.timeindex"
    flip(given, index)
    opened = LogOnDisk(given.disk, COMPACT)
    assert opened.log.segments[0].time_index.to_bytes() != given.disk.read_bytes(index)
