"""Tests that the simulations of share groups find planted bugs."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from odradek.protocol.variant import COMPILED, variant
from tests.support.variants import REPLACES_FUNCTIONS

if variant() == COMPILED:
    pytest.skip(REPLACES_FUNCTIONS, allow_module_level=True)

from tests.simulation import test_share_crashes as crashing
from tests.simulation import test_share_two_phase_crashes as two_phase
from tests.simulation import wrong_shares as wrong
from tests.simulation.share_stage import prepared_disk
from tests.simulation.share_world import ShareWorld
from tests.simulation.transaction_world import failure_of
from tests.spec.shares import test_share_transactions_are_lowered as lowered
from tests.support.fake_disk import FakeDisk

PATIENCE = 20  # number of seeds
Experiment = Callable[[], str | None]  # returns the finding, or None


def plain_kills() -> str | None:
    return _story(
        lambda: crashing.test_a_killed_broker_keeps_the_state_that_it_reported_to_clients(crashing.PLAIN, _disk())
    )


def plain_power_failures() -> str | None:
    return _story(
        lambda: crashing.test_a_power_failure_loses_no_state_that_was_reported_to_clients(crashing.PLAIN, _disk())
    )


def kills() -> str | None:
    return _story(
        lambda: crashing.test_a_killed_broker_keeps_the_state_that_it_reported_to_clients(
            crashing.IN_TRANSACTIONS, _disk()
        )
    )


def in_doubt() -> str | None:
    disk = prepared_disk(is_durable=False)
    return _story(
        lambda: two_phase.test_promised_acknowledgements_survive_a_power_failure(
            commit=True, keeps=False, prepared=disk
        )
    )


def lowering() -> str | None:
    return _story(lowered.test_nothing_is_staged_while_the_lower_level_is_being_recorded)


def seeds() -> str | None:
    for seed in range(PATIENCE):
        failure = failure_of(ShareWorld(seed))
        if failure is not None:
            return str(failure.__cause__)
    return None


def _disk() -> FakeDisk:
    return prepared_disk(is_durable=True)


def _story(play: Callable[[], None]) -> str | None:
    try:
        play()
    except AssertionError as failure:
        return str(failure)
    return None


@pytest.mark.parametrize(
    ("bug", "experiment", "how_it_shows"),
    [
        (wrong.staging_before_registration, kills, "staged, and no transaction"),
        (wrong.a_marker_resolves_the_next_transaction_too, seeds, ""),
        (wrong.staged_records_redelivered_after_reload, in_doubt, "while its acknowledgement is staged"),
        (wrong.snapshots_without_what_is_staged, kills, ""),
        (wrong.cold_snapshots_without_what_is_staged, kills, ""),
        (wrong.acknowledged_state_lost_between_update_and_snapshot, plain_kills, "after it was finished"),
        (wrong.pruning_of_what_is_needed, seeds, ""),
        (wrong.delivery_counts_not_stored, plain_kills, r"not the \d"),
        (wrong.state_begun_anew, in_doubt, "while its acknowledgement is staged"),
        (wrong.two_phase_staging_not_synced, in_doubt, "while its acknowledgement is staged"),
        (wrong.answers_before_the_disk, plain_power_failures, ""),
        (wrong.locks_that_run_out_without_an_abort, kills, ""),
        (wrong.no_draining, lowering, "UNSUPPORTED_VERSION"),
    ],
    ids=lambda value: value.__name__.replace("_", " ") if callable(value) else "",
)
def test_a_planted_bug_is_found(
    bug: Callable[[], AbstractContextManager[None]], experiment: Experiment, how_it_shows: str
) -> None:
    with bug():
        found = experiment()
    assert found is not None, "nothing was found"
    assert re.search(how_it_shows, found)
