"""The position of a consumer in each of its partitions, and the records fetched there: decisions only, no requests.

A partition goes through these steps: its position is looked up (the committed offset of the group, else the start or
the end, by the reset policy), then records are fetched from there on, ahead of the application. When the partition gets
another leader, the position is compared with that leader's log before anything more is fetched (KIP-320).
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

EARLIEST_TIMESTAMP = -2  # what ListOffsets takes for the ends of a log
LATEST_TIMESTAMP = -1


class OffsetReset(Enum):
    """Where to read from when there is no committed offset, or the position is not in the log (`auto.offset.reset`)."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"

    @property
    def timestamp(self) -> int | None:
        """Returns what to ask ListOffsets for; None where the application wants an error instead."""
        return {OffsetReset.EARLIEST: EARLIEST_TIMESTAMP, OffsetReset.LATEST: LATEST_TIMESTAMP}.get(self)


class OffsetOutOfRange(ClientError):
    """The position is not in the log (any more), and `auto_offset_reset="none"` forbids to choose another one.

    `seek` is the way on. `offset` is None where there is no committed one.
    """

    def __init__(self, topic_partition: TopicPartition, offset: int | None) -> None:
        topic, partition = topic_partition
        told = "has no committed offset" if offset is None else f"has no record at its position {offset}"
        super().__init__(f"{topic}-{partition} {told}", ErrorCode.OFFSET_OUT_OF_RANGE)
        self.topic_partition, self.offset = topic_partition, offset


class Stage(Enum):
    """The knowledge about the position of a partition."""

    COMMITTED_WANTED = auto()  # the group's committed offset is to be asked for
    RESET_WANTED = auto()  # ListOffsets is to be asked
    VALIDATION_WANTED = auto()  # the leader has changed
    READY = auto()


@dataclass(slots=True)
class Assigned:
    """One partition of the consumer."""

    topic_partition: TopicPartition
    stage: Stage
    offset: int = -1  # what the application is given next; -1 until it is known
    leader_epoch: int | None = None  # of the record before, as far as it is known
    validated_epoch: int | None = None  # the leader's, when the position was last known to be right
    reset_to: int | None = None  # a timestamp of ListOffsets
    is_paused: bool = False
    is_asked: bool = False  # by a Fetch that is not answered
    replica: int | None = None  # the node that the leader has named to read from (KIP-392)
    replica_until_s: float = 0.0  # by time.monotonic; then the leader is asked again
    log_start_offset: int | None = None  # as the last answer to a Fetch said
    log_end_offset: int | None = None  # the same: the last stable offset, or with read_uncommitted the high watermark
    error: ClientError | None = None  # what the application has to be told before anything more is fetched
    fetched: deque[FetchedRecords] = field(default_factory=deque)

    @property
    def fetch_offset(self) -> int:
        """Where the next Fetch begins: behind what is fetched already."""
        return self.fetched[-1].end_offset if self.fetched else self.offset

    @property
    def fetched_bytes(self) -> int:
        return sum(each.size_bytes for each in self.fetched)

    def seek(self, offset: int, leader_epoch: int | None = None) -> None:
        self.stage, self.offset, self.leader_epoch = Stage.READY, offset, leader_epoch
        self.validated_epoch = self.error = None
        self.is_asked = False  # what a Fetch brings that is still out will not be wanted
        self.fetched.clear()

    def reset(self, timestamp: int) -> None:
        """To be looked up with ListOffsets."""
        self.stage, self.offset, self.leader_epoch, self.reset_to = Stage.RESET_WANTED, -1, None, timestamp
        self.fetched.clear()

    def led_in(self, leader_epoch: int | None) -> None:
        """The leader's epoch, by the newest metadata. Without an epoch of the position there is nothing to compare."""
        if self.stage is not Stage.READY or leader_epoch is None or leader_epoch == self.validated_epoch:
            return
        self.replica = None
        if self.leader_epoch is None or self.leader_epoch >= leader_epoch:
            self.validated_epoch = leader_epoch
        else:
            self.stage = Stage.VALIDATION_WANTED
            self.fetched.clear()

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """The next records, of one batch at most. Raises MalformedMessage; the position is then before the damage."""
        while self.fetched:
            first = self.fetched[0]
            try:
                taken = first.take(max_records)
            finally:
                self.offset = max(self.offset, first.next_offset)
            if first.leader_epoch is not None:
                self.leader_epoch = first.leader_epoch
            if first.is_exhausted:
                self.fetched.popleft()
            if taken:
                return taken
        return []

    def take_batches(self) -> RawBatches:
        """Takes what the oldest Fetch in hand brought, as far as it was not taken yet."""
        first = self.fetched.popleft()
        taken = first.take_batches()
        self.offset = max(self.offset, taken.end_offset)
        if first.leader_epoch is not None:
            self.leader_epoch = first.leader_epoch
        return taken


class Positions:
    """All partitions of a consumer."""

    def __init__(self, auto_offset_reset: OffsetReset) -> None:
        self._reset = auto_offset_reset
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._turn: deque[TopicPartition] = deque()  # whose records are given next
        self.emptied = 0  # how often all was taken that one Fetch had brought of a partition

    @property
    def partitions(self) -> set[TopicPartition]:
        return set(self._assigned)

    def snapshot(self) -> list[Assigned]:
        """All partitions now; any thread may call it."""
        return list(self._assigned.values())

    def __iter__(self) -> Iterator[Assigned]:
        return iter(self._assigned.values())

    def assign(self, partitions: Collection[TopicPartition], *, has_group: bool) -> None:
        """Have these and no others. Those that the consumer has already keep their positions."""
        stage = Stage.COMMITTED_WANTED if has_group else Stage.RESET_WANTED
        kept = self._assigned
        self._assigned = {}
        for partition in partitions:
            self._assigned[partition] = kept.get(partition) or Assigned(partition, stage)
            if self._assigned[partition].stage is Stage.RESET_WANTED and self._assigned[partition].reset_to is None:
                self._assigned[partition].reset_to = self._reset.timestamp
        self._turn = deque(self._assigned)

    def of(self, partition: TopicPartition) -> Assigned:
        """Raises IllegalState for one that the consumer does not have."""
        try:
            return self._assigned[partition]
        except KeyError:
            raise IllegalState(f"{partition.topic}-{partition.partition} is not assigned to this consumer") from None

    def find(self, partition: TopicPartition) -> Assigned | None:
        return self._assigned.get(partition)

    def wanting(self, stage: Stage) -> list[Assigned]:
        return [each for each in self._assigned.values() if each.stage is stage]

    def committed(self, partition: TopicPartition, offset: OffsetAndMetadata | None) -> None:
        """Takes in what the group has committed: None if it never did."""
        assigned = self._assigned.get(partition)
        if assigned is None or assigned.stage is not Stage.COMMITTED_WANTED:
            return
        if offset is not None:
            assigned.seek(offset.offset, offset.leader_epoch)
        else:
            self.lose(assigned)

    def lose(self, assigned: Assigned) -> None:
        """There is no position, or it is not in the log: another one is chosen, or the application told to do it."""
        timestamp = self._reset.timestamp
        if timestamp is not None:
            assigned.reset(timestamp)
        else:
            assigned.error = OffsetOutOfRange(
                assigned.topic_partition, None if assigned.offset < 0 else assigned.offset
            )

    def validated(
        self, assigned: Assigned, current_epoch: int | None, end_epoch: int | None, end_offset: int | None
    ) -> None:
        """Takes in what the leader said of the epoch of the position.

        current_epoch           the leader's own
        end_epoch, end_offset   the position's epoch, or the last one before it that the leader's log has, and where
                                that ends; None if it has no such epoch
        """
        if assigned.stage is not Stage.VALIDATION_WANTED:
            return
        if end_offset is None or (end_offset < assigned.offset and self._reset is OffsetReset.NONE):
            self.lose(assigned)
        elif end_offset < assigned.offset:  # what was read behind there is in the log no more
            assigned.seek(end_offset, end_epoch)
        else:
            assigned.stage = Stage.READY
        assigned.validated_epoch = current_epoch

    def to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The position of every partition that has one."""
        return {
            each.topic_partition: OffsetAndMetadata(each.offset, "", each.leader_epoch)
            for each in self._assigned.values()
            if each.offset >= 0
        }

    def hungry(self, most_bytes: int, most_bytes_in_all: int) -> list[Assigned]:
        """Lists partitions to be fetched from: ready, not paused, not asked about already, and with less than so much
        in hand."""
        in_hand = sum(each.fetched_bytes for each in self._assigned.values() if not each.is_paused)
        if in_hand >= most_bytes_in_all:
            return []
        return [
            each
            for each in self._assigned.values()
            if each.stage is Stage.READY
            and not each.is_paused
            and not each.is_asked
            and each.error is None
            and each.fetched_bytes < most_bytes
        ]

    def asked_last(self, assigned: Assigned) -> None:
        """Puts it behind the others in the next Fetch, so that none starves where answers are limited (KIP-74)."""
        self._assigned[assigned.topic_partition] = self._assigned.pop(assigned.topic_partition)

    def has_plenty(self, most_bytes: int) -> bool:
        """Whether the application has that much to take in some partition."""
        return any(each.fetched_bytes >= most_bytes and not each.is_paused for each in self._assigned.values())

    def error(self) -> ClientError | None:
        """Returns what the application is to be told, once: whatever it was is tried again after that."""
        for each in self._assigned.values():
            if each.error is not None:
                error, each.error = each.error, None
                return error
        return None

    def take(self, max_records: int) -> tuple[TopicPartition, list[ConsumerRecord]] | None:
        """Records of the partition whose turn it is. A partition keeps its turn while what one Fetch brought lasts."""
        for _ in range(len(self._turn)):
            assigned = self._assigned[self._turn[0]]
            if not assigned.is_paused:
                before = len(assigned.fetched)
                taken = assigned.take(max_records)
                if len(assigned.fetched) < before:
                    self.emptied += 1
                    self._turn.rotate(-1)
                if taken:
                    return assigned.topic_partition, taken
                if before:
                    continue
            self._turn.rotate(-1)
        return None

    def take_batches(self) -> dict[TopicPartition, RawBatches]:
        """Takes what one Fetch brought of each partition."""
        wanted = [each for each in self._assigned.values() if each.fetched and not each.is_paused]
        self.emptied += len(wanted)
        return {each.topic_partition: each.take_batches() for each in wanted}
