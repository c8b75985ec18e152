"""Tests opening a log after a clean stop, after a crash, and when the log is damaged.

tests/simulation tries every state that a crash can leave. Here, each rule has its own test.
"""

from __future__ import annotations

import pytest

from odradek.files.checkpoints import decode_epochs, encode_offsets
from odradek.files.producer_snapshot import encode_snapshot
from odradek.protocol.control_records import leader_change_batch
from odradek.protocol.errors import ErrorCode
from odradek.storage.log_config import LogConfig
from odradek.storage.log_directory import LogDirectory, WrongDirectory
from tests.support.fake_disk import FakeDisk, ProcessCrashed
from tests.support.log_builder import NODE, NOW_MS, TOPIC_ID, LogOnDisk, offsets, refused

SMALL = LogConfig(segment_bytes=200)  # A segment holds two plain batches.
LOG = "/data/t-0/00000000000000000000.log"
MARK = "/data/.kafka_cleanshutdown"


def filled(batches: int, config: LogConfig = SMALL) -> LogOnDisk:
    given = LogOnDisk(config=config)
    for _ in range(batches):
        given.append()
    return given


# --- After a clean stop.


def test_a_clean_start_reads_no_record_but_those_behind_the_last_index_entry() -> None:
    given = filled(200, LogConfig())
    given.directory.close()
    data = bytearray(given.disk.read_bytes(LOG))
    data[100] ^= 1  # The damage to the first batch goes unnoticed, because the batch is not read.
    given.disk.write_bytes(LOG, data)
    assert LogOnDisk(given.disk).log.log_end_offset == 200


def test_nothing_is_cut_off_a_log_that_was_stopped_cleanly() -> None:
    given = filled(5, LogConfig())
    given.directory.close()
    data = bytearray(given.disk.read_bytes(LOG))
    size_bytes = len(data) // 5
    data[3 * size_bytes + 7] ^= 7  # The batch at offset 3 gets base offset 4, so the log seems to end at 5.
    given.disk.write_bytes(LOG, data)
    directory = LogDirectory.open(given.disk, "/data", NODE)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        directory.open_log("t", 0, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    assert LOG in directory.failed["t", 0]
    assert given.disk.read_bytes(LOG) == data


def test_the_mark_of_a_clean_shutdown_is_durably_removed_once_the_directory_is_open() -> None:
    given = filled(1)
    given.directory.close()
    assert given.disk.exists(MARK)
    LogDirectory.open(given.disk, "/data", NODE)
    for state in given.disk.after_power_failure(seed=1):
        assert not state.disk.exists(MARK), state.name


def test_the_mark_holds_the_broker_epoch() -> None:
    given = filled(1)
    given.directory.close(broker_epoch=11)
    assert given.disk.read_bytes(MARK) == b'{"version":0,"brokerEpoch":11}'
    assert LogDirectory.open(given.disk, "/data", NODE).last_broker_epoch == 11


def test_an_index_that_is_missing_is_built_from_the_log() -> None:
    given = filled(200, LogConfig(index_interval_bytes=500))
    given.directory.close()
    given.disk.unlink("/data/t-0/00000000000000000000.index")
    given.disk.unlink("/data/t-0/00000000000000000000.timeindex")
    opened = LogOnDisk(given.disk, given.config)
    assert opened.log.log_end_offset == 200
    assert opened.log.reader.read(150, max_bytes=1).end_offset > 150


def test_an_index_without_its_log_is_removed() -> None:
    given = filled(1)
    given.directory.close()
    given.disk.write_bytes("/data/t-0/00000000000000000077.index", b"")
    opened = LogOnDisk(given.disk, given.config)
    assert [segment.base_offset for segment in opened.log.segments] == [0]
    assert not given.disk.exists("/data/t-0/00000000000000000077.index")


# --- After a crash.


def test_a_segment_larger_than_one_read_is_whole_to_its_end() -> None:
    given = LogOnDisk(config=LogConfig())
    for _ in range(8):
        given.append(value=b"v" * 400_000)
    opened = given.killed_and_opened()
    assert opened.log.log_end_offset == 8
    assert opened.log.size_bytes == given.log.size_bytes > 3_000_000


def test_a_batch_that_is_cut_short_is_taken_off() -> None:
    given = filled(3, LogConfig())
    given.disk.open(LOG).truncate(given.log.size_bytes - 10)
    opened = given.killed_and_opened()
    assert offsets(opened.log) == [0, 1]
    assert given.killed_and_opened().disk.size(LOG) == opened.log.size_bytes


@pytest.mark.parametrize("surplus", [b"\0" * 4096, b"\xff" * 40, b"\0"])
def test_bytes_that_are_no_batch_are_taken_off(surplus: bytes) -> None:
    given = filled(3, LogConfig())
    size_bytes = given.log.size_bytes
    given.disk.open(LOG).write_at([surplus], size_bytes)
    opened = given.killed_and_opened()
    assert offsets(opened.log) == [0, 1, 2]
    assert opened.log.size_bytes == opened.disk.size(LOG) == size_bytes


def test_a_batch_with_a_wrong_crc_ends_the_log() -> None:
    given = filled(3, LogConfig())
    flip(given, LOG, given.log.size_bytes // 3 + 70)
    opened = given.killed_and_opened()
    assert offsets(opened.log) == [0]
    assert opened.append().base_offset == 1


def test_segments_behind_a_torn_one_are_dropped() -> None:
    given = filled(7)
    flip(given, given.log.segments[1].path(), 70)
    opened = given.killed_and_opened()
    assert offsets(opened.log) == [0, 1]
    assert [segment.base_offset for segment in opened.log.segments] == [0, 2]
    assert not [name for name in opened.disk.list_directory("/data/t-0") if name.startswith(f"{4:020d}")]


def test_a_segment_that_overlaps_the_one_before_it_is_dropped() -> None:
    given = filled(2, LogConfig())
    stale = given.disk.read_bytes(LOG)[: given.log.size_bytes // 2]
    given.disk.write_bytes("/data/t-0/00000000000000000001.log", stale)
    assert [segment.base_offset for segment in given.killed_and_opened().log.segments] == [0]


def test_recovery_does_not_read_below_the_recovery_point() -> None:
    given = filled(5)
    given.sync()
    given.directory.write_checkpoints()
    flip(given, LOG, 70)  # The damaged batch is below the recovery point.
    assert given.killed_and_opened().log.log_end_offset == 5


def test_the_recovery_point_moves_with_a_sync_and_not_before() -> None:
    given = filled(5)
    assert given.log.recovery_point == 0
    given.sync()
    assert given.log.recovery_point == 5
    given.append()
    assert given.log.recovery_point == 5


def test_recovery_itself_makes_nothing_durable_and_says_so() -> None:
    assert filled(5).killed_and_opened().log.recovery_point == 0


def test_a_snapshot_of_records_that_did_not_survive_is_removed() -> None:
    given = filled(3, LogConfig())
    stale = "/data/t-0/00000000000000000009.snapshot"
    given.disk.write_bytes(stale, encode_snapshot([]))
    opened = given.killed_and_opened()
    assert opened.log.log_end_offset == 3
    assert not opened.disk.exists(stale), "once the log has grown past it, it would be believed"


# --- Damaged logs.


def test_a_bad_batch_below_the_recovery_point_takes_the_partition_offline_and_is_left_alone() -> None:
    given = filled(3, LogConfig())
    given.sync()
    given.directory.write_checkpoints()
    flip(given, LOG, 70)
    damaged = given.disk.after_kill()
    directory = LogDirectory.open(damaged, "/data", NODE)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        directory.open_log("t", 0, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    assert "below the recovery point 3" in directory.failed["t", 0]
    assert damaged.read_bytes(LOG) == given.disk.read_bytes(LOG)


def test_a_directory_with_a_damaged_log_never_counts_as_cleanly_shut_down() -> None:
    given = filled(3, LogConfig())
    given.sync()
    given.directory.write_checkpoints()
    flip(given, LOG, 70)
    damaged = given.disk.after_kill()
    for _ in range(2):  # The second start must also refuse the log.
        directory = LogDirectory.open(damaged, "/data", NODE)
        with refused(ErrorCode.KAFKA_STORAGE_ERROR):
            directory.open_log("t", 0, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
        directory.close()


def test_synced_records_that_are_gone_take_the_partition_offline() -> None:
    given = filled(3, LogConfig())
    given.sync()
    given.directory.write_checkpoints()
    given.disk.open(LOG).truncate(0)
    directory = LogDirectory.open(given.disk.after_kill(), "/data", NODE)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        directory.open_log("t", 0, TOPIC_ID, LogConfig(), now_ms=NOW_MS)


# --- Log start offset, leader epochs, and leftover files.


def test_a_segment_that_was_synced_before_it_was_finished_is_read_for_what_was_aborted_in_it() -> None:
    given = LogOnDisk(config=SMALL)
    given.append(7, transactional=True)
    given.end(7, commit=False)
    given.sync()
    given.log.roll(NOW_MS)
    given.directory.write_checkpoints()  # The recovery point is exactly the start of the next segment.
    opened = given.killed_and_opened()
    assert opened.log.reader.aborted_transactions(0, 2) == [(7, 0)]
    opened.sync()
    assert opened.killed_and_opened().log.reader.aborted_transactions(0, 2) == [(7, 0)]


def test_the_log_start_offset_comes_from_its_checkpoint() -> None:
    given = filled(5)
    given.log.delete_records_before(3)
    given.directory.write_checkpoints()
    assert given.killed_and_opened().log.log_start_offset == 3


def test_a_log_whose_deleted_records_were_all_that_survived_begins_anew_where_it_started() -> None:
    given = filled(5, LogConfig())
    given.log.delete_records_before(5)
    given.directory.write_checkpoints()
    given.disk.open(LOG).truncate(100)
    opened = given.killed_and_opened()
    assert (opened.log.log_start_offset, opened.log.log_end_offset) == (5, 5)
    assert opened.append().base_offset == 5


def test_leader_epochs_of_unsynced_batches_are_read_from_the_batches() -> None:
    given = LogOnDisk()
    given.log.assign_leader_epoch(3)
    given.append()
    given.log.assign_leader_epoch(5)
    given.append()
    opened = given.killed_and_opened()
    assert opened.log.end_offset_for_epoch(3) == (3, 1)
    assert opened.log.end_offset_for_epoch(4) == (3, 1)
    assert opened.log.end_offset_for_epoch(5) == (5, 2)
    assert opened.log.end_offset_for_epoch(6) is None


@pytest.mark.parametrize("content", [b"", b"garbage", b"0\n2\n0 0\n"])
def test_an_invalid_leader_epoch_checkpoint_is_rebuilt_from_the_log(content: bytes) -> None:
    given = LogOnDisk()
    given.log.assign_leader_epoch(3)
    given.append()
    given.sync()
    given.directory.write_checkpoints()
    given.disk.write_bytes("/data/t-0/leader-epoch-checkpoint", content)
    opened = given.killed_and_opened()
    assert opened.log.end_offset_for_epoch(3) == (3, 1)


def test_a_sync_writes_the_leader_epoch_checkpoint() -> None:
    given = LogOnDisk()
    given.log.assign_leader_epoch(3)
    given.append()
    given.sync()
    assert decode_epochs(given.disk.read_bytes("/data/t-0/leader-epoch-checkpoint")) == [(3, 0)]


def test_an_epoch_beyond_the_end_of_the_log_is_forgotten() -> None:
    given = LogOnDisk()
    given.append()
    given.log.assign_leader_epoch(7)
    given.sync()
    opened = given.closed_and_opened()
    assert opened.log.end_offset_for_epoch(7) is None
    assert opened.log.leader_epoch == 0


def test_files_marked_as_deleted_and_doomed_directories_go_at_start() -> None:
    given = filled(1)
    given.disk.write_bytes("/data/t-0/00000000000000000000.log.deleted", b"x")
    given.disk.make_directory("/data/gone-0.0123456789abcdef0123456789abcdef-delete")
    given.disk.write_bytes("/data/gone-0.0123456789abcdef0123456789abcdef-delete/00000000000000000000.log", b"x")
    opened = given.killed_and_opened()
    assert not opened.disk.exists("/data/t-0/00000000000000000000.log.deleted")
    assert not opened.disk.exists("/data/gone-0.0123456789abcdef0123456789abcdef-delete")


def test_checkpoints_of_a_deleted_topic_do_not_bind_a_new_one_of_its_name() -> None:
    given = filled(5)
    given.sync()
    given.log.delete_records_before(4)
    given.directory.write_checkpoints()
    given.directory.delete_log("t", 0, "0" * 32)
    fresh = given.directory.create_log("t", 0, b"another-topic-id", SMALL, now_ms=NOW_MS)
    assert fresh.log_start_offset == 0
    opened = given.killed_and_opened()
    assert (opened.log.log_start_offset, opened.log.log_end_offset) == (0, 0)
    assert opened.log.topic_id == b"another-topic-id"


def test_control_batches_that_are_no_markers_are_not_taken_for_any() -> None:
    given = LogOnDisk()
    batch = leader_change_batch(leader_id=1, voter_ids=[1], timestamp_ms=5, base_offset=0, leader_epoch=1)
    given.log.append(batch, now_ms=5)
    given.log.write_staged()
    assert given.killed_and_opened().log.log_end_offset == 1


# --- The directory itself.


def test_a_directory_of_another_node_or_cluster_is_refused() -> None:
    given = filled(1)
    given.directory.close()
    meta = given.disk.read_bytes("/data/meta.properties")
    given.disk.write_bytes("/data/meta.properties", meta.replace(b"node.id=1", b"node.id=2"))
    with pytest.raises(WrongDirectory, match=r"node\.id 2"):
        LogDirectory.open(given.disk, "/data", NODE)
    given.disk.write_bytes("/data/meta.properties", meta.replace(b"cluster.id=cluster", b"cluster.id=other"))
    with pytest.raises(WrongDirectory, match="other"):
        LogDirectory.open(given.disk, "/data", NODE_OF_CLUSTER)


NODE_OF_CLUSTER = type(NODE)(1, "cluster", "unused", "unused")


def test_a_checkpoint_that_cannot_be_read_is_not_taken_for_an_empty_one() -> None:
    given = filled(1)
    given.directory.close()
    given.disk.write_bytes("/data/log-start-offset-checkpoint", b"0\n5\n")
    with pytest.raises(WrongDirectory, match="log-start-offset-checkpoint"):
        LogDirectory.open(given.disk, "/data", NODE)
    given.disk.write_bytes("/data/log-start-offset-checkpoint", encode_offsets({}))
    LogDirectory.open(given.disk, "/data", NODE)


def flip(given: LogOnDisk, path: str, position: int) -> None:
    """Changes one byte on disk directly, without the log."""
    data = bytearray(given.disk.read_bytes(path))
    data[position] ^= 0xFF
    given.disk.write_bytes(path, data)


# Kafka moved the recovery point to the end of the log when it opened or truncated the log, without syncing the log.
@pytest.mark.known_bug(25, "KAFKA-10101")
def test_the_recovery_point_is_never_ahead_of_a_sync() -> None:
    given = LogOnDisk()
    given.append()
    opened = given.killed_and_opened()
    opened.directory.write_checkpoints()
    for state in opened.disk.after_power_failure(seed=25):
        LogOnDisk(state.disk)  # If the recovery point were 1, the lost record would now count as damage.


# In Kafka, the clean shutdown mark survived the start, so after a later crash the broker trusted the log.
@pytest.mark.known_bug(25, "KAFKA-10471")
def test_a_mark_of_a_clean_shutdown_vouches_for_one_start_only() -> None:
    given = LogOnDisk()
    given.append()
    given.directory.close()
    call = 0
    while True:
        call += 1
        disk = given.disk.after_kill()
        disk.crash_before(call)
        try:
            opened = LogOnDisk(disk)
            opened.append()
        except ProcessCrashed:
            continue
        for state in disk.after_power_failure(seed=call):
            assert not LogDirectory.open(state.disk, "/data", NODE).was_clean, state.name
        return


# Kafka rewrote the checkpoint in the background and renamed the new file before its contents were synced.
@pytest.mark.known_bug(26, "KAFKA-16541")
def test_no_crash_leaves_half_a_leader_epoch_checkpoint() -> None:
    call = 0
    crashed = True
    while crashed:
        call += 1
        given = LogOnDisk(FakeDisk())
        given.log.assign_leader_epoch(1)
        given.append()
        given.sync()
        given.directory.write_checkpoints()
        given.log.assign_leader_epoch(2)
        given.append()
        given.disk.crash_before(call)
        crashed = False
        try:
            given.sync()
        except ProcessCrashed:
            crashed = True
        for state in given.disk.after_power_failure(seed=call):
            opened = LogOnDisk(state.disk)
            assert opened.log.end_offset_for_epoch(1) == (1, 1), state.name
            if opened.log.log_end_offset == 2:
                assert opened.log.end_offset_for_epoch(2) == (2, 2), state.name
