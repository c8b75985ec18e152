"""A consumer's position in each of its partitions, and the records fetched ahead. This module sends no requests.

Each partition's position is looked up first: the group's committed offset, or otherwise the start or the end of the
partition, depending on the reset policy. Records are then fetched from that position, ahead of the application. When a
partition's leader changes, the position is compared with the new leader's log before anything more is fetched
(KIP-320).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from odradek.client.common.errors import ClientError, IllegalState
from odradek.client.common.values import ConsumerRecord, OffsetAndMetadata, TopicPartition
from odradek.client.consuming.fetched import FetchedRecords, RawBatches
from odradek.protocol.errors import ErrorCode

EARLIEST_TIMESTAMP = -2  # values in ListOffsets requests that mean the start and the end of a log
LATEST_TIMESTAMP = -1


class OffsetReset(Enum):
    """The reset policy (`auto.offset.reset`): where to begin if there is no committed offset or the log does not
    contain the position."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"

    @property
    def timestamp(self) -> int | None:
        """The timestamp for ListOffsets, or None if the application wants an error instead of a reset."""
        return {OffsetReset.EARLIEST: EARLIEST_TIMESTAMP, OffsetReset.LATEST: LATEST_TIMESTAMP}.get(self)


class OffsetOutOfRange(ClientError):
    """The log does not contain the position, or no longer contains it, and `auto_offset_reset="none"` forbids choosing
    another position.

    Call `seek` to continue. `offset` is None if there is no committed offset.
    """

    def __init__(self, topic_partition: TopicPartition, offset: int | None) -> None:
        topic, partition = topic_partition
        problem = "has no committed offset" if offset is None else f"has no record at its position {offset}"
        super().__init__(f"{topic}-{partition} {problem}", ErrorCode.OFFSET_OUT_OF_RANGE)
        self.topic_partition, self.offset = topic_partition, offset


class Stage(Enum):
    """The next step that a partition needs before records can be fetched from it."""

    NEEDS_COMMITTED_OFFSET = auto()  # request the group's committed offset
    NEEDS_RESET = auto()  # look the position up with ListOffsets
    NEEDS_VALIDATION = auto()  # compare the position with the new leader's log
    READY = auto()


@dataclass(slots=True)
class AssignedPartition:
    """The state of one of the consumer's partitions."""

    topic_partition: TopicPartition
    stage: Stage
    offset: int = -1  # offset of the next record for the application; -1 if not yet known
    leader_epoch: int | None = None  # leader epoch of the record before the position, if known
    validated_epoch: int | None = None  # epoch of the leader whose log last confirmed the position
    reset_to: int | None = None  # timestamp for ListOffsets
    is_paused: bool = False
    is_fetching: bool = False  # True while a Fetch for the partition is in flight
    replica: int | None = None  # the node to read from, as chosen by the leader (KIP-392)
    replica_until_s: float = 0.0  # time (of time.monotonic) after which records are fetched from the leader again
    log_start_offset: int | None = None  # log start offset in the last Fetch response
    # From the last Fetch response: the last stable offset or, with read_uncommitted, the high watermark.
    log_end_offset: int | None = None
    error: ClientError | None = None  # error to raise in the application before the next fetch
    fetched: deque[FetchedRecords] = field(default_factory=deque)

    @property
    def fetch_offset(self) -> int:
        """The offset for the next Fetch. It comes after the records that are already buffered."""
        return self.fetched[-1].end_offset if self.fetched else self.offset

    @property
    def fetched_bytes(self) -> int:
        return sum(each.size_bytes for each in self.fetched)

    def seek(self, offset: int, leader_epoch: int | None = None) -> None:
        self.stage, self.offset, self.leader_epoch = Stage.READY, offset, leader_epoch
        self.validated_epoch = self.error = None
        self.is_fetching = False  # the result of a Fetch that is still in flight will be ignored
        self.fetched.clear()

    def reset(self, timestamp: int) -> None:
        """Discards the position. It is then looked up with ListOffsets."""
        self.stage, self.offset, self.leader_epoch, self.reset_to = Stage.NEEDS_RESET, -1, None, timestamp
        self.fetched.clear()

    def apply_leader_epoch(self, leader_epoch: int | None) -> None:
        """Applies the leader epoch from the latest metadata. If the position's epoch is unknown, the position is not
        validated."""
        if self.stage is not Stage.READY or leader_epoch is None or leader_epoch == self.validated_epoch:
            return
        self.replica = None
        if self.leader_epoch is None or self.leader_epoch >= leader_epoch:
            self.validated_epoch = leader_epoch
        else:
            self.stage = Stage.NEEDS_VALIDATION
            self.fetched.clear()

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """Returns the next records, all from one batch. Raises MalformedMessage for damaged records; the position is
        then just before them."""
        while self.fetched:
            first = self.fetched[0]
            try:
                delivered = first.take(max_records)
            finally:
                self.offset = max(self.offset, first.next_offset)
            if first.leader_epoch is not None:
                self.leader_epoch = first.leader_epoch
            if first.is_exhausted:
                self.fetched.popleft()
            if delivered:
                return delivered
        return []

    def take_batches(self) -> RawBatches:
        """Takes the remaining batches of the oldest buffered Fetch result."""
        first = self.fetched.popleft()
        delivered = first.take_batches()
        self.offset = max(self.offset, delivered.end_offset)
        if first.leader_epoch is not None:
            self.leader_epoch = first.leader_epoch
        return delivered


class Positions:
    """The states of all of a consumer's partitions."""

    def __init__(self, auto_offset_reset: OffsetReset) -> None:
        self._reset = auto_offset_reset
        self._assigned: dict[TopicPartition, AssignedPartition] = {}
        self._turn: deque[TopicPartition] = deque()  # the order in which the partitions return records
        self.exhausted_fetches = 0  # number of times that a partition's Fetch result was used up

    @property
    def partitions(self) -> set[TopicPartition]:
        return set(self._assigned)

    def snapshot(self) -> list[AssignedPartition]:
        """Returns a copy of the list of all partitions. Thread-safe."""
        return list(self._assigned.values())

    def __iter__(self) -> Iterator[AssignedPartition]:
        return iter(self._assigned.values())

    def assign(self, partitions: Collection[TopicPartition], *, has_group: bool) -> None:
        """Replaces the set of partitions. Partitions that the consumer already has keep their positions."""
        stage = Stage.NEEDS_COMMITTED_OFFSET if has_group else Stage.NEEDS_RESET
        previous = self._assigned
        self._assigned = {}
        for partition in partitions:
            self._assigned[partition] = previous.get(partition) or AssignedPartition(partition, stage)
            if self._assigned[partition].stage is Stage.NEEDS_RESET and self._assigned[partition].reset_to is None:
                self._assigned[partition].reset_to = self._reset.timestamp
        self._turn = deque(self._assigned)

    def get(self, partition: TopicPartition) -> AssignedPartition:
        """Returns a partition's state. Raises IllegalState if it is not assigned."""
        try:
            return self._assigned[partition]
        except KeyError:
            raise IllegalState(f"{partition.topic}-{partition.partition} is not assigned to this consumer") from None

    def find(self, partition: TopicPartition) -> AssignedPartition | None:
        return self._assigned.get(partition)

    def in_stage(self, stage: Stage) -> list[AssignedPartition]:
        return [each for each in self._assigned.values() if each.stage is stage]

    def committed(self, partition: TopicPartition, offset: OffsetAndMetadata | None) -> None:
        """Applies the group's committed offset, which is None if the group has not committed an offset."""
        assigned = self._assigned.get(partition)
        if assigned is None or assigned.stage is not Stage.NEEDS_COMMITTED_OFFSET:
            return
        if offset is not None:
            assigned.seek(offset.offset, offset.leader_epoch)
        else:
            self.lose(assigned)

    def lose(self, assigned: AssignedPartition) -> None:
        """Chooses a new position, because the partition has no position, or because its log does not contain the
        position. If the reset policy forbids a new position, stores an error for the application."""
        timestamp = self._reset.timestamp
        if timestamp is not None:
            assigned.reset(timestamp)
        else:
            assigned.error = OffsetOutOfRange(
                assigned.topic_partition, None if assigned.offset < 0 else assigned.offset
            )

    def apply_validation(
        self, assigned: AssignedPartition, current_epoch: int | None, end_epoch: int | None, end_offset: int | None
    ) -> None:
        """Applies the leader's response about the position's epoch.

        current_epoch           epoch of the leader itself
        end_epoch, end_offset   the epoch of the position, or else the last earlier epoch in the leader's log, and the
                                end of that epoch; None if there is no such epoch
        """
        if assigned.stage is not Stage.NEEDS_VALIDATION:
            return
        if end_offset is None or (end_offset < assigned.offset and self._reset is OffsetReset.NONE):
            self.lose(assigned)
        elif end_offset < assigned.offset:  # the log no longer contains some of the records that were read
            assigned.seek(end_offset, end_epoch)
        else:
            assigned.stage = Stage.READY
        assigned.validated_epoch = current_epoch

    def to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the position of every partition whose position is known."""
        return {
            each.topic_partition: OffsetAndMetadata(each.offset, "", each.leader_epoch)
            for each in self._assigned.values()
            if each.offset >= 0
        }

    def fetchable(self, max_partition_bytes: int, max_total_bytes: int) -> list[AssignedPartition]:
        """Returns the partitions that are ready, are not paused, have no Fetch in flight and no error, and have less
        than `max_partition_bytes` buffered. Returns no partitions if all partitions together have `max_total_bytes`
        buffered."""
        in_hand = sum(each.fetched_bytes for each in self._assigned.values() if not each.is_paused)
        if in_hand >= max_total_bytes:
            return []
        return [
            each
            for each in self._assigned.values()
            if each.stage is Stage.READY
            and not each.is_paused
            and not each.is_fetching
            and each.error is None
            and each.fetched_bytes < max_partition_bytes
        ]

    def move_to_end(self, assigned: AssignedPartition) -> None:
        """Moves the partition to the end of the next Fetch, so that no partition starves when responses are limited in
        size (KIP-74)."""
        self._assigned[assigned.topic_partition] = self._assigned.pop(assigned.topic_partition)

    def has_enough_buffered(self, max_partition_bytes: int) -> bool:
        """Returns whether at least this many bytes are buffered for any one partition."""
        return any(each.fetched_bytes >= max_partition_bytes and not each.is_paused for each in self._assigned.values())

    def error(self) -> ClientError | None:
        """Returns a partition's error for the application, if any. Each error is returned once; afterwards the failed
        operation is retried."""
        for each in self._assigned.values():
            if each.error is not None:
                error, each.error = each.error, None
                return error
        return None

    def take(self, max_records: int) -> tuple[TopicPartition, list[ConsumerRecord]] | None:
        """Returns records of the partition whose turn it is. The turn ends when the result of one Fetch is used up."""
        for _ in range(len(self._turn)):
            assigned = self._assigned[self._turn[0]]
            if not assigned.is_paused:
                before = len(assigned.fetched)
                delivered = assigned.take(max_records)
                if len(assigned.fetched) < before:
                    self.exhausted_fetches += 1
                    self._turn.rotate(-1)
                if delivered:
                    return assigned.topic_partition, delivered
                if before:
                    continue
            self._turn.rotate(-1)
        return None

    def take_batches(self) -> dict[TopicPartition, RawBatches]:
        """Takes the batches from one Fetch result for each partition."""
        ready = [each for each in self._assigned.values() if each.fetched and not each.is_paused]
        self.exhausted_fetches += len(ready)
        return {each.topic_partition: each.take_batches() for each in ready}
