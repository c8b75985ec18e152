"""Logs in memory and batches for tests. A test prepares its initial state by appending to a log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from odradek.protocol.control_records import marker_batch
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records import NewRecord, batches, build_batch, records_of
from odradek.storage.log import AppendResult, Log, Origin
from odradek.storage.log_config import LogConfig
from odradek.storage.log_directory import DirectoryId, LogDirectory
from odradek.storage.verification import VerificationGuard
from tests.support.fake_disk import FakeDisk

NODE = DirectoryId(1, None, "cluster", "directory")
NOW_MS = 1_000_000
TOPIC_ID = b"topic-id-16bytes"


class LogOnDisk:
    """The partition `t-0` of a data directory on a disk in memory. Appends are written immediately."""

    def __init__(self, disk: FakeDisk | None = None, config: LogConfig | None = None, *, now_ms: int = NOW_MS) -> None:
        self.disk = disk or FakeDisk()
        self.config = config or LogConfig()
        self.now_ms = now_ms
        self.directory = LogDirectory.open(self.disk, "/data", NODE)
        if ("t", 0) in self.directory.partitions():
            self.log = self.directory.open_log("t", 0, TOPIC_ID, self.config, now_ms=now_ms)
        else:
            self.log = self.directory.create_log("t", 0, TOPIC_ID, self.config, now_ms=now_ms)

    def stage(
        self,
        producer_id: int = -1,
        *,
        epoch: int = 0,
        sequence: int = 0,
        records: int = 1,
        transactional: bool = False,
        origin: Origin = Origin.CLIENT,
        timestamp: int | None = None,
        guard: VerificationGuard | None = None,
        value: bytes = b"value",
    ) -> AppendResult:
        at_ms = self.now_ms if timestamp is None else timestamp
        batch = build_batch(
            [NewRecord(b"key", value, at_ms) for _ in range(records)],
            producer_id=producer_id,
            producer_epoch=epoch if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            is_transactional=transactional,
        )
        return self.log.append(batch, origin=origin, now_ms=self.now_ms, guard=guard)

    def append(
        self,
        producer_id: int = -1,
        *,
        epoch: int = 0,
        sequence: int = 0,
        records: int = 1,
        transactional: bool = False,
        origin: Origin = Origin.CLIENT,
        timestamp: int | None = None,
        guard: VerificationGuard | None = None,
        value: bytes = b"value",
    ) -> AppendResult:
        appended = self.stage(
            producer_id,
            epoch=epoch,
            sequence=sequence,
            records=records,
            transactional=transactional,
            origin=origin,
            timestamp=timestamp,
            guard=guard,
            value=value,
        )
        self.log.write_staged()
        return appended

    def verify(
        self, producer_id: int, *, epoch: int = 0, sequence: int | None = 0, supports_epoch_bump: bool = True
    ) -> VerificationGuard:
        """Starts the verification that precedes the first batch of a transaction. The test decides its outcome."""
        return self.log.begin_verification(
            producer_id, epoch, sequence, supports_epoch_bump=supports_epoch_bump, now_ms=self.now_ms
        )

    def end(
        self,
        producer_id: int,
        *,
        commit: bool,
        epoch: int = 0,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
        write: bool = True,
    ) -> AppendResult:
        """Appends a transaction marker."""
        batch = marker_batch(
            producer_id=producer_id,
            producer_epoch=epoch,
            is_commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=self.now_ms,
        )
        appended = self.log.append(
            batch, origin=Origin.COORDINATOR, now_ms=self.now_ms, transaction_version=transaction_version
        )
        if write:
            self.log.write_staged()
        return appended

    def fill_to(self, offset: int) -> None:
        """Appends plain records up to `offset` (exclusive)."""
        if offset > self.log.log_end_offset:
            self.append(records=offset - self.log.log_end_offset)

    def sync(self) -> None:
        ticket = self.log.start_sync()
        ticket.run()
        self.log.finish_sync(ticket)

    def closed_and_opened(self, *, now_ms: int | None = None) -> LogOnDisk:
        self.directory.close()
        return LogOnDisk(self.disk, self.config, now_ms=self.now_ms if now_ms is None else now_ms)

    def killed_and_opened(self, *, now_ms: int | None = None) -> LogOnDisk:
        return LogOnDisk(self.disk.after_kill(), self.config, now_ms=self.now_ms if now_ms is None else now_ms)


def offsets(log: Log, start_offset: int | None = None, end_offset: int | None = None) -> list[int]:
    """Returns the offsets of all records, including control records."""
    start = log.log_start_offset if start_offset is None else start_offset
    return [
        record.offset
        for portion in log.reader.scan(start, end_offset)
        for position, _ in batches(portion)
        for record in records_of(portion, position)
        if record.offset >= start
    ]


@contextmanager
def refused(code: ErrorCode) -> Iterator[None]:
    with pytest.raises(KafkaError) as caught:
        yield
    assert caught.value.code is code
