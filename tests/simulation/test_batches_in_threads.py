"""Tests that a batch checked in a thread is checked again before it is appended.

Repeat a seed with `make sim SEED=n`, or try more seeds with `make sim SEEDS=n`.
"""

import re

import pytest

from tests.simulation.seeds import seeds
from tests.simulation.simulated_broker import Parts
from tests.simulation.thread_world import ThreadWorld
from tests.simulation.transaction_world import failure_of
from tests.simulation.wrong_parts import markers_that_leave_guards

SEEDS = seeds(10)
PATIENCE = 40  # number of seeds


@pytest.mark.parametrize("seed", SEEDS)
def test_no_batch_is_written_behind_the_marker_of_its_transaction(seed: int) -> None:
    ThreadWorld(seed).run()


def test_a_seed_finds_known_bug_62() -> None:
    for seed in range(PATIENCE):
        failure = failure_of(ThreadWorld(seed, Parts(markers=markers_that_leave_guards)))
        if failure is not None:
            assert re.search("nobody will ever commit|is stuck", str(failure.__cause__))
            return
    pytest.fail(f"{PATIENCE} seeds passed")
