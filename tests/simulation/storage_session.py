"""A user of the storage package that records the package's promises and checks after a crash that they have been
kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from odradek.protocol.records import NewRecord, batches, build_batch, crc_ok, records_of
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log import Log
from odradek.storage.log_config import LogConfig
from odradek.storage.log_directory import DirectoryId, LogDirectory
from tests.support.fake_disk import FakeDisk

ROOT = "/data"
NODE = DirectoryId(1, None, "cluster", "directory")
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=None)
PRODUCER_ID = 7


@dataclass
class Promises:
    """The records, synced offsets, log start offsets and topics that must exist after a crash, and those that may
    exist."""

    written: dict[TopicPartition, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    attempted: dict[TopicPartition, dict[int, set[bytes]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )
    synced: dict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    # log start offsets reached so far, which must not decrease
    start: dict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    # log start offsets requested so far
    may_start: dict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    deleted: set[TopicPartition] = field(default_factory=set)
    topic_ids: dict[TopicPartition, bytes] = field(default_factory=dict)


class Session:
    """A process that opens the directory, works on it, and records each promise that the directory makes."""

    def __init__(self, disk: FakeDisk, promises: Promises) -> None:
        self.disk = disk
        self.promises = promises
        self.directory = LogDirectory.open(disk, ROOT, NODE)
        self.now_ms = 1_000

    def open_all(self) -> None:
        """Opens all partitions, like a broker that knows the partitions from its metadata."""
        found = set(self.directory.partitions())
        for (topic, partition), topic_id in list(self.promises.topic_ids.items()):
            if (topic, partition) in found:
                self.directory.open_log(topic, partition, topic_id, CONFIG, now_ms=self.now_ms)
            else:
                self.directory.create_log(topic, partition, topic_id, CONFIG, now_ms=self.now_ms)

    def log(self, topic: str) -> Log:
        return self.directory.logs[topic, 0]

    def create(self, topic: str, topic_id: bytes = b"t" * 16) -> Log:
        self.promises.topic_ids[topic, 0] = topic_id
        self.promises.deleted.discard((topic, 0))
        return self.directory.create_log(topic, 0, topic_id, CONFIG, now_ms=self.now_ms)

    def stage(self, topic: str, value: bytes, records: int = 1) -> None:
        log = self.log(topic)
        known = log.producer(PRODUCER_ID)
        sequence = 0 if known is None or known.last_sequence is None else known.last_sequence + 1
        batch = build_batch(
            [NewRecord(b"key", value + b"." + str(at).encode(), self.now_ms) for at in range(records)],
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            base_sequence=sequence,
        )
        appended = log.append(batch, now_ms=self.now_ms)
        for at in range(records):
            self.promises.attempted[topic, 0][appended.base_offset + at].add(value + b"." + str(at).encode())

    def write(self, topic: str) -> None:
        log = self.log(topic)
        start = log.high_watermark
        log.write_staged()
        for offset, value in contents(log, start).items():
            self.promises.written[topic, 0][offset] = value

    def append(self, topic: str, value: bytes, records: int = 1) -> None:
        self.stage(topic, value, records)
        self.write(topic)

    def sync(self, topic: str, *, meanwhile: Callable[[], None] | None = None) -> None:
        """Syncs a topic. `meanwhile` is called after the files have been synced, but before the loop is notified."""
        log = self.log(topic)
        ticket = log.start_sync()
        ticket.run()
        if meanwhile is not None:
            meanwhile()
        log.finish_sync(ticket)
        self.promises.synced[topic, 0] = log.synced_offset

    def delete_records(self, topic: str, offset: int) -> None:
        self.promises.may_start[topic, 0] = offset
        self.log(topic).delete_records_before(offset)
        self.checkpoint()
        self.promises.start[topic, 0] = offset

    def retention(self, topic: str, config: LogConfig) -> None:
        log = self.log(topic)
        log.config = config
        self.promises.may_start[topic, 0] = log.high_watermark
        removal = log.retention(self.now_ms)
        if removal is not None:
            removal.rename()
            removal.unlink()

    def checkpoint(self) -> None:
        self.directory.write_checkpoints()

    def delete(self, topic: str) -> None:
        del self.promises.topic_ids[topic, 0]
        doomed = self.directory.delete_log(topic, 0, "d" * 32)
        for forgotten in (
            self.promises.written,
            self.promises.attempted,
            self.promises.synced,
            self.promises.start,
            self.promises.may_start,
        ):
            forgotten.pop((topic, 0), None)
        doomed.remove(self.disk)

    def close(self) -> None:
        self.directory.close()
        for topic, partition in self.promises.topic_ids:
            self.promises.synced[topic, partition] = self.directory.logs[topic, partition].high_watermark


def contents(log: Log, start_offset: int) -> dict[int, bytes]:
    """Reads all records at or after `start_offset`, checks every CRC, and returns the values by offset."""
    found: dict[int, bytes] = {}
    offset = start_offset
    while offset < log.high_watermark:
        result = log.reader.read(offset, max_bytes=1)
        data = b"".join(result.chunks)
        if not data:
            assert not any(log.reader.scan(offset)), f"nothing to read at {offset}, though there are records"
            break
        for position, header in batches(data):
            assert crc_ok(data, position, header.size_bytes), f"a torn batch at {header.base_offset} is served"
            assert header.next_offset > offset, "reading goes on"
            found |= {record.offset: record.value or b"" for record in records_of(data, position)}
            offset = header.next_offset
    return {offset: value for offset, value in found.items() if offset >= start_offset}


def check_promises(disk: FakeDisk, promises: Promises, *, killed: bool) -> None:
    """Opens the disk that a crash has left and compares it with the promises. Then appends to every log and opens the
    disk again.

    killed  whether only the process died, in which case unsynced writes survive
    """
    session = Session(disk, Promises(topic_ids=dict(promises.topic_ids)))
    session.open_all()
    kept: dict[TopicPartition, dict[int, bytes]] = {}
    for (topic, partition), log in session.directory.logs.items():
        key = (topic, partition)
        found = contents(log, log.log_start_offset)
        kept[key] = found
        promised_end = promises.synced[key]
        if killed and promises.written[key]:
            promised_end = max(promised_end, max(promises.written[key]) + 1)
        assert log.log_end_offset >= promised_end, f"{key} ends at {log.log_end_offset}, promised was {promised_end}"
        starts_late = log.log_start_offset > promises.may_start[key] and promised_end > promises.may_start[key]
        assert not starts_late, f"{key} starts at {log.log_start_offset}, though more was synced"
        assert promises.start[key] <= log.log_start_offset, f"{key} starts at {log.log_start_offset}: too early"
        for offset, value in promises.written[key].items():
            if log.log_start_offset <= offset < promised_end:
                assert found.get(offset) == value, f"{key}: record {offset} is {found.get(offset)!r}, not {value!r}"
        for offset, value in found.items():
            assert value in promises.attempted[key][offset], f"{key}: record {offset} is {value!r}, never written"
        _check_producer(log)
        session.append(topic, b"after the crash")
        assert contents(log, log.log_end_offset - 1), "what is appended after a crash can be read"
        assert contents(log, log.log_start_offset).items() >= found.items()
    session.close()
    again = Session(disk, Promises(topic_ids=dict(promises.topic_ids)))
    assert again.directory.was_clean
    again.open_all()
    for key, log in again.directory.logs.items():
        found = contents(log, log.log_start_offset)
        assert {o: v for o, v in found.items() if o in kept[key]} == kept[key], f"{key} changed by a clean restart"
        _check_producer(log)


def _check_producer(log: Log) -> None:
    """Checks that the producer's state agrees with its last batch in the log."""
    last = None
    for portion in log.reader.scan(log.segments[0].base_offset):
        for _, header in batches(portion):
            last = header
    known = log.producer(PRODUCER_ID)
    if last is not None:
        assert known is not None, f"{log}: the producer is forgotten"
        assert (known.last_sequence, known.last_data_offset) == (last.last_sequence, last.last_offset)
