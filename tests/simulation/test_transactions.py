"""Tests that transactions remain atomic, no matter which faults the seed injects.

Repeat a seed with `make sim SEED=n`, or try more seeds with `make sim SEEDS=n`.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.simulation.seeds import seeds
from tests.simulation.simulated_broker import Parts
from tests.simulation.transaction_world import World, failure_of
from tests.simulation.wrong_parts import ForgetfulLog, TrustingCoordinator, markers_of_version_0, markers_once

SEEDS = seeds(200)
PATIENCE = 40  # number of seeds
PRINT_TRACE = "import sys; from tests.simulation.transaction_world import World; w = World(int(sys.argv[1])); w.run()"


@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_stay_whole_whatever_happens(seed: int) -> None:
    World(seed).run()


@pytest.mark.parametrize("seed", [0, 3])
def test_the_same_seed_is_the_same_story_in_another_process_too(seed: int) -> None:
    world = World(seed)
    world.run()
    prints = subprocess.run(
        [sys.executable, "-c", f"{PRINT_TRACE}; print(w.fingerprint)", str(seed)],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert prints.stdout.split() == [world.fingerprint]


# The next test plants bugs that brokers have had, and checks that some seed finds each of them.


@pytest.mark.parametrize(
    ("parts", "how_it_shows"),
    [
        pytest.param(lambda: Parts(markers=markers_once()), "is stuck", id="01-a-repeated-marker-is-refused"),
        pytest.param(
            lambda: Parts(markers=markers_of_version_0), "never to be committed|torn", id="07-a-late-marker-is-taken"
        ),
        pytest.param(
            lambda: Parts(coordinator=TrustingCoordinator), "never to be committed|torn", id="09-a-late-end-is-taken"
        ),
        pytest.param(
            lambda: Parts(state_log=ForgetfulLog), "nobody will ever commit", id="33-the-begin-is-not-recorded"
        ),
    ],
)
def test_a_seed_finds_the_known_bug(parts: Callable[[], Parts], how_it_shows: str) -> None:
    for seed in range(PATIENCE):
        failure = failure_of(World(seed, parts()))
        if failure is not None:
            assert re.search(how_it_shows, str(failure.__cause__))
            assert f"SEED={seed} " in str(failure)
            return
    pytest.fail(f"{PATIENCE} seeds passed")
