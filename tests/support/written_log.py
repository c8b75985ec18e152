"""Writes a partition directory batch by batch, with valid or invalid files, for tests of directory readers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from odradek.protocol.compression import Compression
from odradek.protocol.control_records import marker_batch
from odradek.protocol.records import NewRecord, build_batch
from tests.support.batches import NOW_MS


class WrittenLog:
    """The partition `t-0` below a data directory. `append` and `end` return the offset of the first record that they
    write."""

    def __init__(self, data: Path, topic: str = "t", partition: int = 0) -> None:
        self.data = data
        self.directory = data / f"{topic}-{partition}"
        self.directory.mkdir(parents=True)
        self.next_offset = 0
        self._sequences: dict[tuple[int, int], int] = {}
        self.roll()

    def roll(self) -> Path:
        """Starts a new active segment and returns its path."""
        self.active = self.directory / f"{self.next_offset:020d}.log"
        self.active.touch()
        return self.active

    def append(
        self,
        records: int | Sequence[NewRecord] = 1,
        *,
        producer_id: int = -1,
        epoch: int = 0,
        sequence: int | None = None,
        transactional: bool = False,
        at_ms: int = NOW_MS,
        value: bytes = b"value",
        compression: Compression = Compression.NONE,
        leader_epoch: int = 0,
    ) -> int:
        if isinstance(records, int):
            records = [NewRecord(b"k%d" % n, value, at_ms) for n in range(records)]
        if producer_id >= 0:
            known = self._sequences.get((producer_id, epoch), 0)
            sequence = known if sequence is None else sequence
            self._sequences[producer_id, epoch] = sequence + len(records)
        batch = build_batch(
            records,
            base_offset=self.next_offset,
            producer_id=producer_id,
            producer_epoch=epoch if producer_id >= 0 else -1,
            base_sequence=-1 if sequence is None else sequence,
            is_transactional=transactional,
            compression=compression,
            leader_epoch=leader_epoch,
        )
        return self._write(batch, len(records))

    def end(
        self, producer_id: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0, at_ms: int = NOW_MS
    ) -> int:
        """Appends a transaction marker."""
        return self._write(
            marker_batch(
                producer_id=producer_id,
                producer_epoch=epoch,
                is_commit=commit,
                coordinator_epoch=coordinator_epoch,
                timestamp_ms=at_ms,
                base_offset=self.next_offset,
                leader_epoch=0,
            ),
            1,
        )

    def transaction(self, producer_id: int, *, commit: bool, records: int = 1, epoch: int = 0) -> int:
        """Appends a transaction as with transaction.version 2, where the marker has the next epoch."""
        first = self.append(records, producer_id=producer_id, epoch=epoch, transactional=True)
        self.end(producer_id, commit=commit, epoch=epoch + 1)
        return first

    def skip(self, offsets: int) -> None:
        """Skips offsets, as after compaction or the loss of a batch."""
        self.next_offset += offsets

    def write(self, data: bytes | bytearray) -> None:
        """Appends arbitrary bytes."""
        with self.active.open("ab") as file:
            file.write(data)

    def _write(self, batch: bytes | bytearray, count: int) -> int:
        first = self.next_offset
        self.write(batch)
        self.next_offset += count
        return first


def flip(path: Path, position: int, mask: int = 0xFF) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)
