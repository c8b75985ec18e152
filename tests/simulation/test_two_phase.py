"""Tests that each two-phase commit ends as its application decided, no matter which faults the seed injects.

The faults include recoveries that crash, two instances that run concurrently, late and repeated EndTxn requests,
exhausted epochs, and power failures. The outcome is always the one in the application's database. Repeat a seed with
`make sim SEED=n`, or try more seeds with `make sim SEEDS=n`.
"""

import re
from collections.abc import Callable
from functools import partial

import pytest

from odradek.broker.coordinators.transaction_coordinator import TransactionCoordinator
from tests.simulation.seeds import seeds
from tests.simulation.simulated_broker import Parts
from tests.simulation.transaction_world import failure_of
from tests.simulation.two_phase_world import TwoPhaseWorld
from tests.simulation.wrong_parts import NotBumpedAgain, TimeoutPassedOn, unsynced_log

SEEDS = seeds(100)
PATIENCE = 40  # number of seeds


@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_end_exactly_as_the_applications_decide(seed: int) -> None:
    TwoPhaseWorld(seed).run()


@pytest.mark.parametrize(
    ("parts", "how_it_shows"),
    [
        pytest.param(
            lambda: Parts(coordinator=partial(TransactionCoordinator, new_core=NotBumpedAgain)),
            "never to be committed|lost|went back",
            id="the-owners-pair-is-not-bumped-again",
        ),
        pytest.param(
            lambda: Parts(coordinator=partial(TransactionCoordinator, new_core=TimeoutPassedOn)),
            "never|lost|still open|nobody will ever",
            id="a-recovery-passes-the-wrong-timeout-on",
        ),
        pytest.param(lambda: Parts(state_log=unsynced_log), "nobody will ever|lost|never", id="answers-are-not-synced"),
    ],
)
def test_a_seed_finds_the_bug(parts: Callable[[], Parts], how_it_shows: str) -> None:
    for seed in range(PATIENCE):
        failure = failure_of(TwoPhaseWorld(seed, parts()))
        if failure is not None:
            assert re.search(how_it_shows, str(failure.__cause__)), failure
            assert f"SEED={seed} " in str(failure)
            return
    pytest.fail(f"{PATIENCE} seeds passed")
