"""Builds the contents of data directories as they are after a clean stop. The directories are small, but contain files
and records of every kind."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

from odradek.broker.metadata.files import bootstrap_snapshot
from odradek.broker.metadata.records import IgnoredRecord, decode_record
from odradek.broker.metadata.supported_features import METADATA_VERSION, SUPPORTED_FEATURES
from odradek.protocol.errors import KafkaError
from odradek.protocol.records import batches, records_of
from odradek.protocol.struct import Message
from odradek.protocol.topic_partition import CLUSTER_METADATA, GROUP_OFFSETS, TRANSACTION_STATE
from odradek.storage.log_config import LogConfig
from odradek.storage.log_directory import LogDirectory
from tests.damage.outcome import Outcome, outcome_of
from tests.simulation.invariants import ask_for_offset
from tests.simulation.stage import GROUP, P0, P1, Stage
from tests.support.compaction_scene import COMPACT, CompactedLog
from tests.support.fake_disk import FakeDisk
from tests.support.log_builder import NODE, NOW_MS, TOPIC_ID, LogOnDisk
from tests.support.transaction_listing import all_listed

DATA = "/data"
INTERNAL = (CLUSTER_METADATA, GROUP_OFFSETS, TRANSACTION_STATE)


@dataclass(frozen=True, slots=True)
class StartResult:
    """The result of starting from a directory.

    facts  facts about the broker as a whole
    logs   the outcome of each log, or the reason for its refusal, keyed by directory name
    """

    facts: dict[str, object] = field(default_factory=dict)
    logs: dict[str, Outcome | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoppedDirectory:
    """The files of a data directory after a clean stop.

    damaged  suffix of the file names to damage; all files by default
    """

    files: dict[str, bytes]  # by path
    start: Callable[[FakeDisk], StartResult]
    damaged: str = ""

    def with_file(self, path: str, content: bytes) -> FakeDisk:
        disk = FakeDisk()
        for directory in sorted({name.rpartition("/")[0] for name in self.files}):
            disk.make_directory(directory)
        for name, original in self.files.items():
            disk.write_bytes(name, content if name == path else original)
        return disk


def files_of(disk: FakeDisk, directory: str = DATA) -> Iterator[tuple[str, bytes]]:
    for name in sorted(disk.list_directory(directory)):
        path = f"{directory}/{name}"
        try:
            yield path, disk.read_bytes(path)
        except IsADirectoryError:
            yield from files_of(disk, path)


def seen_log(directory: LogDirectory, topic: str, partition: int) -> Outcome | str:
    try:
        return outcome_of(directory.logs[topic, partition])
    except KeyError:
        return directory.failed[topic, partition]
    except KafkaError as refusal:
        return str(refusal)


# --- A partition without a broker.


def start_log(config: LogConfig) -> Callable[[FakeDisk], StartResult]:
    def start(disk: FakeDisk) -> StartResult:
        directory = LogDirectory.open(disk, DATA, NODE)
        with suppress(KafkaError):  # `failed` contains the reason.
            directory.open_log("t", 0, TOPIC_ID, config, now_ms=NOW_MS)
        if directory.failed:  # A second start must reach the same result.
            directory.close(broker_epoch=12)
            directory = LogDirectory.open(disk, DATA, NODE)
            with suppress(KafkaError):
                directory.open_log("t", 0, TOPIC_ID, config, now_ms=NOW_MS)
        directory.read_cleaner_offsets()  # The offsets do not matter, because compacting twice gives the same result.
        return StartResult({"meta": directory.meta}, {"t-0": seen_log(directory, "t", 0)})

    return start


def stopped_log(fill: Callable[[LogOnDisk], None], config: LogConfig) -> StoppedDirectory:
    given = LogOnDisk(config=config)
    fill(given)
    given.directory.close(broker_epoch=11)
    return StoppedDirectory(dict(files_of(given.disk)), start_log(config))


def transactions(given: LogOnDisk) -> None:
    """Writes overlapping aborted transactions, a committed transaction, idempotent records, and a transaction that is
    left open."""
    for epoch in range(3):
        given.log.assign_leader_epoch(epoch)
        given.append(10, transactional=True, sequence=2 * epoch, records=2, timestamp=NOW_MS - 900 + epoch)
        given.append(11, transactional=True, sequence=epoch, timestamp=NOW_MS - 700 + epoch)
        given.append(records=2, timestamp=NOW_MS - 800 + epoch)
        given.end(10, commit=False, coordinator_epoch=epoch)
        given.append(12, sequence=2 * epoch, records=2, timestamp=NOW_MS - 600 + epoch)
        given.end(11, commit=epoch == 1)
    given.append(13, transactional=True, epoch=4, timestamp=NOW_MS - 1000)
    given.append(12, sequence=6)
    given.append(10, transactional=True, sequence=6)
    given.end(10, commit=False, coordinator_epoch=5)


def trimmed(given: LogOnDisk) -> None:
    transactions(given)
    given.log.delete_records_before(12)


def compacted() -> StoppedDirectory:
    """Returns a log that was cleaned once while it contained an aborted transaction and a tombstone, and was then
    appended to again."""
    given = CompactedLog()
    given.log.assign_leader_epoch(3)
    for number in range(9):
        given.append((f"key {number % 3}", f"value {number}"), producer_id=7, sequence=number)
    given.append(("key 1", "aborted"), producer_id=8, transactional=True)
    given.end_txn(8, commit=False)
    given.append(("key 2", None), producer_id=7, sequence=9)
    given.roll()
    given.clean()
    given.append(("key 0", "new"), producer_id=7, sequence=10)
    given.append(("key 0", "open"), producer_id=9, transactional=True)
    given.stop()
    return StoppedDirectory(dict(files_of(given.disk)), start_log(COMPACT))


# --- A broker with both coordinators.


def start_broker(disk: FakeDisk) -> StartResult:
    stage = Stage(disk)
    broker = stage.broker
    image = broker.metadata.image
    offsets: list[int] = []
    ask_for_offset(broker, GROUP, offsets.append)
    stage.wait(100)
    try:
        listed = [repr(each) for each in all_listed(broker.transactions)]
    except KafkaError as refusal:
        listed = [str(refusal.code)]
    logs = {
        f"{topic.name}-{each.partition_id}": seen_log(broker.log_directory, topic.name, each.partition_id)
        for topic in image.topics.values()
        for each in topic.partitions
    }
    facts = {
        "meta": broker.log_directory.meta,
        "topics": {topic.name: topic.topic_id for topic in image.topics.values()},
        "features": dict(image.features),
        "next producer id": image.next_producer_id,
        "offset": offsets,
        "transactions": listed,
    }
    return StartResult(facts, logs)


def broker_with_everything() -> StoppedDirectory:
    """Returns the directory of a broker with a committed, an aborted and an open transaction, each of which commits a
    group's offset."""
    stage = Stage(settings={"transactional_id_expiration_ms": "600000000"})
    stage.init()
    for number, ending in enumerate((True, False, None)):
        stage.produce(f"record {number}", P0)
        stage.produce(f"other record {number}", P1)
        stage.commit_offset(10 * (number + 1))
        if ending is not None:
            stage.end(committed=ending)
            stage.wait(200)
    stop(stage)
    return StoppedDirectory(dict(files_of(stage.disk)), start_broker)


def broker_with_metadata_snapshots() -> StoppedDirectory:
    """Returns the directory of a broker with two metadata snapshots. The metadata log starts at the end of the older
    one, as in Kafka."""
    stage = Stage()
    log = stage.broker.log_directory.logs[CLUSTER_METADATA, 0]
    portion = b"".join(log.reader.scan(0))
    headers = [header for _, header in batches(portion)]
    for end_offset in (headers[len(headers) // 2].base_offset, headers[-1].next_offset):
        records = metadata_below(portion, end_offset)
        name = f"{log.directory}/{end_offset:020d}-{1:010d}.checkpoint"
        stage.disk.write_bytes(name, bootstrap_snapshot(records, SUPPORTED_FEATURES[METADATA_VERSION][1], NOW_MS))
    log.delete_records_before(headers[len(headers) // 2].base_offset)
    stop(stage)
    return StoppedDirectory(dict(files_of(stage.disk)), start_broker, damaged=".checkpoint")


def metadata_below(portion: bytes, end_offset: int) -> list[Message]:
    data = [at for at, header in batches(portion) if not header.is_control and header.base_offset < end_offset]
    decoded = [decode_record(record.value or b"") for at in data for record in records_of(portion, at)]
    return [record for record in decoded if not isinstance(record, IgnoredRecord)]


def stop(stage: Stage) -> None:
    """Stops the stage as `Broker.stop` does."""
    broker = stage.broker
    broker.housekeeping.stop()
    broker.transactions.stop()
    broker.groups.stop()
    broker.metadata.close()
    broker.log_directory.close(broker_epoch=broker.metadata.broker_epoch)
    broker.kill()


ONE_SEGMENT = LogConfig(index_interval_bytes=150)
MANY_SEGMENTS = LogConfig(segment_bytes=500, index_interval_bytes=100)
DIRECTORIES: dict[str, Callable[[], StoppedDirectory]] = {
    "one segment": lambda: stopped_log(transactions, ONE_SEGMENT),
    "many segments": lambda: stopped_log(transactions, MANY_SEGMENTS),
    "trimmed": lambda: stopped_log(trimmed, MANY_SEGMENTS),
    "compacted": compacted,
    "a broker": broker_with_everything,
    "metadata snapshots": broker_with_metadata_snapshots,
}


@cache
def stopped(name: str) -> StoppedDirectory:
    return DIRECTORIES[name]()
