"""The share coordinator's decisions: the stored state of the share partitions of one `__share_group_state` partition.

State: `StateCore` owns every entry; only `replay` changes them. A write is stored as an update with just its batches,
and from time to time as a snapshot of everything. Two epochs fence writers that have lost the right to write:

    state epoch    set by the group coordinator: the state was reset, or deleted and created again
    leader epoch   raised by the read of a new leader of the topic partition

Acknowledgements staged in a transaction (KIP-1289) lie as an overlay above the stored batches, in which their records
are available. A marker in this log resolves them, here and at every replay; since older readers know nothing of that,
an ordinary update repeats the result.

Source: docs/spec/share-groups.md#s4, #s5-12.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.partition.tables import RecordState
from odradek.broker.shares.staging import (
    ACCEPT,
    Ending,
    Overlay,
    Resolution,
    ResolvedRange,
    StagedRange,
)
from odradek.broker.shares.state.merge import merge, merged
from odradek.broker.shares.state.turn import (
    Deletion,
    Outcome,
    Snapshot,
    StateRecord,
    StateSummary,
    StoredState,
    Update,
)
from odradek.broker.shares.state_batch import UNDECIDED_START_OFFSET, UNKNOWN_COUNT, StateBatch
from odradek.protocol.errors import ErrorCode, KafkaError

NOT_INITIALIZED = "Share group state has not been initialized for this partition."
ALREADY_ENDED = "The transaction has already ended."


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    """The names are Kafka's property names, `.` as `_`, units said."""

    updates_per_snapshot: int = 500  # share.coordinator.snapshot.update.records.per.snapshot
    cold_snapshot_interval_ms: int = 300_000  # share.coordinator.cold.partition.snapshot.interval.ms
    marker_memory_ms: int = 900_000  # transaction.max.timeout.ms: no registration waits longer for its staging


class Entry:
    """One share partition as it is stored.

    snapshot_at   offset of the last snapshot's record: what lies below it says nothing more about this entry
    update_count  since the last snapshot that was due for their number
    overlay       what is staged
    decided       what a marker took out of the overlay, until an update repeats it
    """

    __slots__ = (
        "batches",
        "created_ms",
        "decided",
        "delivery_complete_count",
        "leader_epoch",
        "overlay",
        "snapshot_at",
        "snapshot_epoch",
        "start_offset",
        "state_epoch",
        "update_count",
        "written_ms",
    )

    def __init__(self, record_offset: int) -> None:
        self.snapshot_at = record_offset
        self.snapshot_epoch = self.state_epoch = self.leader_epoch = 0
        self.start_offset = UNDECIDED_START_OFFSET
        self.delivery_complete_count = UNKNOWN_COUNT
        self.batches: list[StateBatch] = []
        self.created_ms = self.written_ms = 0
        self.update_count = 0
        self.overlay = Overlay()
        self.decided: list[tuple[StagedRange, Resolution]] = []

    def take_snapshot(self, snapshot: Snapshot, record_offset: int, updates_per_snapshot: int) -> None:
        self.snapshot_at = record_offset
        self.snapshot_epoch = snapshot.snapshot_epoch
        self.state_epoch = snapshot.state_epoch
        self.leader_epoch = snapshot.leader_epoch
        self.start_offset = snapshot.start_offset
        self.delivery_complete_count = snapshot.delivery_complete_count
        self.created_ms = snapshot.created_ms
        self.written_ms = snapshot.written_ms
        self.batches = list(merged(snapshot.batches, snapshot.start_offset))
        self.overlay = Overlay(snapshot.staged)
        self.decided = []
        if self.update_count >= updates_per_snapshot:  # as Kafka: another snapshot does not start the count anew
            self.update_count = 0

    def take_update(self, update: Update) -> None:
        self.leader_epoch = update.leader_epoch
        if update.start_offset != UNDECIDED_START_OFFSET:
            self.start_offset = update.start_offset
        self.delivery_complete_count = update.delivery_complete_count
        merge(self.batches, update.batches, self.start_offset)
        self.written_ms = max(self.written_ms, update.written_ms)
        self.update_count += 1
        if update.resolved:
            self.overlay.resolve(update.resolved)
            self.decided = [each for each in self.decided if not _is_repeated(each[0], update.resolved)]
        if update.staged:
            self.overlay.stage(update.staged)

    def take_marker(self, ending: Ending) -> None:
        for staged, resolution in self.overlay.ended_by(ending):
            self.overlay.resolve([ResolvedRange.of(staged, resolution, UNKNOWN_COUNT)])
            merge(self.batches, _batches_of([(staged, resolution)]), self.start_offset)
            self.decided.append((staged, resolution))


class StateCore:
    def __init__(self, config: ShareCoordinatorConfig, partition_exists: Callable[[bytes, int], bool]) -> None:
        """partition_exists: whether metadata knows this partition of the topic with this id"""
        self._config = config
        self._partition_exists = partition_exists
        self._entries: dict[SharePartitionKey, Entry] = {}
        self._staged_by: dict[int, dict[SharePartitionKey, None]] = {}  # producer id → where it may have staged
        self._marker_epochs: dict[int, tuple[int, int | None]] = {}  # producer id → the highest epoch, and when

    # Replaying.

    def replay(self, record: StateRecord, record_offset: int, producer_id: int) -> None:
        if isinstance(record, Deletion):
            self._entries.pop(record.key, None)
            return
        entry = self._entries.get(record.key)
        if entry is None:
            entry = self._entries[record.key] = Entry(record_offset)
        if isinstance(record, Snapshot):
            entry.take_snapshot(record, record_offset, self._config.updates_per_snapshot)
        else:
            entry.take_update(record)
        for staged in record.staged:
            self._staged_by.setdefault(staged.producer_id, {})[record.key] = None

    def replay_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        known_epoch, _ = self._marker_epochs.get(producer_id, (-1, None))
        self._marker_epochs[producer_id] = max(known_epoch, producer_epoch), None
        for entry in self._entries_of(producer_id):
            entry.take_marker(Ending(producer_id, producer_epoch, committed))

    def settle(self, outcome: object) -> None:
        """The records tell everything."""

    def on_loaded(self, now_ms: int) -> Outcome[None]:
        """Markers whose result a crash kept from being repeated."""
        records = [
            self._repeated(key, entry, entry.decided, now_ms) for key, entry in self._entries.items() if entry.decided
        ]
        return Outcome(records=records, may_split=True)

    def on_timer(self, key: object, now_ms: int) -> Outcome[None]:
        return Outcome()

    def unload(self, code: ErrorCode) -> Sequence[object]:
        return ()

    # Requests, each for one share partition. Refusals are KafkaErrors.

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, now_ms: int) -> Outcome[bool]:
        """Whatever was stored before is replaced. raises FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION"""
        entry = self._entries.get(key)
        if entry is not None and 0 <= state_epoch < entry.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._require_partition(key)
        count = UNKNOWN_COUNT if start_offset == UNDECIDED_START_OFFSET else 0
        if entry is not None and not entry.batches and entry.leader_epoch == 0:
            stored = (entry.state_epoch, entry.start_offset, entry.delivery_complete_count)
            if stored == (state_epoch, start_offset, count):
                return Outcome(True)
        snapshot = Snapshot(
            key,
            snapshot_epoch=0 if entry is None else entry.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=0,
            start_offset=start_offset,
            delivery_complete_count=count,
            created_ms=now_ms,
            written_ms=now_ms,
        )
        return Outcome(True, (snapshot,))

    def read(self, key: SharePartitionKey, leader_epoch: int, now_ms: int) -> Outcome[StoredState]:
        """For a leader that loads the share partition: leaders before it may write no more.

        raises  INVALID_REQUEST if it was never initialised, FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION
        """
        entry = self._require(key, leader_epoch)
        self._require_partition(key)
        answer = StoredState(entry.state_epoch, entry.start_offset, tuple(entry.batches), tuple(entry.overlay.ranges))
        if leader_epoch <= entry.leader_epoch:
            return Outcome(answer)
        record = self._next_record(
            key, entry, leader_epoch, entry.start_offset, entry.delivery_complete_count, (), now_ms
        )
        return Outcome(answer, (record,))

    def write(
        self,
        key: SharePartitionKey,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        staged: Sequence[StagedRange] = (),
        resolved: Sequence[ResolvedRange] = (),
        must_sync: bool = False,
        now_ms: int,
    ) -> Outcome[bool]:
        """
        staged, resolved  what is added to the overlay, and taken out of it
        must_sync         it is staged in a two-phase commit
        raises            INVALID_REQUEST, FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION;
                          INVALID_TXN_STATE where a marker has already ended the transaction
        """
        entry = self._require(key, leader_epoch)
        if 0 <= state_epoch < entry.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._require_partition(key)
        if any(self.has_ended(each.producer_id, each.producer_epoch) for each in staged):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, ALREADY_ENDED)
        if start_offset != UNDECIDED_START_OFFSET:
            start_offset = max(start_offset, entry.start_offset)
        if start_offset in (UNDECIDED_START_OFFSET, entry.start_offset):
            delivery_complete_count = max(delivery_complete_count, entry.delivery_complete_count)
        record = self._next_record(
            key, entry, entry.leader_epoch, start_offset, delivery_complete_count, batches, now_ms, staged, resolved
        )
        return Outcome(True, (record,), must_sync=must_sync)

    def end_transaction(self, ending: Ending, now_ms: int) -> Outcome[bool]:
        """A marker was appended to this partition, and replayed: repeat its result for readers that do not know it.

        Also what an earlier attempt could not write, and what only the transaction version tells (#s5-7).
        """
        records = [
            self._repeated(key, entry, ended, now_ms)
            for key, entry in self._entries_with_keys_of(ending.producer_id)
            if (ended := [*_decided_for(entry, ending.producer_id), *entry.overlay.ended_by(ending)])
        ]
        return Outcome(True, records, may_split=True)

    def delete(self, key: SharePartitionKey) -> Outcome[bool]:
        """raises UNKNOWN_TOPIC_OR_PARTITION"""
        self._require_partition(key)
        return Outcome(True, (Deletion(key),) if key in self._entries else ())

    def summarize(self, key: SharePartitionKey) -> StateSummary:
        """raises UNKNOWN_TOPIC_OR_PARTITION"""
        self._require_partition(key)
        entry = self._entries.get(key)
        if entry is None:
            return StateSummary()
        return StateSummary(
            entry.state_epoch,
            entry.leader_epoch,
            entry.start_offset,
            entry.delivery_complete_count,
            entry.overlay.record_count,
        )

    def has_ended(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a marker has passed that ends the transaction of this epoch, or a later one."""
        marker_epoch, _ = self._marker_epochs.get(producer_id, (-1, None))
        return marker_epoch > producer_epoch

    @property
    def staged_count(self) -> int:
        """Offsets whose acknowledgement is staged in a transaction, over all share partitions."""
        return sum(entry.overlay.record_count for entry in self._entries.values())

    # What happens by itself.

    def forget_old_markers(self, now_ms: int) -> None:
        """Nothing that they could have ended is still on its way here. Those just replayed have no time yet."""
        self._marker_epochs = {
            producer_id: (epoch, now_ms if seen_ms is None else seen_ms)
            for producer_id, (epoch, seen_ms) in self._marker_epochs.items()
            if seen_ms is None or seen_ms > now_ms - self._config.marker_memory_ms
        }

    def forget_missing_topics(self, topic_exists: Callable[[bytes], bool]) -> Outcome[int]:
        """Topics were deleted, this one or others before a restart."""
        gone = [Deletion(key) for key in self._entries if not topic_exists(key.topic_id)]
        return Outcome(len(gone), gone, may_split=True)

    def snapshot_cold(self, next_record_offset: int, now_ms: int) -> Outcome[int]:
        """Write out again what was not written for long, so that what lies before it in the log can go.

        Not where the log is nothing but snapshots that are needed: there is nothing to be gained.
        """
        if not self._entries or next_record_offset - self.needed_from(next_record_offset) <= len(self._entries):
            return Outcome(0)
        cold_since = now_ms - self._config.cold_snapshot_interval_ms
        snapshots = [
            self._snapshot(
                key, entry, entry.leader_epoch, entry.start_offset, entry.delivery_complete_count, (), now_ms
            )
            for key, entry in self._entries.items()
            if entry.written_ms <= cold_since
        ]
        return Outcome(len(snapshots), snapshots, may_split=True)

    def needed_from(self, next_record_offset: int) -> int:
        """No record below this offset says anything that later ones do not."""
        return min((entry.snapshot_at for entry in self._entries.values()), default=next_record_offset)

    @property
    def keys(self) -> Sequence[SharePartitionKey]:
        return list(self._entries)

    # Within.

    def _require(self, key: SharePartitionKey, leader_epoch: int) -> Entry:
        entry = self._entries.get(key)
        if entry is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, NOT_INITIALIZED)
        if 0 <= leader_epoch < entry.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        return entry

    def _require_partition(self, key: SharePartitionKey) -> None:
        if not self._partition_exists(key.topic_id, key.partition):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _next_record(
        self,
        key: SharePartitionKey,
        entry: Entry,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        now_ms: int,
        staged: Sequence[StagedRange] = (),
        resolved: Sequence[ResolvedRange] = (),
    ) -> Snapshot | Update:
        if entry.update_count >= self._config.updates_per_snapshot:
            if start_offset == UNDECIDED_START_OFFSET:
                start_offset = entry.start_offset
            overlay = Overlay(entry.overlay.ranges)
            overlay.resolve(resolved)
            overlay.stage(staged)
            snapshot = self._snapshot(key, entry, leader_epoch, start_offset, delivery_complete_count, batches, now_ms)
            return snapshot._replace(staged=tuple(overlay.ranges))
        added = merged(batches, start_offset)
        return Update(
            key,
            entry.snapshot_epoch,
            leader_epoch,
            start_offset,
            delivery_complete_count,
            added,
            now_ms,
            tuple(staged),
            tuple(resolved),
        )

    def _repeated(
        self, key: SharePartitionKey, entry: Entry, ended: Sequence[tuple[StagedRange, Resolution]], now_ms: int
    ) -> Snapshot | Update:
        """The result of a marker as older readers understand it."""
        batches = _batches_of(ended)
        finished = sum(max(0, each.last_offset - max(each.first_offset, entry.start_offset) + 1) for each in batches)
        return self._next_record(
            key,
            entry,
            entry.leader_epoch,
            entry.start_offset,
            UNKNOWN_COUNT if entry.delivery_complete_count < 0 else entry.delivery_complete_count + finished,
            batches,
            now_ms,
            resolved=[ResolvedRange.of(staged, resolution, now_ms) for staged, resolution in ended],
        )

    def _entries_with_keys_of(self, producer_id: int) -> list[tuple[SharePartitionKey, Entry]]:
        """Where this producer has something staged, or decided and not repeated. Forgets where it has not."""
        found = []
        for key in list(self._staged_by.get(producer_id, ())):
            entry = self._entries.get(key)
            if entry is not None and (
                any(each.producer_id == producer_id for each in entry.overlay.ranges)
                or _decided_for(entry, producer_id)
            ):
                found.append((key, entry))
            else:
                del self._staged_by[producer_id][key]
        if not found:
            self._staged_by.pop(producer_id, None)
        return found

    def _entries_of(self, producer_id: int) -> list[Entry]:
        return [entry for _, entry in self._entries_with_keys_of(producer_id)]

    def _snapshot(
        self,
        key: SharePartitionKey,
        entry: Entry,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        now_ms: int,
    ) -> Snapshot:
        everything = list(entry.batches)
        merge(everything, batches, start_offset)
        return Snapshot(
            key,
            entry.snapshot_epoch + 1,
            entry.state_epoch,
            leader_epoch,
            start_offset,
            delivery_complete_count,
            created_ms=entry.created_ms,
            written_ms=now_ms,
            batches=everything,
            staged=tuple(entry.overlay.ranges),
        )


def _batches_of(ended: Sequence[tuple[StagedRange, Resolution]]) -> list[StateBatch]:
    """What the committed ones are now; of the others the stored batches say already that they are available."""
    return [
        StateBatch(
            staged.first_offset,
            staged.last_offset,
            (RecordState.ACKNOWLEDGED if staged.ack_type == ACCEPT else RecordState.ARCHIVED).value,
            staged.delivery_count,
        )
        for staged, resolution in ended
        if resolution is Resolution.COMMITTED
    ]


def _decided_for(entry: Entry, producer_id: int) -> list[tuple[StagedRange, Resolution]]:
    return [each for each in entry.decided if each[0].producer_id == producer_id]


def _is_repeated(staged: StagedRange, resolved: Sequence[ResolvedRange]) -> bool:
    return any(
        each.first_offset <= staged.first_offset
        and staged.last_offset <= each.last_offset
        and (each.producer_id, each.producer_epoch) == (staged.producer_id, staged.producer_epoch)
        for each in resolved
    )
