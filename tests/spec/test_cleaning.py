"""Tests that a running broker cleans compacted logs in the right order and at the right time. Appends, deletions and
stops during a cleaning pass cause no loss of records."""

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.partitions.cleaning import REPLACEMENT_RETRY_MS, CleanerServices, LogCleaner
from odradek.broker.partitions.housekeeping import Chore, Housekeeping
from odradek.broker.partitions.partition import Partition
from odradek.files.checkpoints import decode_offsets
from odradek.protocol.compression import Compression
from odradek.protocol.records import NewRecord, batches, build_batch, records_of
from odradek.storage.log import Origin
from tests.support.broker_scene import NOW_MS, BrokerScene
from tests.support.fake_disk import FakeDisk, Fault

BACKOFF_MS = 15_000
CHECKPOINT = "/data/cleaner-offset-checkpoint"


class Scene(BrokerScene):
    def __init__(self, disk: FakeDisk | None = None, **settings: Any) -> None:
        self.disk = disk or FakeDisk()
        super().__init__(self.disk, "/data")
        defaults = {
            "log_cleaner_backoff_ms": BACKOFF_MS,
            "log_cleaner_dedupe_buffer_size": 1 << 20,
            "log_cleaner_io_max_bytes_per_second": float("inf"),
        }
        config: Any = SimpleNamespace(**{**defaults, **settings})
        self.slept: list[float] = []
        services = CleanerServices(config, self.clock, self.timers, self.workers, self.slept.append)
        self.cleaner = LogCleaner(self.log_directory, services)
        chore = Chore(
            "compaction",
            lambda: config.log_cleaner_backoff_ms,
            self.cleaner.visit,
            self.cleaner.clean,
            self.cleaner.stop,
        )
        self.housekeeping = Housekeeping([chore], lambda: self.partitions, self.clock, self.timers)
        self.housekeeping.start(BACKOFF_MS)

    def compacted(self, name: str = "t", **settings: Any) -> Partition:
        settings = {"cleanup_policy": frozenset({"compact"}), "min_cleanable_dirty_ratio": 0.5, **settings}
        self.topic(name, **settings)
        return self.partition(name)

    def write(self, *keys: str, topic: str = "t") -> None:
        """Writes a segment with the given keys, followed by an empty segment."""
        partition = self.partition(topic)
        for key in keys:
            batch = build_batch([NewRecord(key.encode(), b"v", NOW_MS)])
            partition.append(batch, origin=Origin.CLIENT, now_ms=NOW_MS, on_done=lambda error: None)
        self.settle()
        partition.log.roll(NOW_MS)

    def backoff_is_over(self) -> None:
        self.timers.advance(BACKOFF_MS)

    def live(self, ms: int = BACKOFF_MS) -> None:
        self.timers.advance(ms)
        self.settle()

    def keys(self, topic: str = "t") -> list[str]:
        """Returns the keys that a client fetches from offset 0."""
        log = self.partition(topic).log
        found, offset = [], 0
        while offset < log.high_watermark:
            result = log.reader.read(offset, max_bytes=1 << 20)
            for chunk in result.chunks:
                for position, header in batches(chunk):
                    found += [record.key.decode() for record in records_of(chunk, position) if record.key]
                    offset = header.next_offset
        return found

    def cleaned_to(self) -> dict[tuple[str, int], int]:
        return decode_offsets(self.disk.read_bytes(CHECKPOINT)) if self.disk.exists(CHECKPOINT) else {}


def test_a_dirty_log_is_compacted_when_the_backoff_is_over() -> None:
    scene = Scene()
    scene.compacted()
    scene.write("a", "a", "b")
    scene.live(BACKOFF_MS - 1)
    assert scene.keys() == ["a", "a", "b"]
    scene.live(1)
    assert scene.keys() == ["a", "b"]
    assert scene.cleaned_to() == {("t", 0): 3}


def test_topics_that_are_not_compacted_are_left_alone() -> None:
    scene = Scene()
    scene.topic("t")
    scene.write("a", "a")
    scene.live()
    assert scene.keys() == ["a", "a"]
    assert scene.cleaned_to() == {}


def test_one_log_follows_the_other_the_filthiest_first() -> None:
    scene = Scene()
    for name in ("tidy", "filthy"):
        scene.compacted(name)
        scene.write("a", "a", topic=name)
    scene.live()
    scene.write("b", "b", topic="tidy")  # Half of `tidy` is dirty now. The next write makes `filthy` even dirtier.
    scene.write("b", "b", "b", "b", topic="filthy")
    scene.backoff_is_over()
    while scene.keys("filthy") != ["a", "b"]:
        assert scene.keys("tidy") == ["a", "b", "b"]
        scene.workers.finish_one()
    scene.settle()
    assert scene.keys("tidy") == ["a", "b"]


def test_a_log_at_the_minimum_dirty_ratio_is_not_compacted() -> None:
    scene = Scene()
    scene.compacted()
    scene.write("a", "b")
    scene.live()
    scene.write("a", "b")
    scene.live()
    assert scene.keys() == ["a", "b", "a", "b"], "0.5 is not above the ratio"
    scene.write("c")
    scene.live()
    assert scene.keys() == ["a", "b", "c"]


def test_a_log_whose_rest_an_open_transaction_keeps_dirty_has_no_pass_that_is_due() -> None:
    scene = Scene()
    partition = scene.compacted(min_cleanable_dirty_ratio=0.1)
    before = build_batch([NewRecord(b"a", b"v", NOW_MS)])
    partition.append(before, origin=Origin.CLIENT, now_ms=NOW_MS, on_done=lambda error: None)
    open_batch = build_batch(
        [NewRecord(b"b", b"v", NOW_MS)], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    partition.append(open_batch, origin=Origin.COORDINATOR, now_ms=NOW_MS, on_done=lambda error: None)
    scene.write("a", "a")
    assert scene.cleaner.due_ms([partition], NOW_MS) == NOW_MS
    scene.live()
    assert scene.cleaned_to() == {("t", 0): 1}
    assert scene.cleaner.due_ms([partition], NOW_MS) is None


def test_old_files_are_unlinked_after_a_delay_so_that_readers_can_finish() -> None:
    scene = Scene()
    scene.compacted(file_delete_delay_ms=60_000)
    scene.write("a", "a")
    reading = scene.partition("t").log.segments[0]
    scene.live()
    deleted = [name for name in scene.disk.list_directory("/data/t-0") if name.endswith(".deleted")]
    assert "00000000000000000000.log.deleted" in deleted
    assert len(reading.read(1 << 20, 0, cached=False)) > 0
    scene.live(60_000)
    assert not [name for name in scene.disk.list_directory("/data/t-0") if name.endswith(".deleted")]


def test_cleaning_continues_from_its_checkpoint_after_a_restart() -> None:
    scene = Scene()
    scene.compacted()
    scene.write("a", "a")
    scene.live()
    again = Scene(scene.disk.after_kill())
    assert again.log_directory.read_cleaner_offsets() == {("t", 0): 2}


def test_records_appended_during_a_cleaning_pass_are_not_lost() -> None:
    scene = Scene()
    scene.compacted()
    scene.write("a", "a")
    scene.backoff_is_over()
    scene.workers.finish_one()  # The cleaning pass has now read the keys.
    scene.partition("t").append(
        build_batch([NewRecord(b"new", b"v", NOW_MS)]), origin=Origin.CLIENT, now_ms=NOW_MS, on_done=lambda error: None
    )
    scene.settle()
    scene.live(REPLACEMENT_RETRY_MS)  # The finished segment is synced during this time.
    assert scene.keys() == ["a", "new"]


def test_a_sync_that_is_under_way_delays_the_swap() -> None:
    scene = Scene()
    scene.compacted()
    scene.write("a", "a")
    log = scene.partition("t").log
    scene.backoff_is_over()
    ticket = log.start_sync()
    scene.settle()
    assert scene.keys() == ["a", "a"]
    ticket.run()
    log.finish_sync(ticket)
    scene.live(REPLACEMENT_RETRY_MS)
    assert scene.keys() == ["a"]


@pytest.mark.parametrize("jobs_done", range(4))
def test_a_topic_deleted_meanwhile_ends_the_pass(jobs_done: int) -> None:
    scene = Scene()
    scene.compacted()
    scene.write("a", "a")
    scene.backoff_is_over()
    for _ in range(jobs_done):
        scene.workers.finish_one()
    scene.delete_topic("t")
    scene.settle()
    assert scene.cleaned_to() == {}
    scene.compacted()
    scene.write("x", "x")
    scene.live()
    assert scene.keys() == ["x"]


def test_a_new_topic_of_the_same_name_is_not_taken_for_clean() -> None:
    scene = Scene()
    scene.compacted()
    scene.write("a", "a")
    scene.live()
    scene.delete_topic("t")
    scene.compacted()
    scene.write("b", "b", "b")
    scene.live()
    assert scene.keys() == ["b"]


def test_records_deleted_meanwhile_stay_deleted() -> None:
    scene = Scene()
    scene.compacted()
    scene.write("a", "b", "a")
    scene.backoff_is_over()
    scene.workers.finish_one()
    log = scene.partition("t").log
    log.delete_records_before(3)
    removal = log.retention(scene.clock.now_ms())
    assert removal is not None
    removal.rename()
    scene.settle()
    assert log.log_start_offset == 3
    assert [segment.base_offset for segment in log.segments] == [3]


def test_a_stop_ends_the_pass() -> None:
    scene = Scene()
    scene.compacted()
    scene.write("a", "a")
    scene.backoff_is_over()
    scene.housekeeping.stop()
    scene.settle()
    assert scene.keys() == ["a", "a"]
    assert scene.cleaned_to() == {}


def test_a_log_that_cannot_be_read_is_left_alone_and_others_are_not() -> None:
    scene = Scene()
    scene.compacted("bad")
    scene.compacted("good")
    scene.write("a", "a", topic="bad")
    scene.write("a", "a", topic="good")
    scene.partition("bad").log.segments[0].file.write_at([b"\xff"], 70)
    scene.live()
    assert scene.keys("good") == ["a"]
    assert scene.cleaner.uncleanable == {scene.partition("bad")}
    scene.live()
    assert scene.cleaned_to() == {("good", 0): 2}


def test_a_log_with_a_record_too_large_when_decompressed_is_left_alone() -> None:
    """M4: the cleaner does not try to clean the log again (docs/spec/kafka-4.4.md#s4-3)."""
    scene = Scene()
    limit_bytes = 1_000
    for name, compression in (("plain", Compression.NONE), ("packed", Compression.GZIP)):
        scene.compacted(name, max_decompressed_message_bytes=limit_bytes)
        for _ in range(2):
            batch = build_batch([NewRecord(b"a", bytes(2 * limit_bytes), NOW_MS)], compression=compression)
            partition = scene.partition(name)
            partition.append(batch, origin=Origin.COORDINATOR, now_ms=NOW_MS, on_done=lambda error: None)
        scene.settle()
        partition.log.roll(NOW_MS)
    scene.live()
    assert scene.cleaner.uncleanable == {scene.partition("packed")}
    assert (scene.keys("plain"), scene.keys("packed")) == (["a"], ["a", "a"])


@pytest.mark.parametrize("call", range(1, 30))
@pytest.mark.parametrize("fault", Fault)
def test_a_disk_that_fails_costs_a_pass_and_no_record(fault: Fault, call: int) -> None:
    scene = Scene()
    scene.compacted()
    scene.write("a", "b", "a", "b")
    scene.disk.fail(call, fault)
    scene.live()
    assert scene.keys() in (["a", "b", "a", "b"], ["a", "b"])


def test_the_speed_limit_is_kept_by_waiting_in_the_thread() -> None:
    scene = Scene(log_cleaner_io_max_bytes_per_second=1000.0)
    scene.compacted()
    scene.write("a", "a")
    size = scene.partition("t").log.size_bytes
    scene.live()
    assert sum(scene.slept) >= 2 * size / 1000, "read twice"
