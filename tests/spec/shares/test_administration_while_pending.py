"""Tests that administrative requests do not affect pending acknowledgements. A test sends every such request while
acknowledgements are pending in transactions, and compares the broker with a model, even across restarts.

The model and the requests are in tests/simulation/share_administration.py. After each step, the test checks that no
acknowledged record is delivered again, that no record is lost, that a pending record is neither delivered nor accepted
before its transaction ends, and that an old transaction does not change pending records of the next one. The first test
runs in every `make test`. `make test-slow` runs 10,000 more steps, and `make sim` runs as many steps as you request
(test_share_administration.py). Rules: docs/spec/share-groups.md#s2-8, #s5.
"""

import pytest

from tests.simulation.share_administration import Administration

STEPS = 500


@pytest.mark.parametrize("seed", range(2))
def test_pending_acknowledgements_survive_administrative_changes(seed: int) -> None:
    world = Administration(seed)
    world.run(STEPS)
    assert set(world.counts) == {name for name, _ in world.STEPS}, "not every step was taken"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 22))
def test_pending_acknowledgements_survive_ten_thousand_administrative_steps(seed: int) -> None:
    Administration(seed).run(STEPS)
