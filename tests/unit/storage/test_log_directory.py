"""Tests a data directory: its lock, its ids and releases, its partitions, and its checkpoints."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from odradek.files.checkpoints import decode_meta_properties, decode_offsets
from odradek.files.names import doomed_directory, is_doomed_directory, offset_of, partition_of
from odradek.files.releases import Releases, releases_in
from odradek.protocol.errors import ErrorCode
from odradek.protocol.records import NewRecord, build_batch
from odradek.storage.disk import DirectoryInUse, RealDisk
from odradek.storage.log import LogFailed
from odradek.storage.log_config import LogConfig
from odradek.storage.log_directory import DirectoryId, LogDirectory, WrongDirectory
from tests.support.fake_disk import FakeDisk, Fault, ProcessCrashed
from tests.support.log_builder import NODE, NOW_MS, TOPIC_ID, LogOnDisk, refused

UNIQUE = "08015e86e31e400fbbc1ba70bf4b0dcf"


def test_a_second_broker_is_refused_and_the_first_one_not_disturbed(tmp_path: Path) -> None:
    first = LogDirectory.open(RealDisk(), f"{tmp_path}/data", NODE)
    with pytest.raises(DirectoryInUse):
        LogDirectory.open(RealDisk(), f"{tmp_path}/data", NODE)
    first.close()
    assert LogDirectory.open(RealDisk(), f"{tmp_path}/data", NODE).was_clean


def test_a_new_directory_is_given_the_ids_that_it_keeps() -> None:
    disk = FakeDisk()
    LogDirectory.open(disk, "/data", NODE).close()
    assert decode_meta_properties(disk.read_bytes("/data/meta.properties")).directory_id == "directory"
    again = LogDirectory.open(disk, "/data", DirectoryId(1, None, "another cluster", "another directory"))
    assert (again.meta.cluster_id, again.meta.directory_id) == ("cluster", "directory")


NOW, LATER = Releases("0.2.0", "0.1.0"), Releases("0.3.0", "0.3.0")


def by(releases: Releases) -> DirectoryId:
    return DirectoryId(1, None, "cluster", "directory", releases)


def releases_on(disk: FakeDisk) -> Releases:
    return releases_in(disk.read_bytes("/data/meta.properties"))


def test_a_directory_that_only_a_later_release_can_read_is_refused_by_its_name() -> None:
    disk = FakeDisk()
    LogDirectory.open(disk, "/data", by(LATER)).close()
    before = disk.fingerprint
    with pytest.raises(WrongDirectory, match=r"Odradek 0\.3\.0 and later, but this is Odradek 0\.2\.0"):
        LogDirectory.open(disk, "/data", by(NOW))
    assert disk.fingerprint == before
    assert LogDirectory.open(disk, "/data", by(LATER)).was_clean


def test_a_later_release_that_changed_no_format_leaves_the_directory_to_an_earlier_one() -> None:
    disk = FakeDisk()
    LogDirectory.open(disk, "/data", by(Releases("0.3.0", "0.1.0"))).close()
    again = LogDirectory.open(disk, "/data", by(NOW))
    assert again.was_clean
    assert again.releases.newest == "0.3.0"
    again.close()
    assert releases_on(disk) == Releases("0.3.0", "0.1.0")


def test_a_directory_of_kafka_names_the_release_that_has_used_it() -> None:
    disk = FakeDisk()
    disk.make_directory("/data")
    kafkas = b"#\nnode.id=1\nversion=1\ncluster.id=c\ndirectory.id=d\n"
    disk.write_bytes("/data/meta.properties", kafkas)
    LogDirectory.open(disk, "/data", by(NOW)).close()
    assert disk.read_bytes("/data/meta.properties") == kafkas + b"odradek.version=0.2.0\nodradek.readable.since=0.1.0\n"
    assert LogDirectory.open(disk, "/data", by(NOW)).was_clean


def test_the_power_may_fail_at_any_step_of_an_upgrade() -> None:
    stopped = FakeDisk()
    LogDirectory.open(stopped, "/data", by(NOW)).close()
    for call in count(1):
        disk = stopped.after_kill()
        disk.crash_before(call)
        try:
            LogDirectory.open(disk, "/data", by(LATER))
        except ProcessCrashed:
            for state in disk.after_power_failure(call):
                LogDirectory.open(state.disk, "/data", by(LATER))
                assert releases_on(state.disk) == LATER, state.name
        else:
            break
    assert call > 3


def test_a_refused_directory_is_unlocked_again() -> None:
    disk = FakeDisk()
    LogDirectory.open(disk, "/data", NODE).close()
    for _ in range(2):
        with pytest.raises(Exception, match=r"node\.id"):
            LogDirectory.open(disk, "/data", DirectoryId(2, None, "", ""))
    LogDirectory.open(disk, "/data", NODE)


def test_an_abandoned_directory_is_let_go_with_nothing_more_written() -> None:
    given = LogOnDisk()
    before = given.disk.fingerprint
    assert not any(given.directory.steps_of_abandon())
    assert given.disk.fingerprint == before
    assert not LogDirectory.open(given.disk, "/data", NODE).was_clean


def test_partitions_are_found_by_their_directories() -> None:
    disk = FakeDisk()
    directory = LogDirectory.open(disk, "/data", NODE)
    for topic, partition in (("a", 0), ("a", 11), ("with-dash-7", 3), ("__consumer_offsets", 49)):
        directory.create_log(topic, partition, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    disk.make_directory("/data/lost+found")
    disk.write_bytes("/data/bootstrap.checkpoint", b"")
    directory.close()
    again = LogDirectory.open(disk, "/data", NODE)
    assert sorted(again.partitions()) == [("__consumer_offsets", 49), ("a", 0), ("a", 11), ("with-dash-7", 3)]
    assert again.topic_id_of("a", 11) == TOPIC_ID


def test_a_topic_id_that_a_power_failure_took_is_written_again() -> None:
    given = LogOnDisk()
    given.directory.close()
    given.disk.write_bytes("/data/t-0/partition.metadata", b"")
    assert LogDirectory.open(given.disk, "/data", NODE).topic_id_of("t", 0) is None
    given = LogOnDisk(given.disk.after_kill())
    assert given.log.topic_id == TOPIC_ID
    given.directory.close()
    assert LogDirectory.open(given.disk, "/data", NODE).topic_id_of("t", 0) == TOPIC_ID


def test_a_deleted_partition_is_out_of_sight_at_once_and_gone_later() -> None:
    given = LogOnDisk()
    given.append()
    deleted = given.directory.delete_log("t", 0, UNIQUE)
    assert deleted.path == f"/data/t-0.{UNIQUE}-delete"
    assert given.directory.partitions() == []
    assert given.directory.topic_id_of("t", 0) is None
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        given.append()
    deleted.remove(given.disk)
    assert not given.disk.exists(deleted.path)


def test_a_long_topic_name_is_cut_in_the_name_of_the_doomed_directory() -> None:
    name = doomed_directory("t" * 249, 123, UNIQUE)
    assert len(name) == 255
    assert name.endswith(f"-123.{UNIQUE}-delete")
    assert is_doomed_directory(name)


@pytest.mark.parametrize(
    ("name", "partition"),
    [("t-0", ("t", 0)), ("a.b_c-d-12", ("a.b_c-d", 12)), ("t", None), ("t-", None), ("t-x", None), (".lock", None)],
)
def test_directory_names(name: str, partition: tuple[str, int] | None) -> None:
    assert partition_of(name) == partition


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("00000000000000000042.log", 42),
        ("00000000000000000042.log.deleted", 42),
        ("00000000000000000048-0000000001.checkpoint", None),
        ("leader-epoch-checkpoint", None),
        ("42.log", None),
    ],
)
def test_file_names(name: str, offset: int | None) -> None:
    assert offset_of(name) == offset


def test_checkpoints_hold_recovery_points_log_starts_and_high_watermarks() -> None:
    given = LogOnDisk()
    given.append(records=5)
    given.sync()
    given.append(records=2)
    given.log.delete_records_before(3)
    given.directory.write_checkpoints()
    assert decode_offsets(given.disk.read_bytes("/data/recovery-point-offset-checkpoint")) == {("t", 0): 5}
    assert decode_offsets(given.disk.read_bytes("/data/log-start-offset-checkpoint")) == {("t", 0): 3}
    assert decode_offsets(given.disk.read_bytes("/data/replication-offset-checkpoint")) == {("t", 0): 7}


def test_a_log_start_at_the_first_segment_needs_no_checkpoint() -> None:
    given = LogOnDisk()
    given.append()
    given.directory.write_checkpoints()
    assert decode_offsets(given.disk.read_bytes("/data/log-start-offset-checkpoint")) == {}


def test_checkpoints_of_logs_that_are_not_open_are_kept() -> None:
    given = LogOnDisk()
    given.append(records=5)
    given.log.delete_records_before(3)
    given.directory.close()
    directory = LogDirectory.open(given.disk, "/data", NODE)
    directory.write_checkpoints()
    assert decode_offsets(given.disk.read_bytes("/data/recovery-point-offset-checkpoint")) == {("t", 0): 5}
    assert decode_offsets(given.disk.read_bytes("/data/log-start-offset-checkpoint")) == {("t", 0): 3}


def test_checkpoints_that_were_overtaken_are_not_written() -> None:
    given = LogOnDisk()
    given.append(records=5)
    given.sync()
    slow = given.directory.checkpoint()  # a thread is about to write this checkpoint
    given.directory.delete_log("t", 0, UNIQUE)
    given.directory.create_log("t", 0, b"another-topic-id", LogConfig(), now_ms=NOW_MS)
    slow.run()
    assert decode_offsets(given.disk.read_bytes("/data/recovery-point-offset-checkpoint")).get(("t", 0), 0) == 0
    assert LogOnDisk(given.disk.after_kill()).log.log_end_offset == 0


def test_a_checkpoint_of_before_the_deletion_is_replaced_before_the_name_is_used_again() -> None:
    given = LogOnDisk()
    given.append(records=5)
    given.sync()
    slow = given.directory.checkpoint()
    given.directory.delete_log("t", 0, UNIQUE)
    slow.run()
    given.directory.create_log("t", 0, b"another-topic-id", LogConfig(), now_ms=NOW_MS)
    assert decode_offsets(given.disk.read_bytes("/data/recovery-point-offset-checkpoint")).get(("t", 0), 0) == 0


def test_names_that_no_checkpoint_holds_cost_no_write_when_they_are_used_again() -> None:
    given = LogOnDisk()
    given.directory.delete_log("t", 0, UNIQUE)
    given.directory.write_checkpoints()
    given.disk.log.clear()
    given.directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    assert not [call for call in given.disk.log if "checkpoint" in call]


def test_directories_that_a_thread_has_made_are_used_and_others_made_when_they_are_needed() -> None:
    disk = FakeDisk()
    directory = LogDirectory.open(disk, "/data", NODE)
    directory.prepare([("t", 0, TOPIC_ID)]).make()
    calls = disk.calls
    directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    assert disk.calls == calls
    directory.create_log("t", 1, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    directory.close()
    again = LogDirectory.open(disk, "/data", NODE)
    assert [again.topic_id_of("t", partition) for partition in (0, 1)] == [TOPIC_ID, TOPIC_ID]


def test_a_directory_that_a_thread_could_not_make_is_tried_again_and_then_refused() -> None:
    disk = FakeDisk()
    directory = LogDirectory.open(disk, "/data", NODE)
    new = directory.prepare([("t", 0, TOPIC_ID), ("t", 1, TOPIC_ID), ("t", 2, TOPIC_ID)])
    disk.fail(2, Fault.ENOSPC)  # the call that writes the first log's partition.metadata
    new.make()
    directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    assert directory.topic_id_of("t", 0) == TOPIC_ID
    new = directory.prepare([("u", 0, TOPIC_ID)])
    disk.fail_from(1, Fault.ENOSPC)
    new.make()
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        directory.create_log("u", 0, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    assert ("u", 0) in directory.failed


def test_a_thread_makes_no_directory_whose_name_a_deleted_partition_may_still_have() -> None:
    given = LogOnDisk()
    given.append()
    given.directory.write_checkpoints()
    given.directory.delete_log("t", 0, UNIQUE)
    # The checkpoint still has the old log's recovery point.
    given.directory.prepare([("t", 0, TOPIC_ID)]).make()
    assert not given.disk.exists("/data/t-0")
    log = given.directory.create_log("t", 0, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    assert log.log_end_offset == 0


def test_pending_work_of_threads_does_not_change_a_new_partition_of_the_same_name() -> None:
    given = LogOnDisk(config=LogConfig(segment_bytes=200, retention_ms=0))
    for _ in range(5):
        given.append(timestamp=0)
    given.log.assign_leader_epoch(9)
    removal = given.log.retention(NOW_MS)
    ticket = given.log.start_sync()
    assert removal is not None
    given.directory.delete_log("t", 0, UNIQUE)
    given.directory.create_log("t", 0, b"another-topic-id", LogConfig(), now_ms=NOW_MS)
    before = given.disk.list_directory("/data/t-0")
    with pytest.raises(OSError, match="deleted"):
        removal.rename()
    ticket.run()
    assert ticket.error is not None
    assert given.disk.list_directory("/data/t-0") == before


def test_cleaner_offsets_are_kept_beside_them() -> None:
    given = LogOnDisk()
    assert given.directory.read_cleaner_offsets() == {}
    given.directory.write_cleaner_offsets({("t", 0): 120})
    assert given.directory.read_cleaner_offsets() == {("t", 0): 120}


@pytest.mark.parametrize("logs", [3, 20])
def test_every_log_is_safe_once_the_directory_is_closed(logs: int) -> None:
    """Checks that a clean stop syncs every log. A few logs are synced one at a time. If there are many logs, the file
    system that contains them is synced as a whole."""
    disk = FakeDisk()
    directory = LogDirectory.open(disk, "/data", NODE)
    for at in range(logs):
        log = directory.create_log(f"t{at}", 0, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
        log.assign_leader_epoch(4)
        log.append(_batch(), now_ms=NOW_MS)
        log.write_staged()
    directory.close()
    for state in disk.after_power_failure(seed=logs):
        again = LogDirectory.open(state.disk, "/data", NODE)
        assert again.was_clean
        for topic, partition in again.partitions():
            log = again.open_log(topic, partition, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
            assert (log.log_end_offset, log.end_offset_for_epoch(4)) == (1, (4, 1))
        assert len(again.logs) == logs


@pytest.mark.parametrize("logs", [3, 20])
def test_closing_what_has_not_changed_writes_no_log(logs: int) -> None:
    disk = FakeDisk()
    directory = LogDirectory.open(disk, "/data", NODE)
    for at in range(logs):
        directory.create_log(f"t{at}", 0, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    directory.close()
    again = LogDirectory.open(disk, "/data", NODE)
    for topic, partition in again.partitions():
        again.open_log(topic, partition, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    disk.log.clear()
    again.close()
    assert not [call for call in disk.log if "/data/t" in call]


def test_a_file_system_that_cannot_be_synced_leaves_no_mark_of_a_clean_shutdown() -> None:
    failed = 0
    for call in range(1, 200):
        disk = FakeDisk()
        directory = LogDirectory.open(disk, "/data", NODE)
        for at in range(10):
            log = directory.create_log(f"t{at}", 0, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
            log.append(_batch(), now_ms=NOW_MS)
            log.write_staged()
        disk.log.clear()
        disk.fail(call, Fault.EIO)
        try:
            directory.close()
        except (OSError, LogFailed):
            if disk.log[call - 1].startswith("sync_file_system"):
                failed += 1
                assert not disk.exists("/data/.kafka_cleanshutdown")
        else:
            break
    assert failed == 2, "both syncs were made to fail once"


def _batch() -> bytearray:
    return build_batch([NewRecord(b"key", b"value", NOW_MS)])
