"""One pass of compaction over one log: the file work around `odradek.storage.compaction`.

    CleanerPass(…)        loop     takes the log's segments as they are now
    learn()               thread   the latest offset of each key
    clean_next()          thread   one group of segments → one `.cleaned` segment, renamed to `.swap`
    log.replace_segments, replacement.finish, …     as SegmentReplacement says; then clean_next() again

The log continues to be written meanwhile: appending changes nothing that a pass reads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from odradek.protocol.batch_header import BatchHeader, batches, crc_ok, read_batch_header
from odradek.protocol.errors import MalformedMessage
from odradek.storage.cleanable import Cleanable, groups
from odradek.storage.compaction import BatchAt, LastOfProducer, PassRules, RecordFilter, collect_keys
from odradek.storage.disk import Buffer, Disk
from odradek.storage.file_names import CLEANED
from odradek.storage.index import CorruptIndex
from odradek.storage.key_map import KeyMap
from odradek.storage.log_config import LogConfig
from odradek.storage.log_read import scan
from odradek.storage.pass_transactions import PassTransactions
from odradek.storage.producer_state import ProducerEntry
from odradek.storage.segment import CorruptSegment, Segment
from odradek.storage.segment_removal import SegmentReplacement

WRITE_BYTES = 512 * 1024
UNCLEANABLE = (CorruptSegment, CorruptIndex, MalformedMessage, OSError)


def no_throttle(size_bytes: int) -> None:
    """As fast as the disk goes."""


class CleanerPass:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: Sequence[Segment],
        config: LogConfig,
        found: Cleanable,
        producers: Sequence[ProducerEntry],
        *,
        now_ms: int,
        key_map_bytes: int,
        throttle: Callable[[int], None] = no_throttle,
    ) -> None:
        """
        segments   of the log, the active one last
        throttle   called with the number of bytes read or written; may wait
        """
        self._disk = disk
        self._directory = directory
        self._segments = [s for s in segments[:-1] if s.base_offset < found.end_offset]
        self._later_segments = segments[len(self._segments) : -1]
        self._active_aborted = segments[-1].txn_index.entries()  # now, since the loop goes on adding to it
        self._config = config
        self._found = found
        self._producers = producers
        self._now_ms = now_ms
        self._throttle = throttle
        self._keys = KeyMap(key_map_bytes)
        self._groups: list[list[Segment]] = []
        self._transactions = PassTransactions(())
        self._filter: RecordFilter | None = None

    @property
    def end_offset(self) -> int:
        """How far the log is clean when the pass is over: what the next one starts from. Known after `learn`."""
        return self._keys.end_offset

    def learn(self) -> None:
        """Raises one of UNCLEANABLE: then this log cannot be cleaned."""
        found, keys = self._found, self._keys
        keys.end_offset = found.first_dirty_offset
        # To the very end of the log: records of an aborted transaction must not be taken for committed ones because its
        # marker lies beyond the end of the pass, or of what the map can hold.
        indexes = [segment.txn_index.entries() for segment in (*self._segments, *self._later_segments)]
        aborted = [txn for entries in (*indexes, self._active_aborted) for txn in entries]
        dirty = [s for s, end in self._with_ends(self._segments) if end > found.first_dirty_offset]
        # Those that ended before are none of this reading's business: it never meets their markers.
        first_read = dirty[0].base_offset if dirty else found.end_offset
        transactions = PassTransactions(txn for txn in aborted if txn.last_offset >= first_read)
        for segment, end in self._with_ends(dirty):
            batches_below = (at for at in self._read(segment) if at[0].base_offset < found.end_offset)
            if not collect_keys(batches_below, keys, transactions, found.first_dirty_offset):
                break
            keys.end_offset = max(keys.end_offset, min(end, found.end_offset))  # over a gap at the segment's end
        self._segments = [s for s in self._segments if s.base_offset < keys.end_offset]
        index_bytes = {s.base_offset: max(8 * len(s.offset_index), 12 * len(s.time_index)) for s in self._segments}
        self._groups = groups(self._segments, self._config, index_bytes=index_bytes, end_offset=found.end_offset)
        self._transactions = PassTransactions(aborted)
        rules = PassRules(
            end_offset=found.end_offset,
            now_ms=self._now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
            producers=self._last_of_producers(),
        )
        self._filter = RecordFilter(keys, self._transactions, rules)

    def clean_next(self) -> SegmentReplacement | None:
        """The next group, cleaned and prepared to take its place; None when all are done. Raises as `learn`."""
        if not self._groups:
            return None
        group = self._groups.pop(0)
        cleaned = Segment.new(
            self._disk, self._directory, group[0].base_offset, now_ms=self._now_ms, file_suffix=CLEANED
        )
        replacement = SegmentReplacement(self._disk, self._directory, [cleaned], group)
        try:
            self._clean(group, cleaned)
            replacement.prepare()
        except BaseException:
            with suppress(OSError):  # what stays is overwritten by the next attempt, or unlinked at the next start
                replacement.discard()
            raise
        return replacement

    def _clean(self, group: Sequence[Segment], cleaned: Segment) -> None:
        assert self._filter is not None, "learn first"
        writer = _Writer(cleaned, self._config.index_interval_bytes, self._throttle)
        for segment in group:
            for header, batch in self._read(segment):
                # Beyond the end of the pass nothing is decided: it may hold records of open transactions.
                kept = self._filter.filtered(header, batch) if header.base_offset < self._found.end_offset else batch
                if kept is not None:
                    writer.append(header if kept is batch else read_batch_header(kept), kept)
        writer.flush()
        cleaned.seal_time_index()
        for txn in self._transactions.still_indexed:
            cleaned.txn_index.append(txn)
        self._transactions.still_indexed.clear()
        for segment in group:  # of the markers beyond the end of the pass, which stay as they are
            for txn in segment.txn_index.entries():
                if txn.last_offset >= self._found.end_offset:
                    cleaned.txn_index.append(txn)
        cleaned.file.sync()
        for path, data in cleaned.index_files():
            self._disk.write_bytes(path, data)
            self._disk.open(path).sync()
        self._disk.sync_directory(self._directory)

    def _read(self, segment: Segment) -> Iterator[BatchAt]:
        """Every batch, checked: what is damaged must not get a new CRC that vouches for it."""
        next_offset = segment.base_offset
        for portion in scan(segment, 0, segment.size_bytes):
            view = memoryview(portion)
            for position, header in batches(view):
                if header.base_offset < next_offset or not crc_ok(view, position, header.size_bytes):
                    raise CorruptSegment(f"{segment.path()}: a damaged batch where {next_offset} should follow")
                next_offset = header.next_offset
                yield header, view[position : position + header.size_bytes]
            self._throttle(len(portion))

    def _with_ends(self, segments: Sequence[Segment]) -> Iterator[tuple[Segment, int]]:
        """Each with the base offset of the next."""
        for at, segment in enumerate(segments):
            yield segment, segments[at + 1].base_offset if at + 1 < len(segments) else self._found.end_offset

    def _last_of_producers(self) -> Mapping[int, LastOfProducer]:
        """Of producers whose last word was a marker, the newest control batch below the pass's end is looked for."""
        epochs = {entry.producer_id: entry.producer_epoch for entry in self._producers if not entry.batches}
        markers: dict[int, int] = {}
        if epochs:
            for segment in self._segments:
                for _, header in segment.headers(0, segment.size_bytes):
                    if header.is_control and epochs.get(header.producer_id) == header.producer_epoch:
                        markers[header.producer_id] = header.last_offset
        return {
            entry.producer_id: LastOfProducer(
                entry.producer_epoch, entry.last_data_offset, markers.get(entry.producer_id)
            )
            for entry in self._producers
        }


class _Writer:
    """Appends batches to a segment's file, half a megabyte at a time."""

    def __init__(self, segment: Segment, index_interval_bytes: int, throttle: Callable[[int], None]) -> None:
        self._segment = segment
        self._index_interval_bytes = index_interval_bytes
        self._throttle = throttle
        self._waiting: list[Buffer] = []
        self._waiting_bytes = self._written_bytes = 0
        segment.create_file()
        segment.file.truncate(0)  # an earlier attempt may have left something

    def append(self, header: BatchHeader, batch: Buffer) -> None:
        self._segment.note_batch(self._written_bytes + self._waiting_bytes, header, self._index_interval_bytes)
        self._waiting.append(batch)
        self._waiting_bytes += len(batch)
        if self._waiting_bytes >= WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        self._segment.file.write_at(self._waiting, self._written_bytes)
        self._throttle(self._waiting_bytes)
        self._written_bytes += self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0
