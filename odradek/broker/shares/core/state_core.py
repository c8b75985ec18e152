"""The share coordinator's decisions about the stored state of the share partitions in one `__share_group_state`
partition.

`StateCore` owns every `StateEntry`, and only `replay` changes entries. Two epochs fence writers that have lost the
right to write:

    state epoch    set by the group coordinator when the state is reset, or deleted and created again
    leader epoch   raised when a new leader of the topic partition reads the state

Acknowledgements that are pending in a transaction (KIP-1289) form an overlay on top of the stored batches; in the
batches themselves, their records are available. A marker in the log resolves them, both when it is written and whenever
it is replayed. Readers that do not understand markers get the result from the share partition's next record, or from a
record that `repeat_markers` writes (ADR 21).

Source: docs/spec/share-groups.md#s4, #s5-12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from odradek.broker.shares.core.entry import StateEntry
from odradek.broker.shares.core.in_flight import StateWrite
from odradek.broker.shares.core.state import (
    UNDECIDED_START_OFFSET,
    UNKNOWN_COUNT,
    Outcome,
    PendingCount,
    SharePartitionKey,
    ShareSnapshot,
    StateDeletion,
    StateRecord,
    StateSummary,
    StoredState,
    TransactionEnd,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.kafka_rules import NEWEST, KafkaRules

NOT_INITIALIZED = "Share group state has not been initialized for this partition."
ALREADY_ENDED = "The transaction has already ended."


def unsealed(producer_id: int, producer_epoch: int) -> None:
    """Accepts pending acknowledgements from every producer."""


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    """The share coordinator's settings. The comments give the names of the corresponding Kafka properties."""

    updates_per_snapshot: int = 500  # share.coordinator.snapshot.update.records.per.snapshot
    cold_snapshot_interval_ms: int = 300_000  # share.coordinator.cold.partition.snapshot.interval.ms
    marker_memory_ms: int = 900_000  # transaction.max.timeout.ms: no registered transaction lasts longer
    rules: KafkaRules = NEWEST  # the rules of the emulated Kafka release


class StateCore:
    def __init__(
        self,
        config: ShareCoordinatorConfig,
        partition_exists: Callable[[bytes, int], bool],
        check_seal: Callable[[int, int], None] = unsealed,
    ) -> None:
        """Creates an empty core.

        partition_exists  returns whether the metadata contains this partition of the topic with this id
        check_seal        raises KafkaError if the transaction of this producer id and epoch accepts no more changes
        """
        self._check_seal = check_seal
        self._config = config
        self._partition_exists = partition_exists
        self._entries: dict[SharePartitionKey, StateEntry] = {}
        # Producer id → share partitions. Some of them may no longer have pending records.
        self._pending_by: dict[int, dict[SharePartitionKey, None]] = {}
        # The number of pending records in each share partition that has any.
        self._pending_in: dict[SharePartitionKey, int] = {}
        self._pending_count = 0
        # Producer id → the highest epoch in its markers, and when that epoch was seen. The time is None until the next
        # call of `forget_old_markers`.
        self._marker_epochs: dict[int, tuple[int, int | None]] = {}

    # Replaying.

    def replay(self, record: StateRecord, record_offset: int, producer_id: int) -> None:
        if isinstance(record, StateDeletion):
            self._entries.pop(record.key, None)
            self._count_pending(record.key, 0)
            return
        entry = self._entries.get(record.key)
        if entry is None:
            entry = self._entries[record.key] = StateEntry(record.key, record_offset)
        if isinstance(record, ShareSnapshot):
            entry.take_snapshot(record, record_offset, self._config.updates_per_snapshot)
        else:
            entry.take_update(record)
        for pending in record.pending:
            self._pending_by.setdefault(pending.producer_id, {})[record.key] = None
        self._count_pending(record.key, entry.overlay.record_count)

    def replay_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        known_epoch, _ = self._marker_epochs.get(producer_id, (-1, None))
        self._marker_epochs[producer_id] = max(known_epoch, producer_epoch), None
        for entry in self._entries_of(producer_id):
            entry.take_marker(TransactionEnd(producer_id, producer_epoch, committed))
            self._count_pending(entry.key, entry.overlay.record_count)

    def settle(self, outcome: object) -> None:
        """Does nothing, because the records contain the complete state."""

    def on_loaded(self, now_ms: int) -> Outcome[None]:
        return Outcome(records=self._unrepeated(now_ms), may_split=True)

    def on_timer(self, key: object, now_ms: int) -> Outcome[None]:
        return Outcome()

    def unload(self, code: ErrorCode) -> Sequence[object]:
        return ()

    # Requests, each about one share partition. A refused request raises KafkaError.

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, now_ms: int) -> Outcome[bool]:
        """Initialises the state and replaces any stored state. Raises FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.

        The response always waits for an fdatasync, regardless of the settings. The group records in another log that
        the state has been initialised. If a power failure destroyed only the record in this log, the group would never
        initialise the state again.
        """
        entry = self._entries.get(key)
        if entry is not None and 0 <= state_epoch < entry.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._require_partition(key)
        count = UNKNOWN_COUNT if start_offset == UNDECIDED_START_OFFSET else 0
        if entry is not None and not entry.batches and entry.leader_epoch == 0:
            stored = (entry.state_epoch, entry.start_offset, entry.delivery_complete_count)
            if stored == (state_epoch, start_offset, count):
                return Outcome(True, must_sync=True)
        snapshot = ShareSnapshot(
            key,
            snapshot_epoch=0 if entry is None else entry.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=0,
            start_offset=start_offset,
            delivery_complete_count=count,
            created_ms=now_ms,
            written_ms=now_ms,
        )
        return Outcome(True, (snapshot,), must_sync=True)

    def read(self, key: SharePartitionKey, leader_epoch: int, now_ms: int) -> Outcome[StoredState]:
        """Returns the stored state to a leader that loads the share partition and fences earlier leaders.

        raises  INVALID_REQUEST if the state was never initialised; FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION
        """
        entry = self._require(key, leader_epoch)
        self._require_partition(key)
        answer = entry.to_stored_state()
        if leader_epoch <= entry.fence:
            return Outcome(answer)
        record = entry.next_record(self._config.updates_per_snapshot, now_ms, leader_epoch=leader_epoch)
        return Outcome(answer, (record,))

    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        write: StateWrite,
        now_ms: int,
        *,
        must_sync: bool = False,
    ) -> Outcome[bool]:
        """Stores a change to the state.

        must_sync  whether a part of the write is pending in a two-phase commit
        raises     INVALID_REQUEST, FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION;
                   INVALID_TXN_STATE if a marker has already ended the transaction; the errors of `check_seal`
        """
        entry = self._require(key, leader_epoch)
        if 0 <= state_epoch < entry.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._require_partition(key)
        if any(self.has_ended(each.producer_id, each.producer_epoch) for each in write.pending):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, ALREADY_ENDED)
        for each in write.pending:
            self._check_seal(each.producer_id, each.producer_epoch)
        start_offset, delivery_complete_count = write.start_offset, write.delivery_complete_count
        if start_offset < entry.start_offset and self._config.rules >= KafkaRules.KAFKA_4_4:
            # The count in the request belongs to an outdated start offset: docs/spec/kafka-4.4.md#s5-3, S8 and S9.
            start_offset, delivery_complete_count = entry.start_offset, entry.delivery_complete_count
        if start_offset != UNDECIDED_START_OFFSET:
            start_offset = max(start_offset, entry.start_offset)
        if start_offset in (UNDECIDED_START_OFFSET, entry.start_offset):
            delivery_complete_count = max(delivery_complete_count, entry.delivery_complete_count)
        record = entry.next_record(
            self._config.updates_per_snapshot,
            now_ms,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            batches=write.batches,
            pending=write.pending,
            resolved=write.resolved,
        )
        return Outcome(True, (record,), must_sync=must_sync)

    def end_transaction(self, ending: TransactionEnd, now_ms: int) -> Outcome[bool]:
        """Stores the resolution of ranges that a marker ends only because of its transaction version. Call this method
        after the marker has been appended and replayed. A replay of the marker alone would not end these ranges
        (#s5-7)."""
        records = [
            entry.resolution_record(ended, self._config.updates_per_snapshot, now_ms)
            for entry in self._entries_of(ending.producer_id)
            if (ended := entry.overlay.ended_by(ending))
        ]
        return Outcome(True, records, may_split=True)

    def delete(self, key: SharePartitionKey) -> Outcome[bool]:
        """Deletes the stored state. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        self._require_partition(key)
        return Outcome(True, (StateDeletion(key),) if key in self._entries else ())

    def summarize(self, key: SharePartitionKey) -> StateSummary:
        """Returns a summary of the stored state. Raises UNKNOWN_TOPIC_OR_PARTITION."""
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
        """Returns whether a marker has ended the producer's transaction with this epoch or a later one."""
        marker_epoch, _ = self._marker_epochs.get(producer_id, (-1, None))
        return marker_epoch > producer_epoch

    @property
    def pending_count(self) -> int:
        """The number of records whose acknowledgement is pending in a transaction, in all share partitions of this
        coordinator. It includes share partitions that no leader has loaded. Replay keeps it up to date."""
        return self._pending_count

    @property
    def pending_keys(self) -> Sequence[SharePartitionKey]:
        """The share partitions that have pending records."""
        return list(self._pending_in)

    def pending_in(self, key: SharePartitionKey) -> Sequence[PendingCount]:
        """Returns the number of pending records of each transaction in one share partition."""
        if key not in self._pending_in:
            return ()
        return [PendingCount(key, *each) for each in self._entries[key].overlay.by_transaction().items()]

    def pending_of(self, producer_id: int) -> Sequence[PendingCount]:
        """Returns the number of records pending in each of the producer's transactions, for each share partition."""
        return [
            each
            for entry in self._entries_of(producer_id)
            for each in self.pending_in(entry.key)
            if each.transaction.producer_id == producer_id
        ]

    def stored_state(self, key: SharePartitionKey) -> StoredState | None:
        """Returns the stored state, or None if the share partition was never initialised. Unlike `read`, this method
        fences no leader."""
        entry = self._entries.get(key)
        return None if entry is None else entry.to_stored_state()

    # Periodic work.

    def forget_old_markers(self, now_ms: int) -> None:
        """Forgets markers that are so old that acknowledgements in their transactions can no longer arrive. Markers
        that were just replayed have no time yet, so they get the current time."""
        self._marker_epochs = {
            producer_id: (epoch, now_ms if seen_ms is None else seen_ms)
            for producer_id, (epoch, seen_ms) in self._marker_epochs.items()
            if seen_ms is None or seen_ms > now_ms - self._config.marker_memory_ms
        }

    def prunes_ms(self, first_record_offset: int, next_record_offset: int) -> int | None:
        """Returns the earliest time at which there will be something to prune. Returns 0 if there is something to do
        now, and None if there never will be.

        first_record_offset, next_record_offset  the bounds of the log
        """
        if self.needed_from(next_record_offset) > first_record_offset or any(
            entry.unrepeated for entry in self._entries.values()
        ):
            return 0
        seen_ms = [seen_ms for _, seen_ms in self._marker_epochs.values()]
        if None in seen_ms:
            return 0
        forgets_ms = earliest_of(seen_ms, self._config.marker_memory_ms)
        if not self._gains_by_snapshots(next_record_offset):
            return forgets_ms
        cold_ms = earliest_of(
            (entry.written_ms for entry in self._entries.values()), self._config.cold_snapshot_interval_ms
        )
        return min((each for each in (forgets_ms, cold_ms) if each is not None), default=None)

    def forget_missing_topics(self, topic_exists: Callable[[bytes], bool]) -> Outcome[int]:
        """Deletes the state of topics that no longer exist, including topics that were deleted before a restart."""
        deletions = [StateDeletion(key) for key in self._entries if not topic_exists(key.topic_id)]
        return Outcome(len(deletions), deletions, may_split=True)

    def repeat_markers(self, now_ms: int) -> Outcome[bool]:
        """Writes records that repeat the effects of markers, for readers that do not understand markers."""
        return Outcome(True, self._unrepeated(now_ms), may_split=True)

    def snapshot_cold(self, next_record_offset: int, now_ms: int) -> Outcome[int]:
        """Writes new snapshots of share partitions that have not been written for a long time, so that the older part
        of the log can be deleted.

        Does nothing if the log contains only snapshots that are still needed.
        """
        if not self._gains_by_snapshots(next_record_offset):
            return Outcome(0)
        cold_since = now_ms - self._config.cold_snapshot_interval_ms
        snapshots = [entry.snapshot(now_ms) for entry in self._entries.values() if entry.written_ms <= cold_since]
        return Outcome(len(snapshots), snapshots, may_split=True)

    def _gains_by_snapshots(self, next_record_offset: int) -> bool:
        return next_record_offset - self.needed_from(next_record_offset) > len(self._entries) > 0

    def needed_from(self, next_record_offset: int) -> int:
        """Returns the lowest record offset that is still needed. Later records make all records below it obsolete."""
        return min((entry.snapshot_at for entry in self._entries.values()), default=next_record_offset)

    @property
    def keys(self) -> Sequence[SharePartitionKey]:
        return list(self._entries)

    # Internal steps.

    def _count_pending(self, key: SharePartitionKey, count: int) -> None:
        """Updates a share partition's number of pending records."""
        before = self._pending_in.get(key, 0)
        if count == before:
            return
        self._pending_count += count - before
        if count:
            self._pending_in[key] = count
        else:
            del self._pending_in[key]

    def _unrepeated(self, now_ms: int) -> list[StateRecord]:
        entries = [entry for entry in self._entries.values() if entry.unrepeated]
        return [entry.next_record(self._config.updates_per_snapshot, now_ms) for entry in entries]

    def _require(self, key: SharePartitionKey, leader_epoch: int) -> StateEntry:
        entry = self._entries.get(key)
        if entry is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, NOT_INITIALIZED)
        if 0 <= leader_epoch < entry.fence:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        return entry

    def _require_partition(self, key: SharePartitionKey) -> None:
        if not self._partition_exists(key.topic_id, key.partition):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _entries_of(self, producer_id: int) -> list[StateEntry]:
        """Returns the entries in which this producer has pending acknowledgements. Entries that no longer have any
        pending acknowledgements are removed from the index."""
        found = []
        for key in list(self._pending_by.get(producer_id, ())):
            entry = self._entries.get(key)
            if entry is not None and entry.has_pending(producer_id):
                found.append(entry)
            else:
                del self._pending_by[producer_id][key]
        if not found:
            self._pending_by.pop(producer_id, None)
        return found


def earliest_of(times_ms: Iterable[int | None], later_ms: int) -> int | None:
    """Returns the earliest of these times plus `later_ms`. Returns None if all times are None."""
    first = min((each for each in times_ms if each is not None), default=None)
    return None if first is None else first + later_ms
