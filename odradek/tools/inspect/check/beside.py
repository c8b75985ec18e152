"""Compares the files that accompany a log with the log itself: transaction indexes, offset indexes and producer
snapshots.

A missing file is not damage. The active segment has none of these files while a broker is writing to it, and a broker
recreates all of them when it starts.
"""

from __future__ import annotations

from bisect import bisect_left

from odradek.files.names import OFFSET_INDEX, SNAPSHOT, TXN_INDEX
from odradek.files.offline.segments import (
    BadIndex,
    SegmentFile,
    read_aborted,
    read_snapshot,
)
from odradek.files.structures import OFFSET_INDEX_ENTRY
from odradek.tools.inspect.check.findings import Flaw
from odradek.tools.inspect.check.partition import PartitionCheck


def index_entries(segment: SegmentFile) -> dict[int, tuple[int, int]]:
    """Reads an offset index up to its preallocated zeros. For each batch position, returns the batch's last offset and
    the position of the index entry."""
    try:
        data = segment.beside(OFFSET_INDEX).read_bytes()
    except FileNotFoundError:
        return {}
    found = {}
    size = OFFSET_INDEX_ENTRY.size_bytes
    whole = data[: len(data) // size * size]
    for number, (relative, position) in enumerate(OFFSET_INDEX_ENTRY.packed.iter_unpack(whole)):
        if not relative and not position:
            break
        found[position] = segment.base_offset + relative, number * size
    return found


def report_wrong_entry(check: PartitionCheck, segment: SegmentFile, position: int, entry: tuple[int, int]) -> None:
    offset, at = entry
    text = f"the entry for offset {offset} points to byte {position}, but the batch there does not end with this offset"
    check.report(Flaw.OFFSET_INDEX, segment.beside(OFFSET_INDEX), at, offset, text)


def check_snapshot(check: PartitionCheck, segment: SegmentFile) -> None:
    snapshot = segment.beside(SNAPSHOT)
    try:
        read_snapshot(snapshot)
    except FileNotFoundError:
        pass
    except BadIndex as error:
        check.report(Flaw.SNAPSHOT, snapshot, 0, segment.base_offset, str(error).removeprefix(f"{snapshot}: "))


def check_txn_index(check: PartitionCheck, segment: SegmentFile, end_offset: int, log_start_offset: int) -> None:
    """Checks a transaction index. Must be called after the last segment has been read, because it may become clear only
    in the last segment that a log is compacted.

    end_offset  end offset of the segment (exclusive)
    """
    if segment.is_active:
        return  # the active segment's index is written only when the segment is rolled
    path = segment.beside(TXN_INDEX)
    try:
        indexed = set(read_aborted(path))
    except BadIndex as error:
        check.report(Flaw.TXN_INDEX, path, 0, segment.base_offset, str(error).removeprefix(f"{path}: "))
        return
    aborted = check.transactions.aborted
    first = bisect_left(aborted, segment.base_offset, key=lambda each: each.last_offset)
    after = bisect_left(aborted, end_offset, key=lambda each: each.last_offset)
    listed = set(aborted[first:after])
    # The index can contain a lower first offset for a transaction, from before the current start of the log.
    longer = {(each.producer_id, each.last_offset) for each in indexed}
    for each in sorted(listed - indexed):
        if (each.producer_id, each.last_offset) not in longer:
            text = f"the aborted transaction of producer {each.producer_id} from offset {each.first_offset} is missing"
            check.report(Flaw.TXN_INDEX, path, 0, each.first_offset, text)
    if check.is_compacted:
        return  # compaction removes the records of aborted transactions first
    for each in sorted(indexed - listed):
        if each.first_offset >= log_start_offset:
            text = (
                f"no transaction of producer {each.producer_id} that begins at offset {each.first_offset} was aborted"
            )
            check.report(Flaw.TXN_INDEX, path, 0, each.first_offset, text)
