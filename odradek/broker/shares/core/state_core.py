"""The share coordinator's decisions: the stored state of the share partitions of one `__share_group_state` partition.

State: `StateCore` owns every `Entry`; only `replay` changes them. Two epochs fence writers that have lost the right to
write:

    state epoch    set by the group coordinator: the state was reset, or deleted and created again
    leader epoch   raised by the read of a new leader of the topic partition

Acknowledgements pending in a transaction (KIP-1289) lie as an overlay above the stored batches, in which their records
are available. A marker in this log resolves them, here and at every replay. Readers that know no markers are told by
the next record of the share partition, whatever it is written for, or by one that `tell_all` asks for (ADR 21).

Source: docs/spec/share-groups.md#s4, #s5-12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from odradek.broker.shares.core.entry import Entry
from odradek.broker.shares.core.in_flight import StateWrite
from odradek.broker.shares.core.state import (
    UNDECIDED_START_OFFSET,
    UNKNOWN_COUNT,
    Deletion,
    Ending,
    Outcome,
    PendingHere,
    SharePartitionKey,
    Snapshot,
    StateRecord,
    StateSummary,
    StoredState,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.kafka_rules import NEWEST, KafkaRules

NOT_INITIALIZED = "Share group state has not been initialized for this partition."
ALREADY_ENDED = "The transaction has already ended."


def unsealed(producer_id: int, producer_epoch: int) -> None:
    """Lets every producer have acknowledgements pending."""


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    """The names are Kafka's property names, `.` as `_`, units said."""

    updates_per_snapshot: int = 500  # share.coordinator.snapshot.update.records.per.snapshot
    cold_snapshot_interval_ms: int = 300_000  # share.coordinator.cold.partition.snapshot.interval.ms
    marker_memory_ms: int = 900_000  # transaction.max.timeout.ms: no registration waits longer for its acknowledgement
    rules: KafkaRules = NEWEST  # of the release that is followed


class StateCore:
    def __init__(
        self,
        config: ShareCoordinatorConfig,
        partition_exists: Callable[[bytes, int], bool],
        check_seal: Callable[[int, int], None] = unsealed,
    ) -> None:
        """
        partition_exists  whether metadata knows this partition of the topic with this id
        check_seal        raises KafkaError if the transaction of this producer id and epoch takes nothing in any more
        """
        self._check_seal = check_seal
        self._config = config
        self._partition_exists = partition_exists
        self._entries: dict[SharePartitionKey, Entry] = {}
        self._pending_by: dict[int, dict[SharePartitionKey, None]] = {}  # by producer id; not all still have any
        self._pending_in: dict[SharePartitionKey, int] = {}  # pending records, of the share partitions that have any
        self._pending_count = 0
        self._marker_epochs: dict[int, tuple[int, int | None]] = {}  # producer id → the highest epoch, and when

    # Replaying.

    def replay(self, record: StateRecord, record_offset: int, producer_id: int) -> None:
        if isinstance(record, Deletion):
            self._entries.pop(record.key, None)
            self._count_pending(record.key, 0)
            return
        entry = self._entries.get(record.key)
        if entry is None:
            entry = self._entries[record.key] = Entry(record.key, record_offset)
        if isinstance(record, Snapshot):
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
            entry.take_marker(Ending(producer_id, producer_epoch, committed))
            self._count_pending(entry.key, entry.overlay.record_count)

    def settle(self, outcome: object) -> None:
        """The records tell everything."""

    def on_loaded(self, now_ms: int) -> Outcome[None]:
        return Outcome(records=self._untold(now_ms), may_split=True)

    def on_timer(self, key: object, now_ms: int) -> Outcome[None]:
        return Outcome()

    def unload(self, code: ErrorCode) -> Sequence[object]:
        return ()

    # Requests, each for one share partition. Refusals are KafkaErrors.

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, now_ms: int) -> Outcome[bool]:
        """Whatever was stored before is replaced. raises FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION

        Answered after an fdatasync, whatever the settings say: the group notes in another log that there is state, and
        would never ask again if a power failure took only this one.
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
        return Outcome(True, (snapshot,), must_sync=True)

    def read(self, key: SharePartitionKey, leader_epoch: int, now_ms: int) -> Outcome[StoredState]:
        """For a leader that loads the share partition: leaders before it may write no more.

        raises  INVALID_REQUEST if it was never initialised, FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION
        """
        entry = self._require(key, leader_epoch)
        self._require_partition(key)
        answer = entry.stored()
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
        """
        must_sync  something of it is pending in a two-phase commit
        raises     INVALID_REQUEST, FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION;
                   INVALID_TXN_STATE where a marker has already ended the transaction; what `check_seal` raises
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
            # docs/spec/kafka-4.4.md#s5-3, S8 and S9: the count is of records beyond a start offset that is passed.
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

    def end_transaction(self, ending: Ending, now_ms: int) -> Outcome[bool]:
        """A marker was appended to this partition, and replayed. What it ends only because of its transaction version
        has to be recorded: a replay of the marker alone would not know (#s5-7)."""
        records = [
            entry.resolving(ended, self._config.updates_per_snapshot, now_ms)
            for entry in self._entries_of(ending.producer_id)
            if (ended := entry.overlay.ended_by(ending))
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
    def pending_count(self) -> int:
        """The number of records whose acknowledgement is pending in a transaction, over all share partitions: what this
        coordinator owes, whether or not a leader has the share partition in memory. Replay maintains it."""
        return self._pending_count

    @property
    def pending_keys(self) -> Sequence[SharePartitionKey]:
        """The share partitions that hold pending records."""
        return list(self._pending_in)

    def pending_in(self, key: SharePartitionKey) -> Sequence[PendingHere]:
        """Returns how many records each transaction has pending in one share partition."""
        if key not in self._pending_in:
            return ()
        return [PendingHere(key, *each) for each in self._entries[key].overlay.by_transaction().items()]

    def pending_of(self, producer_id: int) -> Sequence[PendingHere]:
        """Returns how many records the transactions of this producer have pending, by share partition."""
        return [
            each
            for entry in self._entries_of(producer_id)
            for each in self.pending_in(entry.key)
            if each.transaction.producer_id == producer_id
        ]

    def stored(self, key: SharePartitionKey) -> StoredState | None:
        """Returns the stored state, or None if the share partition was never initialised. Fences nobody, unlike
        `read`."""
        entry = self._entries.get(key)
        return None if entry is None else entry.stored()

    # What happens by itself.

    def forget_old_markers(self, now_ms: int) -> None:
        """Nothing that they could have ended is still on its way here. Those just replayed have no time yet."""
        self._marker_epochs = {
            producer_id: (epoch, now_ms if seen_ms is None else seen_ms)
            for producer_id, (epoch, seen_ms) in self._marker_epochs.items()
            if seen_ms is None or seen_ms > now_ms - self._config.marker_memory_ms
        }

    def prunes_ms(self, first_record_offset: int, next_record_offset: int) -> int | None:
        """Returns the time from which on pruning finds something: 0 if it does at once, None if it never does.

        first_record_offset, next_record_offset  the ends of the log
        """
        if self.needed_from(next_record_offset) > first_record_offset or any(
            entry.untold for entry in self._entries.values()
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
        """Topics were deleted, this one or others before a restart."""
        gone = [Deletion(key) for key in self._entries if not topic_exists(key.topic_id)]
        return Outcome(len(gone), gone, may_split=True)

    def tell_all(self, now_ms: int) -> Outcome[bool]:
        """Record what only markers say so far, for readers that do not know these."""
        return Outcome(True, self._untold(now_ms), may_split=True)

    def snapshot_cold(self, next_record_offset: int, now_ms: int) -> Outcome[int]:
        """Write out again what was not written for long, so that what lies before it in the log can go.

        Not where the log is nothing but snapshots that are needed: there is nothing to be gained.
        """
        if not self._gains_by_snapshots(next_record_offset):
            return Outcome(0)
        cold_since = now_ms - self._config.cold_snapshot_interval_ms
        snapshots = [entry.snapshot(now_ms) for entry in self._entries.values() if entry.written_ms <= cold_since]
        return Outcome(len(snapshots), snapshots, may_split=True)

    def _gains_by_snapshots(self, next_record_offset: int) -> bool:
        return next_record_offset - self.needed_from(next_record_offset) > len(self._entries) > 0

    def needed_from(self, next_record_offset: int) -> int:
        """No record below this offset says anything that later ones do not."""
        return min((entry.snapshot_at for entry in self._entries.values()), default=next_record_offset)

    @property
    def keys(self) -> Sequence[SharePartitionKey]:
        return list(self._entries)

    # Within.

    def _count_pending(self, key: SharePartitionKey, count: int) -> None:
        """Notes how many records of a share partition are pending now."""
        before = self._pending_in.get(key, 0)
        if count == before:
            return
        self._pending_count += count - before
        if count:
            self._pending_in[key] = count
        else:
            del self._pending_in[key]

    def _untold(self, now_ms: int) -> list[StateRecord]:
        entries = [entry for entry in self._entries.values() if entry.untold]
        return [entry.next_record(self._config.updates_per_snapshot, now_ms) for entry in entries]

    def _require(self, key: SharePartitionKey, leader_epoch: int) -> Entry:
        entry = self._entries.get(key)
        if entry is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, NOT_INITIALIZED)
        if 0 <= leader_epoch < entry.fence:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        return entry

    def _require_partition(self, key: SharePartitionKey) -> None:
        if not self._partition_exists(key.topic_id, key.partition):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _entries_of(self, producer_id: int) -> list[Entry]:
        """Where this producer has something pending. Forgets where it has not."""
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
    """Returns the first of these times, so much later; None if there is none."""
    first = min((each for each in times_ms if each is not None), default=None)
    return None if first is None else first + later_ms
