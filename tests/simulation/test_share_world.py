"""Tests that share groups process each input once, no matter which faults the seed injects.

Repeat a seed with `make sim SEED=n`, or try more seeds with `make sim SEEDS=n`.
"""

import pytest

from tests.simulation.seeds import seeds
from tests.simulation.share_world import ShareWorld

SEEDS = seeds(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_input_is_processed_once_whatever_happens(seed: int) -> None:
    ShareWorld(seed).run()
