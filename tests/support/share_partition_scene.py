"""A share partition for tests: a log of batches, members that fetch and acknowledge, a clock, and a store whose answers
the test delivers. There is no socket, event loop or broker."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from odradek.broker.shares.core.acquisition import AcquireMode, Acquisition
from odradek.broker.shares.core.in_flight import Acknowledgement, Limits, StateWrite
from odradek.broker.shares.core.partition import SharePartition
from odradek.broker.shares.core.state import StateBatch
from odradek.protocol.errors import ErrorCode, KafkaError

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
BATCH_OPTIMIZED, RECORD_LIMIT = AcquireMode.BATCH_OPTIMIZED, AcquireMode.RECORD_LIMIT


class SharePartitionScene:
    """A share partition over a log that starts at offset 0.

    batches  number of records of each batch
    """

    def __init__(self, *batches: int, limits: Limits | None = None) -> None:
        self.limits = Limits() if limits is None else limits
        self.now_ms = 0
        self.log: list[tuple[int, int]] = []
        self.log_start_offset = 0
        self.stored: list[StateWrite] = []  # writes that the share coordinator received, in order
        self.produce(*batches)
        self.partition = SharePartition(0)

    def produce(self, *batches: int) -> None:
        for count in batches:
            first = self.log[-1][1] + 1 if self.log else 0
            self.log.append((first, first + count - 1))

    def compact_away(self, first_offset: int, last_offset: int) -> None:
        self.log = [each for each in self.log if each[1] < first_offset or each[0] > last_offset]

    def delete_records_before(self, offset: int) -> None:
        self.log_start_offset = offset
        self.log = [each for each in self.log if each[1] >= offset]

    def reload(self, start_offset: int, *batches: tuple[int, int, int, int]) -> None:
        """Replaces the leader, as after a failover. The new leader knows only the stored state."""
        self.partition = SharePartition(start_offset, [StateBatch(*each) for each in batches])

    def fetch(
        self,
        member: str,
        max_records: int = 500,
        *,
        batch_size: int = 500,
        mode: AcquireMode = BATCH_OPTIMIZED,
        aborted: Sequence[tuple[int, int]] = (),
        end_offset: int | None = None,
        batches_read: int | None = None,
    ) -> list[tuple[int, int, int]]:
        """Fetches and returns (first offset, last offset, delivery count) for every acquired range.

        end_offset    end of the log for this reader; by default the real end
        batches_read  number of batches that one read of the log returns
        """
        partition = self.partition
        fetch_offset = partition.flight.next_fetch_offset
        if fetch_offset < self.log_start_offset:
            partition.log_start_moved(self.log_start_offset)
            return []
        if not partition.may_acquire(self.limits):
            return []
        read = [each for each in self.log if each[1] >= fetch_offset and (end_offset is None or each[1] < end_offset)]
        acquisition = Acquisition(member, fetch_offset, max_records, batch_size, mode)
        acquired = partition.acquire(acquisition, read[:batches_read], self.limits, self.now_ms, aborted)
        assert all(before.last_offset < after.first_offset for before, after in pairwise(acquired))
        return [(each.first_offset, each.last_offset, each.delivery_count) for each in acquired]

    def begin_ack(self, member: str, *batches: tuple[int, int, int | list[int]]) -> StateWrite | None:
        """Starts an acknowledgement and returns the state write that it waits for. Raises KafkaError if it is
        refused."""
        acknowledgements = [
            Acknowledgement(first, last, [types] if isinstance(types, int) else types) for first, last, types in batches
        ]
        return self.partition.acknowledge(member, acknowledgements, self.limits, self.now_ms)

    def ack(self, member: str, *batches: tuple[int, int, int | list[int]]) -> ErrorCode:
        try:
            write = self.begin_ack(member, *batches)
        except KafkaError as error:
            return error.code
        self.store(write)
        return ErrorCode.NONE

    def store(self, write: StateWrite | None) -> None:
        if write is not None:
            self.stored.append(write)
            self.partition.write_stored(write)

    def fail(self, write: StateWrite | None) -> None:
        assert write is not None
        self.partition.write_failed(write, self.limits)

    def end_session(self, member: str) -> None:
        self.store(self.partition.release(member, self.limits))

    def wait(self, ms: int) -> None:
        """Advances the clock. The lock timer fires whenever it is due."""
        until = self.now_ms + ms
        while (deadline := self.partition.flight.earliest_deadline_ms) is not None and deadline <= until:
            self.now_ms = max(self.now_ms, deadline)
            write = self.partition.expire_locks(self.limits, self.now_ms)
            if write is not None:
                self.stored.append(write)
        self.now_ms = until

    @property
    def lag(self) -> int:
        """Returns the lag that DescribeShareGroupOffsets would derive from the stored state."""
        log_end = self.log[-1][1] + 1
        return log_end - self.stored[-1].start_offset - self.stored[-1].delivery_complete_count

    @property
    def last_stored(self) -> list[tuple[int, int, int, int]]:
        return [(*each,) for each in self.stored[-1].batches]
