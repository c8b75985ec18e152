"""Tests that a record whose acknowledgement was staged is delivered exactly as often as the limit allows, however the
staging ends.

The tests use the pure cores and replay the records written by the cores. Rules: docs/spec/share-groups.md#s5-8, #s5-12.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TypeVar

import pytest

from odradek.broker.shares.core.acquisition import Acquisition
from odradek.broker.shares.core.in_flight import Acknowledgement, Limits, StateWrite
from odradek.broker.shares.core.partition import SharePartition
from odradek.broker.shares.core.records import decode_record, encode_record
from odradek.broker.shares.core.state import (
    ACCEPT,
    MAX_EPOCH,
    Outcome,
    PendingTransaction,
    SharePartitionKey,
    ShareSnapshot,
    StateDeletion,
    TransactionEnd,
)
from odradek.broker.shares.core.state_core import ShareCoordinatorConfig, StateCore

R = TypeVar("R")
KEY = SharePartitionKey("g", bytes(range(16)), 0)
OWNER, EPOCH = "owner", 3
LIMIT = 3
PRODUCER_ID = 7
LIMITS = Limits(delivery_count_limit=LIMIT)
LOCK_MS = LIMITS.lock_duration_ms
HOUR_MS = 3_600_000


class Story:
    """One record of a share partition, the partition's leader in memory (None if there is no leader), and the log of
    the partition's state."""

    def __init__(self, updates_per_snapshot: int, epoch: int) -> None:
        self.config = ShareCoordinatorConfig(updates_per_snapshot=updates_per_snapshot)
        self.transaction = PendingTransaction("pay", PRODUCER_ID, epoch)
        self.now_ms = 1_000
        self.log: list[tuple[bytes, bytes | None] | TransactionEnd] = []
        self.log_start = 0
        self.core = StateCore(self.config, lambda *_: True)
        self.turn(lambda core: core.initialize(KEY, 1, 0, self.now_ms))
        self.limits = LIMITS
        self.leader: SharePartition | None = None
        self.sessions = {OWNER}

    # --- The share coordinator.

    def turn(self, decide: Callable[[StateCore], Outcome[R]]) -> R:
        outcome = decide(self.core)
        for record in outcome.records:
            self.log.append(encode_record(record))
            self.core.replay(record, len(self.log) - 1, -1)
        assert outcome.response is not None
        return outcome.response

    def restart(self) -> None:
        self.leader = None
        self.core = StateCore(self.config, lambda *_: True)
        for offset, each in list(enumerate(self.log))[self.log_start :]:
            if isinstance(each, TransactionEnd):
                self.core.replay_marker(each.producer_id, each.producer_epoch, committed=each.is_commit)
            elif (record := decode_record(*each)) is not None:
                self.core.replay(record, offset, -1)
        for record in self.core.on_loaded(self.now_ms).records:
            self.log.append(encode_record(record))
            self.core.replay(record, len(self.log) - 1, -1)

    def restart_at_lower_level(self) -> None:
        """Restarts with a release that ignores markers and pending acknowledgements."""
        self.turn(lambda core: core.repeat_markers(self.now_ms))
        self.leader = None
        self.core = StateCore(self.config, lambda *_: True)
        for offset, each in list(enumerate(self.log))[self.log_start :]:
            record = None if isinstance(each, TransactionEnd) else decode_record(*each)
            if isinstance(record, ShareSnapshot):
                self.core.replay(record._replace(pending=()), offset, -1)
            elif record is not None:
                assert not isinstance(record, StateDeletion)
                self.core.replay(record._replace(pending=(), resolved=()), offset, -1)

    def snapshot(self) -> None:
        self.now_ms += 2 * self.config.cold_snapshot_interval_ms
        self.turn(lambda core: core.snapshot_cold(len(self.log), self.now_ms))

    def prune(self) -> None:
        self.snapshot()
        self.log_start = self.core.needed_from(len(self.log))
        assert self.log_start > 0

    # --- The leader of the share partition.

    def lead(self) -> SharePartition:
        if self.leader is None:
            stored = self.turn(lambda core: core.read(KEY, 0, self.now_ms))
            self.leader = SharePartition(max(stored.start_offset, 0), stored.batches, stored.pending)
            self.store(self.leader.archive_used_up(self.limits))
        return self.leader

    def store(self, write: StateWrite | None) -> None:
        if write is not None:
            assert self.leader is not None
            self.turn(lambda core: core.write(KEY, 1, 0, write, self.now_ms))
            self.leader.write_stored(write)

    def acquired(self, member_id: str) -> list[int]:
        """Makes the member fetch, and returns the delivery counts of the records that it acquires."""
        leader = self.lead()
        acquisition = Acquisition(member_id, leader.flight.next_fetch_offset, 10)
        return [each.delivery_count for each in leader.acquire(acquisition, [(0, 0)], self.limits, self.now_ms)]

    def leave(self, member_id: str) -> None:
        self.sessions.discard(member_id)
        if self.leader is not None:
            self.store(self.leader.release(member_id, self.limits))

    def staged(self) -> StateWrite:
        leader = self.lead()
        acknowledgements = [Acknowledgement(0, 0, [ACCEPT])]
        leader.pending.require_acquired(OWNER, acknowledgements, self.transaction, self.now_ms)
        write = leader.pending.acknowledge(OWNER, EPOCH, acknowledgements, self.transaction, LIMITS)
        assert write is not None
        self.turn(lambda core: core.write(KEY, 1, 0, write, self.now_ms))
        assert leader.pending.write_stored(write) == []
        return write

    def end(self, epochs_further: int, transaction_version: int = 2) -> None:
        """Appends an abort marker to the log and applies it to the leader's state if there is a leader."""
        epoch = min(self.transaction.producer_epoch + epochs_further, MAX_EPOCH)
        ending = TransactionEnd(PRODUCER_ID, epoch, is_commit=False, transaction_version=transaction_version)
        self.log.append(ending._replace(transaction_version=2))
        self.core.replay_marker(PRODUCER_ID, epoch, committed=False)
        self.turn(lambda core: core.end_transaction(ending, self.now_ms))
        if self.leader is not None:
            self.store(self.leader.pending.apply_marker(ending, self.sessions.__contains__, self.limits, self.now_ms))

    def locks_run_out(self, after_ms: int) -> None:
        self.now_ms += after_ms
        if self.leader is not None:
            self.store(self.leader.expire_locks(self.limits, self.now_ms))


def abort(story: Story, _: StateWrite) -> None:
    story.end(1)


def abort_at_transaction_version_1(story: Story, _: StateWrite) -> None:
    story.end(0, transaction_version=1)


def time_out(story: Story, _: StateWrite) -> None:
    story.locks_run_out(2 * LOCK_MS)
    story.end(1)


def fence(story: Story, _: StateWrite) -> None:
    """Ends the transaction with a later marker, because the leader missed the transaction's own marker."""
    story.end(2)


def keep_prepared(story: Story, _: StateWrite) -> None:
    """Aborts a prepared transaction long after its locks have expired, when its coordinator is available again."""
    story.locks_run_out(HOUR_MS)
    story.lead()
    story.locks_run_out(HOUR_MS)
    assert story.acquired("early") == []
    story.end(1)


def released(story: Story, _: StateWrite) -> None:
    """Releases the acknowledgement after the locks have expired, because no coordinator knows the transaction any
    more."""
    story.lead()
    story.locks_run_out(2 * LOCK_MS)
    story.store(story.lead().pending.release(story.transaction, story.limits, story.now_ms))


def undone(story: Story, write: StateWrite) -> None:
    """Undoes the staging, as the leader does if the request fails in another partition."""
    story.store(story.lead().pending.undo_write(write, story.limits, story.now_ms))


def leave_memory(story: Story) -> None:
    """Ends the last session, so that the share partition is unloaded."""
    story.leave(OWNER)
    story.leader = None


def kill(story: Story) -> None:
    story.sessions.clear()
    story.restart()


def prune_and_restart(story: Story) -> None:
    story.prune()
    story.restart()


ENDS = [abort, abort_at_transaction_version_1, time_out, fence, keep_prepared, released]
MEANWHILE: dict[str, Callable[[Story], None]] = {
    "nothing": lambda _: None,
    "snapshot": Story.snapshot,
    "pruning": Story.prune,
}
PRESENCE: dict[str, Callable[[Story], None]] = {
    "the owner is there": lambda _: None,
    "the owner is gone": lambda story: story.leave(OWNER),
    "left memory": leave_memory,
    "restarted": kill,
}
LATER: dict[str, Callable[[Story], None]] = {
    "nothing": lambda _: None,
    "restart": Story.restart,
    "pruning and restart": prune_and_restart,
    "lower level": Story.restart_at_lower_level,
}


def staged_at(count: int, updates_per_snapshot: int, epoch: int) -> tuple[Story, StateWrite]:
    """Stages the acknowledgement of the record's `count`-th delivery and then lowers the delivery limit to LIMIT."""
    story = Story(updates_per_snapshot, epoch)
    story.limits = LIMITS._replace(delivery_count_limit=max(LIMIT, count))
    for number in range(1, count):
        assert story.acquired(f"before-{number}") == [number]
        story.leave(f"before-{number}")
    assert story.acquired(OWNER) == [count]
    write = story.staged()
    story.limits = LIMITS
    return story, write


def deliveries_after(story: Story, count: int) -> int:
    """Returns how many times the record has been delivered when no member can acquire it any more.

    Every member disappears without an acknowledgement, including any member that still holds the record.
    """
    story.leave(OWNER)
    for number in range(count + 1, count + 10):
        delivered = story.acquired(f"after-{number}")
        if not delivered:
            return number - 1
        assert delivered == [number]
        story.leave(f"after-{number}")
    raise AssertionError("it is delivered for ever")


@pytest.mark.parametrize("count", [LIMIT - 1, LIMIT, LIMIT + 1])
@pytest.mark.parametrize("updates_per_snapshot", [500, 1])
@pytest.mark.parametrize("epoch", [0, MAX_EPOCH - 1])
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_a_staged_record_is_delivered_up_to_its_limit_however_it_ends(
    end: Callable[[Story, StateWrite], None], epoch: int, updates_per_snapshot: int, count: int
) -> None:
    for meanwhile, presence, later in product(MEANWHILE, PRESENCE, LATER):
        story, write = staged_at(count, updates_per_snapshot, epoch)
        MEANWHILE[meanwhile](story)
        PRESENCE[presence](story)
        end(story, write)
        LATER[later](story)
        assert deliveries_after(story, count) == max(count, LIMIT), (meanwhile, presence, later)
        assert story.core.pending_count == 0


@pytest.mark.parametrize("count", [LIMIT - 1, LIMIT, LIMIT + 1])
@pytest.mark.parametrize("later", LATER)
def test_a_staging_that_is_undone_counts_as_the_delivery_that_it_was(later: str, count: int) -> None:
    story, write = staged_at(count, 500, 0)
    undone(story, write)
    LATER[later](story)
    assert deliveries_after(story, count) == max(count, LIMIT)
    assert story.core.pending_count == 0


@pytest.mark.parametrize("presence", PRESENCE)
@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("count", [LIMIT - 1, LIMIT, LIMIT + 1])
def test_a_committed_record_is_delivered_no_more(count: int, later: str, presence: str) -> None:
    """Checks that a committed record is not delivered again. `later` must therefore preserve the commit and not only
    the delivery count."""
    story, _ = staged_at(count, 500, 0)
    PRESENCE[presence](story)
    ending = TransactionEnd(PRODUCER_ID, 1, is_commit=True)
    story.log.append(ending)
    story.core.replay_marker(PRODUCER_ID, 1, committed=True)
    story.turn(lambda core: core.end_transaction(ending, story.now_ms))
    if story.leader is not None:
        story.store(story.leader.pending.apply_marker(ending, story.sessions.__contains__, story.limits, story.now_ms))
    LATER[later](story)
    assert deliveries_after(story, count) == count
