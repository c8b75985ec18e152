"""What the share coordinator stores, and the parts of its decisions.

Nothing in an `Outcome` has happened yet: the shell appends its records and replays them, then releases the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from odradek.broker.shares.core.key import SharePartitionKey
from odradek.broker.shares.core.staging import ResolvedRange, StagedRange
from odradek.broker.shares.core.state_batch import UNDECIDED_START_OFFSET, UNKNOWN_COUNT, StateBatch

R_co = TypeVar("R_co", covariant=True)


class Snapshot(NamedTuple):
    """All that is known of a share partition, everything staged included. Replaces what was known before."""

    key: SharePartitionKey
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    created_ms: int
    written_ms: int
    batches: Sequence[StateBatch] = ()
    staged: Sequence[StagedRange] = ()


class Update(NamedTuple):
    """What one write adds. A start offset of -1 leaves the old one. `written_ms` is not stored."""

    key: SharePartitionKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch] = ()
    written_ms: int = 0
    staged: Sequence[StagedRange] = ()
    resolved: Sequence[ResolvedRange] = ()


class Deletion(NamedTuple):
    key: SharePartitionKey


StateRecord = Snapshot | Update | Deletion


class StoredState(NamedTuple):
    """What a leader finds when it loads a share partition."""

    state_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]
    staged: Sequence[StagedRange] = ()


class StateSummary(NamedTuple):
    """A share partition that was never initialised has no start offset, and epochs of 0."""

    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNDECIDED_START_OFFSET
    delivery_complete_count: int = UNKNOWN_COUNT
    staged_count: int = 0  # offsets whose acknowledgement is staged in a transaction

    @property
    def is_there(self) -> bool:
        """Group epochs, and the state epochs made of them, begin with 1."""
        return self.state_epoch > 0


class Outcome(NamedTuple, Generic[R_co]):
    """A decision; the members are those of `odradek.broker.coordinators.shard.OutcomeLike`."""

    response: R_co | None = None
    records: Sequence[StateRecord] = ()
    replies: Sequence[object] = ()
    timers: Sequence[object] = ()
    may_split: bool = False
    must_sync: bool = False
