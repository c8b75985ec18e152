"""A compacted partition on a disk in memory. Tests append as producers, clean on demand, and read the batches back."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.protocol.batch_header import BatchHeader
from odradek.protocol.compression import Compression
from odradek.protocol.control_records import marker_batch, read_marker
from odradek.protocol.records import NewRecord, Record, batches, build_batch, records_of
from odradek.storage.cleaner import CleanableRange, CleanerPass, cleanable_range
from odradek.storage.log import Log, Origin
from odradek.storage.log_config import LogConfig
from tests.support.fake_disk import FakeDisk
from tests.support.log_builder import NOW_MS, LogOnDisk

DELETE_RETENTION_MS = 10_000
COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    retention_ms=None,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=DELETE_RETENTION_MS,
)
MEGABYTE = 1024 * 1024


class CompactedLog:
    """A log with `cleanup.policy=compact`. Time advances only if a test changes `now_ms`. Every `append` writes a
    separate batch."""

    def __init__(self, config: LogConfig = COMPACT, disk: FakeDisk | None = None) -> None:
        self._on_disk = LogOnDisk(disk, config)
        self.disk = self._on_disk.disk
        self.config = config
        self.now_ms = NOW_MS
        self.cleaned_to: int | None = None
        self.key_map_bytes = MEGABYTE
        self.passes = 0

    @property
    def log(self) -> Log:
        return self._on_disk.log

    # --- writing

    def append(
        self,
        *records: tuple[bytes | str | None, bytes | str | None],
        producer_id: int = -1,
        epoch: int = 0,
        sequence: int = 0,
        transactional: bool = False,
        compression: Compression = Compression.NONE,
        timestamps: Iterable[int] | None = None,
        log_append_time_ms: int | None = None,
    ) -> int:
        """Appends a batch of records, each given as (key, value). Returns the batch's base offset."""
        times = list(timestamps) if timestamps is not None else [self.now_ms] * len(records)
        batch = build_batch(
            [NewRecord(octets(key), octets(value), at) for (key, value), at in zip(records, times, strict=True)],
            producer_id=producer_id,
            producer_epoch=epoch if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            is_transactional=transactional,
            compression=compression,
            log_append_time_ms=log_append_time_ms,
        )
        return self._written(batch, Origin.CLIENT)

    def end_txn(self, producer_id: int, *, commit: bool, epoch: int = 0) -> int:
        """Appends a transaction marker. Returns its offset."""
        batch = marker_batch(
            producer_id=producer_id,
            producer_epoch=epoch,
            is_commit=commit,
            coordinator_epoch=0,
            timestamp_ms=self.now_ms,
        )
        return self._written(batch, Origin.COORDINATOR)

    def roll(self) -> None:
        """Rolls the segment, so that all records so far can be cleaned."""
        self.log.roll(self.now_ms)

    def sync(self) -> None:
        self._on_disk.sync()

    def checkpoint(self) -> None:
        self._on_disk.directory.write_checkpoints()

    def stop(self) -> None:
        """Writes the cleaner's checkpoint and stops the log cleanly."""
        directory = self._on_disk.directory
        if self.cleaned_to is not None:
            directory.write_cleaner_offsets({("t", 0): self.cleaned_to})
        directory.close(broker_epoch=11)

    def _written(self, batch: bytearray, origin: Origin) -> int:
        appended = self.log.append(batch, origin=origin, now_ms=self.now_ms)
        self.log.write_staged()
        return appended.base_offset

    # --- cleaning

    def found(self) -> CleanableRange:
        log = self.log
        return cleanable_range(
            log.segments,
            self.config,
            cleaned_to=self.cleaned_to,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            last_stable_offset=log.last_stable_offset,
            now_ms=self.now_ms,
        )

    def start_pass(self) -> CleanerPass:
        log = self.log
        return CleanerPass(
            self.disk,
            log.directory,
            log.segments,
            self.config,
            self.found(),
            log.producers(),
            now_ms=self.now_ms,
            key_map_bytes=self.key_map_bytes,
        )

    def clean(self) -> None:
        """Runs one cleaning pass over everything that can currently be cleaned."""
        cleaner = self.start_pass()
        cleaner.build_offset_map()
        while (replacement := cleaner.clean_next()) is not None:
            assert self.log.replace_segments(replacement)
            replacement.finish()
            replacement.unlink()
        self.cleaned_to = cleaner.end_offset
        self.passes += 1

    def clean_later(self, ms: int = DELETE_RETENTION_MS) -> None:
        """Advances the clock beyond all current delete horizons and runs a cleaning pass."""
        self.now_ms += ms
        self.cleaned_to = None  # makes the complete log dirty, as if new records had arrived
        self.clean()

    # --- reading

    def batches(self) -> list[tuple[BatchHeader, memoryview]]:
        found = []
        for segment in self.log.segments:
            data = memoryview(bytes(segment.read(segment.size_bytes, 0, cached=False))) if segment.size_bytes else b""
            found += [
                (header, memoryview(data)[position : position + header.size_bytes])
                for position, header in batches(data)
            ]
        return found

    def headers(self) -> list[BatchHeader]:
        return [header for header, _ in self.batches()]

    def records(self) -> list[Record]:
        """Returns the records of producers, without control records."""
        return [record for header, batch in self.batches() if not header.is_control for record in records_of(batch)]

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def values(self) -> dict[str, str | None]:
        """Returns each key's last value, as seen by a consumer that reads the complete log."""
        table: dict[str, str | None] = {}
        for record in self.records():
            assert record.key is not None
            table[record.key.decode()] = None if record.value is None else record.value.decode()
        return table

    def control_batches(self) -> list[BatchHeader]:
        return [header for header in self.headers() if header.is_control]

    def committed_values(self) -> dict[str, str]:
        """Returns each key's last value, as seen by a read_committed consumer that reads the complete log by the rules
        for clients."""
        aborted = sorted(
            (first, pid) for pid, first in self.log.reader.aborted_transactions(0, self.log.log_end_offset)
        )
        skipping: set[int] = set()
        table: dict[str, str] = {}
        for header, batch in self.batches():
            while aborted and aborted[0][0] <= header.last_offset:
                skipping.add(aborted.pop(0)[1])
            if header.is_control:
                marker = read_marker(batch, header=header)
                if marker is not None and not marker.is_commit:
                    skipping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipping):
                for record in records_of(batch):
                    assert record.key is not None
                    table.pop(record.key.decode(), None)
                    if record.value is not None:
                        table[record.key.decode()] = record.value.decode()
        return table

    def reopen(self) -> CompactedLog:
        """Reopens the log as after kill -9."""
        again = CompactedLog(self.config, self.disk.after_kill())
        again.cleaned_to, again.now_ms = self.cleaned_to, self.now_ms
        return again


def octets(content: bytes | str | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
