"""Surveys a partition in one pass over its batch headers. Finds its bounds, its aborted transactions, and positions
where a reader can begin.

The result describes the log at one moment. It stays correct for offsets below `end_offset`, even if a broker continues
to write.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.files.names import SNAPSHOT, TXN_INDEX
from odradek.files.offline.directories import PartitionLog
from odradek.files.offline.segments import (
    BadIndex,
    SegmentFile,
    largest_timestamp,
    read_aborted,
    read_snapshot,
)
from odradek.files.offline.transactions import AbortedRange, Transactions
from odradek.files.offline.walk import OnDamage, headers, read_stable, refuse
from odradek.protocol.batch_header import NO_TIMESTAMP


class BatchPlace(NamedTuple):
    """The position of a batch where a reader can begin."""

    offset: int
    base_offset: int  # base offset of the segment that contains the batch
    inode: int
    position: int
    size_bytes: int = 0  # number of bytes from this place to the next place, or to the end of the segment
    max_timestamp: int | None = None  # largest timestamp of the records in these bytes; None if unknown


@dataclass(slots=True)
class PartitionSurvey:
    """The result of `survey`.

    start_offset   start of the log, according to the checkpoint or the first segment
    places         positions of batches about `cut_bytes` apart, including the first of each segment
    not_older      for each requested timestamp, the first batch with a record at or after that timestamp
    """

    log: PartitionLog
    start_offset: int
    end_offset: int
    last_stable_offset: int
    aborted: list[AbortedRange]
    places: list[BatchPlace]
    not_older: dict[int, BatchPlace] = field(default_factory=dict)


def survey(
    log: PartitionLog,
    *,
    cut_bytes: int,
    timestamps: Collection[int] = (),
    by_index: bool = False,
    on_damage: OnDamage = refuse,
) -> PartitionSurvey:
    """Surveys a partition.

    cut_bytes   minimum distance between `places` in a segment
    by_index    whether to trust the transaction indexes and snapshots of finished segments, and to read only the last
                segment. All segments are read if timestamps are requested, if the snapshot is missing, or if a file is
                damaged.

    Raises DamagedLog through `on_damage`; FileNotFoundError if the partition is deleted.
    """

    def read(segments: list[SegmentFile]) -> PartitionSurvey:
        if by_index and segments and not timestamps:
            with suppress(BadIndex, FileNotFoundError):  # the batches contain the same information and are read instead
                return _by_index(log, segments, cut_bytes, on_damage)
        return _survey(log, segments, Transactions(), cut_bytes, timestamps, on_damage)

    return read_stable(log.directory, read)


def _by_index(log: PartitionLog, segments: list[SegmentFile], cut_bytes: int, on_damage: OnDamage) -> PartitionSurvey:
    active = segments[-1]
    aborted = [each for segment in segments[:-1] for each in read_aborted(segment.beside(TXN_INDEX))]
    snapshot = read_snapshot(active.beside(SNAPSHOT))
    opened = {
        each.producer_id: each.current_txn_first_offset for each in snapshot if each.current_txn_first_offset >= 0
    }
    found = _survey(log, segments[-1:], Transactions.after_snapshot(opened), cut_bytes, (), on_damage)
    found.aborted[:0] = aborted
    found.start_offset = max(log.log_start_offset, segments[0].base_offset)
    found.places[:0] = [
        BatchPlace(each.base_offset, each.base_offset, each.inode, 0, each.size_bytes, largest_timestamp(each))
        for each in segments[:-1]
    ]
    return found


def _survey(
    log: PartitionLog,
    segments: list[SegmentFile],
    transactions: Transactions,
    cut_bytes: int,
    timestamps: Collection[int],
    on_damage: OnDamage,
) -> PartitionSurvey:
    places: list[BatchPlace] = []
    not_older: dict[int, BatchPlace] = {}
    waiting = sorted(timestamps)
    start_offset = max(log.log_start_offset, segments[0].base_offset) if segments else log.log_start_offset
    end_offset = start_offset
    for segment in segments:
        end_offset = max(end_offset, segment.base_offset)
        first: BatchPlace | None = None
        latest = NO_TIMESTAMP
        for position, header, data in headers(segment, 0, segment.base_offset, on_damage=on_damage):
            if first is None or position >= first.position + cut_bytes:
                if first is not None:
                    places.append(first._replace(size_bytes=position - first.position, max_timestamp=latest))
                first, latest = (
                    BatchPlace(header.base_offset, segment.base_offset, segment.inode, position),
                    NO_TIMESTAMP,
                )
            latest = max(latest, header.max_timestamp)
            while waiting and header.max_timestamp >= waiting[0] and not header.is_control:
                if header.last_offset < start_offset:
                    break
                not_older[waiting.pop(0)] = BatchPlace(header.base_offset, segment.base_offset, segment.inode, position)
            transactions.add(header, data)
            end_offset = header.base_offset + header.last_offset_delta + 1  # the highest so far, because offsets ascend
        if first is not None:
            places.append(first._replace(size_bytes=segment.size_bytes - first.position, max_timestamp=latest))
    stable = transactions.last_stable_offset(end_offset)
    return PartitionSurvey(log, start_offset, end_offset, stable, transactions.aborted, places, not_older)
