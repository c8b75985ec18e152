"""Bugs in share groups that tests plant intentionally. A bug exists only within its `with` block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import PropertyMock, patch

from odradek.broker.coordinators.share_coordinator import Persister
from odradek.broker.shares.core import entry, pending_records
from odradek.broker.shares.core import partition as share_partition
from odradek.broker.shares.core.entry import StateEntry
from odradek.broker.shares.core.in_flight import batches_to_store
from odradek.broker.shares.core.pending_records import PendingRecords
from odradek.broker.shares.core.state import (
    Outcome,
    PendingTransaction,
    Resolution,
    SharePartitionKey,
    ShareSnapshot,
    ShareUpdate,
    StateBatch,
    TransactionEnd,
)
from odradek.broker.shares.core.state_core import StateCore
from odradek.broker.shares.leader import group_state, txn_acknowledging
from odradek.broker.shares.leader.live_partition import LiveSharePartition
from odradek.broker.shares.leader.overdue import OverdueTransactions
from odradek.broker.shares.leader.shares import SharePartitionManager
from odradek.broker.shares.leader.txn_acknowledging import Results
from tests.simulation.simulated_broker import LogInTurns


@contextmanager
def staging_before_registration() -> Iterator[None]:
    """Makes acknowledgements pending before their transaction is registered with the coordinator."""
    register, make_pending = txn_acknowledging.register_partitions, txn_acknowledging.make_pending

    async def nothing(*of: Any) -> None:
        pass

    async def pending_first(*of: Any) -> Results:
        results = await make_pending(*of)
        await register(*of)
        return results

    with (
        patch.object(txn_acknowledging, "register_partitions", nothing),
        patch.object(txn_acknowledging, "make_pending", pending_first),
    ):
        yield


def any_later_epoch(ending: TransactionEnd, producer_id: int, producer_epoch: int) -> Resolution | None:
    """Makes a late or repeated marker of the previous transaction also resolve the current one."""
    if ending.producer_id != producer_id or ending.producer_epoch < producer_epoch:
        return None
    return Resolution.COMMITTED if ending.is_commit else Resolution.ABORTED


@contextmanager
def a_marker_resolves_the_next_transaction_too() -> Iterator[None]:
    with (
        patch.object(entry, "resolution_by", any_later_epoch),
        patch.object(pending_records, "resolution_by", any_later_epoch),
    ):
        yield


@contextmanager
def staged_records_redelivered_after_reload() -> Iterator[None]:
    with patch.object(PendingRecords, "load", lambda self, ranges: None):
        yield


@contextmanager
def next_records(change: Callable[[StateEntry, ShareSnapshot], ShareSnapshot]) -> Iterator[None]:
    """Applies `change` to each snapshot that the broker writes in place of an update."""
    next_record = StateEntry.next_record

    def changed(self: StateEntry, *args: Any, **how: Any) -> ShareSnapshot | ShareUpdate:
        record = next_record(self, *args, **how)
        return change(self, record) if isinstance(record, ShareSnapshot) else record

    with patch.object(StateEntry, "next_record", changed):
        yield


@contextmanager
def snapshots_without_what_is_staged() -> Iterator[None]:
    with next_records(lambda entry, snapshot: snapshot._replace(pending=())):
        yield


@contextmanager
def cold_snapshots_without_what_is_staged() -> Iterator[None]:
    snapshot = StateEntry.snapshot
    with patch.object(StateEntry, "snapshot", lambda self, now_ms: snapshot(self, now_ms)._replace(pending=())):
        yield


@contextmanager
def acknowledged_state_lost_between_update_and_snapshot() -> Iterator[None]:
    with next_records(lambda entry, snapshot: snapshot._replace(batches=list(entry.batches))):
        yield


@contextmanager
def pruning_of_what_is_needed() -> Iterator[None]:
    with patch.object(StateCore, "needed_from", lambda self, next_record_offset: next_record_offset):
        yield


@contextmanager
def delivery_counts_not_stored() -> Iterator[None]:
    def first(changes: Any) -> Sequence[StateBatch]:
        return [each._replace(delivery_count=1) for each in batches_to_store(changes)]

    with patch.object(share_partition, "batches_to_store", first):
        yield


@contextmanager
def state_begun_anew() -> Iterator[None]:
    async def initialize_anyway(
        persister: Persister, key: SharePartitionKey, state_epoch: int, start_offset: int
    ) -> bool:
        return await persister.initialize(key, state_epoch, start_offset)

    with patch.object(group_state, "_initialize_if_missing", initialize_anyway):
        yield


@contextmanager
def two_phase_staging_not_synced() -> Iterator[None]:
    write = StateCore.write

    def unsynced(self: StateCore, *args: Any, **how: Any) -> Outcome[bool]:
        return write(self, *args, **how)._replace(must_sync=False)

    with patch.object(StateCore, "write", unsynced):
        yield


@contextmanager
def answers_before_the_disk() -> Iterator[None]:
    with patch.object(LogInTurns, "when_durable", lambda self, action, *, must_sync=False: action(None)):
        yield


@contextmanager
def locks_that_run_out_without_an_abort() -> Iterator[None]:
    """Releases pending records when their locks expire, without an abort, as in KIP-1289's text."""

    def found(self: OverdueTransactions, live: LiveSharePartition, transaction: PendingTransaction) -> None:
        live.release_pending(transaction)

    with patch.object(OverdueTransactions, "end_transaction", found):
        yield


@contextmanager
def no_draining() -> Iterator[None]:
    with patch.object(SharePartitionManager, "is_draining", PropertyMock(return_value=False), create=True):
        yield
