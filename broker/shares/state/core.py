"""The share coordinator's decisions: the stored state of the share partitions of one `__share_group_state` partition.

State: `StateCore` owns every entry; only `replay` changes them. A write is stored as an update with just its batches,
and from time to time as a snapshot of everything. Two epochs fence writers that have lost the right to write:

    state epoch    set by the group coordinator: the state was reset, or deleted and created again
    leader epoch   raised by the read of a new leader of the topic partition

Source: docs/spec/share-groups.md#s4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.shares.key import SharePartitionKey
from broker.shares.state.merge import merge, merged
from broker.shares.state.turn import (
    Deletion,
    Outcome,
    Snapshot,
    StateRecord,
    StateSummary,
    StoredState,
    Update,
)
from broker.shares.state_batch import UNDECIDED_START_OFFSET, UNKNOWN_COUNT, StateBatch
from protocol.errors import ErrorCode, KafkaError

NOT_INITIALIZED = "Share group state has not been initialized for this partition."
NEGATIVE_PARTITION = "Partition numbers cannot be negative."


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    """The names are Kafka's property names, `.` as `_`, units said."""

    updates_per_snapshot: int = 500  # share.coordinator.snapshot.update.records.per.snapshot
    cold_snapshot_interval_ms: int = 300_000  # share.coordinator.cold.partition.snapshot.interval.ms


class Entry:
    """One share partition as it is stored.

    snapshot_at   offset of the last snapshot's record: what lies below it says nothing more about this entry
    update_count  since the last snapshot that was due for their number
    """

    __slots__ = (
        "batches",
        "created_ms",
        "delivery_complete_count",
        "leader_epoch",
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


class StateCore:
    def __init__(self, config: ShareCoordinatorConfig, partition_exists: Callable[[bytes, int], bool]) -> None:
        """partition_exists: whether metadata knows this partition of the topic with this id"""
        self._config = config
        self._partition_exists = partition_exists
        self._entries: dict[SharePartitionKey, Entry] = {}

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

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """Nothing is written in transactions here; KIP-1289 will."""

    def settle(self, outcome: object) -> None:
        """The records tell everything."""

    def on_loaded(self, now_ms: int) -> Outcome[None]:
        return Outcome()

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
        answer = StoredState(entry.state_epoch, entry.start_offset, tuple(entry.batches))
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
        now_ms: int,
    ) -> Outcome[bool]:
        """raises INVALID_REQUEST, FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION"""
        entry = self._require(key, leader_epoch)
        if 0 <= state_epoch < entry.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._require_partition(key)
        if start_offset != UNDECIDED_START_OFFSET:
            start_offset = max(start_offset, entry.start_offset)
        if start_offset in (UNDECIDED_START_OFFSET, entry.start_offset):
            delivery_complete_count = max(delivery_complete_count, entry.delivery_complete_count)
        record = self._next_record(
            key, entry, entry.leader_epoch, start_offset, delivery_complete_count, batches, now_ms
        )
        return Outcome(True, (record,))

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
        return StateSummary(entry.state_epoch, entry.leader_epoch, entry.start_offset, entry.delivery_complete_count)

    # What happens by itself.

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
    ) -> Snapshot | Update:
        if entry.update_count >= self._config.updates_per_snapshot:
            if start_offset == UNDECIDED_START_OFFSET:
                start_offset = entry.start_offset
            return self._snapshot(key, entry, leader_epoch, start_offset, delivery_complete_count, batches, now_ms)
        added = merged(batches, start_offset)
        return Update(key, entry.snapshot_epoch, leader_epoch, start_offset, delivery_complete_count, added, now_ms)

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
        )
