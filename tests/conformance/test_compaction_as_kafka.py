"""Tests that Kafka and Odradek produce the same segments when they compact copies of the same log in several rounds.

The log has keys with every codec, tombstones, committed and aborted transactions, and idle and active producers.
Markers and tombstones get their delete horizons in one round and are removed in a later round.
"""

import shutil
import time
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from odradek.files.checkpoints import decode_offsets
from odradek.files.indexes import TxnIndex
from odradek.files.names import CLEANER_OFFSETS
from odradek.protocol.batch_header import BatchHeader, batches
from odradek.protocol.records import Record, records_of
from odradek.storage.cleaner import CleanerPass, cleanable_range
from odradek.storage.disk import RealDisk
from odradek.storage.log_config import LogConfig
from odradek.storage.log_directory import DirectoryId, LogDirectory
from tests.support.oracle import needs_kafka
from tests.support.running_kafka import running_kafka

pytestmark = needs_kafka

TOPIC = "compacted"
SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "segment.ms": "60000",
    "delete.retention.ms": "1",
}
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    segment_ms=60_000,
    delete_retention_ms=1,
    retention_ms=None,
)
BACKOFF = "log.cleaner.backoff.ms"
NEVER_MS, NOW_MS = "86400000", "200"


class Writers:
    """Clients that write one round's records. Record timestamps are ahead of the clock to make segments roll, but by
    less than an hour, which is Kafka's limit. Markers are stamped by the broker, so their timestamps are earlier."""

    def __init__(self, bootstrap: str, round_number: int) -> None:
        self._bootstrap = bootstrap
        self._round = round_number
        self._at_ms = int(time.time() * 1000) + round_number * 850_000

    def _producer(self, **settings: object) -> Producer:
        return Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 50, "log_level": 0, **settings})

    def _write(self, producer: Producer, *keys: str, value: bytes | None = b"value") -> None:
        for key in keys:
            content = None if value is None else value + b" of round %d" % self._round
            producer.produce(TOPIC, key=key, value=content, timestamp=self._at_ms)
            self._at_ms += 3
        producer.flush()

    def roll(self) -> None:
        self._at_ms += 70_000

    def write(self) -> None:
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            plain = self._producer(**{"compression.type": codec, "enable.idempotence": codec != "gzip"})
            self._write(plain, "a", "b", f"{codec}-{self._round}", "a", f"{codec}", value=b"value " * 20)
            self.roll()
            self._write(plain, f"{codec}", "c", "a")
        for name, commits in (("committing", (True, True)), ("aborting", (False, False)), ("mixed", (True, False))):
            transactional = self._producer(**{"transactional.id": name, "compression.type": "lz4"})
            transactional.init_transactions(30)
            for commit in commits:
                transactional.begin_transaction()
                self._write(transactional, "a", "t", f"{name}-{self._round}")
                self.roll()
                self._write(transactional, "t")
                if commit:
                    transactional.commit_transaction(30)
                else:
                    transactional.abort_transaction(30)
        plain = self._producer()
        self._write(plain, "none", f"gzip-{self._round - 1}", value=None)
        self._write(plain, "end")
        self.roll()
        self._write(plain, "active")


def cleaned_to(data: Path) -> int | None:
    path = data / CLEANER_OFFSETS
    return decode_offsets(path.read_bytes()).get((TOPIC, 0)) if path.exists() else None


def set_backoff(admin: AdminClient, value_ms: str) -> None:
    """Sets the backoff of Kafka's cleaner. A change restarts the cleaner threads, which clean immediately and again
    after each backoff."""
    entry = ConfigEntry(BACKOFF, value_ms, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)


def clean_by_kafka(data: Path, admin: AdminClient, before: int | None) -> int:
    set_backoff(admin, NOW_MS)
    try:
        for _ in range(600):
            reached = cleaned_to(data)
            if reached is not None and reached != before:
                return reached
            time.sleep(0.1)
    finally:
        set_backoff(admin, NEVER_MS)
    raise AssertionError("Kafka did not clean the log within a minute")


def clean_by_us(data: Path) -> int:
    disk = RealDisk()
    directory = LogDirectory.open(disk, str(data), DirectoryId(1, None, "", ""))
    now_ms = int(time.time() * 1000)
    log = directory.open_log(TOPIC, 0, None, CONFIG, now_ms=now_ms)
    found = cleanable_range(
        log.segments,
        CONFIG,
        cleaned_to=directory.read_cleaner_offsets().get((TOPIC, 0)),
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset,
        now_ms=now_ms,
    )
    cleaner = CleanerPass(
        disk, log.directory, log.segments, CONFIG, found, log.producers(), now_ms=now_ms, key_map_bytes=1 << 24
    )
    cleaner.build_offset_map()
    while (replacement := cleaner.clean_next()) is not None:
        assert log.replace_segments(replacement)
        replacement.finish()
        replacement.unlink()
    directory.close()
    return cleaner.end_offset


Batch = tuple[BatchHeader, list[Record]]


def contents(data: Path) -> dict[str, list[Batch] | list[tuple[int, int]]]:
    """Returns the batches of each segment, without fields that depend on a clock or library, and the aborted
    transactions in the index.

    These transactions' first offsets are not compared. Our copy is taken from a running Kafka, so its indexes are
    rebuilt from the remaining records.
    """
    found: dict[str, list[Batch] | list[tuple[int, int]]] = {}
    for path in sorted((data / f"{TOPIC}-0").iterdir()):
        if path.suffix == ".log":
            log = path.read_bytes()
            found[path.name] = [(comparable(header), list(records_of(log, at))) for at, header in batches(log)]
        elif path.suffix == ".txnindex" and path.stat().st_size:
            entries = TxnIndex.from_bytes(0, path.read_bytes()).entries()
            found[path.name] = [(txn.producer_id, txn.last_offset) for txn in entries]
    return found


def comparable(header: BatchHeader) -> BatchHeader:
    header = replace(header, crc=0)
    if header.has_delete_horizon:
        header = replace(header, base_timestamp=0)
    return replace(header, batch_length=0) if header.is_compressed or header.has_delete_horizon else header


def test_compaction_agrees_with_kafka_over_rounds_of_writing_and_cleaning(tmp_path: Path) -> None:
    data, before = tmp_path / "kafka", None
    seen: set[tuple[bool, bool, bool]] = set()
    with running_kafka(
        tmp_path, "--data", str(data), "--set", f"{BACKOFF}={NEVER_MS}", "--timeout", "180"
    ) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=SETTINGS)])[TOPIC].result(30)
        for round_number in range(4):
            Writers(bootstrap, round_number).write()
            ours = tmp_path / f"ours-{round_number}"
            shutil.copytree(data, ours)
            before = clean_by_kafka(data, admin, before)
            assert clean_by_us(ours) == before
            theirs = contents(data)
            assert contents(ours) == theirs, f"round {round_number}"
            for path in (data / f"{TOPIC}-0").glob("*.log"):
                for _, header in batches(path.read_bytes()):
                    seen.add((header.is_control, header.has_delete_horizon, header.record_count == 0))
    assert {(True, True, False), (False, True, False), (False, False, True)} <= seen, (
        "the rounds had batches of all kinds"
    )
