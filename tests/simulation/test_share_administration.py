"""Tests that share groups agree with a model while administrators change them and acknowledgements are pending.

This module tries more seeds than tests/spec/shares/test_administration_while_pending.py. It also plants bugs, which the
model must find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from odradek.broker.handlers.cluster import features
from odradek.broker.handlers.transactions import administration
from odradek.broker.shares.core import entry
from odradek.broker.shares.core.entry import PendingRanges, StateEntry
from odradek.broker.shares.core.pending_records import PendingRecords
from odradek.broker.shares.core.state import Outcome, ShareSnapshot
from odradek.broker.shares.core.state_core import StateCore
from odradek.broker.shares.leader.shares import SharePartitionManager
from tests.simulation import wrong_shares as wrong
from tests.simulation.seeds import seeds
from tests.simulation.share_administration import Administration
from tests.support.variants import pure_only

STEPS = 500
PATIENCE = 12  # maximum number of seeds to find a planted bug


@pytest.mark.parametrize("seed", seeds(60))
def test_pending_acknowledgements_survive_administrative_changes(seed: int) -> None:
    Administration(seed).run(STEPS)


@contextmanager
def leaders_keep_what_was_reset() -> Iterator[None]:
    """Plants a bug: the leader still uses its old state after offsets have been altered or deleted."""
    with patch.object(SharePartitionManager, "drop_partitions", lambda self, keys: None):
        yield


@contextmanager
def state_begun_anew_keeps_what_is_pending() -> Iterator[None]:
    take_snapshot = StateEntry.take_snapshot

    def keeping(self: StateEntry, snapshot: ShareSnapshot, *args: Any) -> None:
        overlay = self.overlay
        take_snapshot(self, snapshot, *args)
        if not snapshot.pending:
            self.overlay = overlay

    with patch.object(StateEntry, "take_snapshot", keeping):
        yield


@contextmanager
def lowering_without_a_look_at_what_is_pending() -> Iterator[None]:
    with patch.object(features, "pending_count", lambda broker: 0):
        yield


@contextmanager
def state_of_deleted_topics_stays() -> Iterator[None]:
    with patch.object(StateCore, "forget_missing_topics", lambda self, exists: Outcome(0)):
        yield


@contextmanager
def pending_in_memory_only() -> Iterator[None]:
    with patch.object(PendingRanges, "add", lambda self, added: None):
        yield


@contextmanager
def pending_that_anybody_may_acknowledge() -> Iterator[None]:
    with patch.object(PendingRecords, "require_acquired", lambda self, *args: None):
        yield


@contextmanager
def commits_that_are_taken_for_aborts() -> Iterator[None]:
    with patch.object(entry, "_batches_of", lambda ended: []):
        yield


@contextmanager
def markers_of_version_1_count_as_old_ones() -> Iterator[None]:
    """Plants a bug: WriteTxnMarkers v1 has no transaction version, so its markers are treated as version 0, and the
    epoch of an old marker ends the next transaction."""
    marker_of = administration.marker_of
    with patch.object(administration, "marker_of", lambda asked, version: marker_of(asked, 2)):
        yield


@pure_only
@pytest.mark.parametrize(
    "bug",
    [
        leaders_keep_what_was_reset,
        state_begun_anew_keeps_what_is_pending,
        lowering_without_a_look_at_what_is_pending,
        state_of_deleted_topics_stays,
        pending_in_memory_only,
        pending_that_anybody_may_acknowledge,
        commits_that_are_taken_for_aborts,
        markers_of_version_1_count_as_old_ones,
        wrong.a_marker_resolves_the_next_transaction_too,
        wrong.snapshots_without_what_is_staged,
        wrong.staged_records_redelivered_after_reload,
        wrong.locks_that_run_out_without_an_abort,
        wrong.pruning_of_what_is_needed,
        wrong.answers_before_the_disk,
    ],
    ids=lambda bug: bug.__name__.replace("_", " "),
)
def test_a_planted_bug_is_found(bug: Callable[[], AbstractContextManager[None]]) -> None:
    with bug():
        for seed in range(PATIENCE):
            try:
                Administration(seed).run(STEPS)
            except AssertionError:
                return
    pytest.fail("nothing was found")
