"""Every request of an administrator while acknowledgements are pending in transactions, beside a model, with restarts.

The model and the requests are in tests/simulation/share_administration.py. After each step it checks that no
acknowledged record comes back, that none is lost, that a pending record is neither delivered nor accepted before its
transaction ends, and that nothing of an old transaction touches what the next one has pending. The first test is for
every day; `make test-slow` takes 10,000 steps more, `make sim` as many as it is told (test_share_administration.py).
Rules: docs/spec/share-groups.md#s2-8, #s5.
"""

import pytest

from tests.simulation.share_administration import Administration

STEPS = 500


@pytest.mark.parametrize("seed", range(2))
def test_what_is_pending_stays_so_whatever_administrators_do(seed: int) -> None:
    world = Administration(seed)
    world.run(STEPS)
    assert set(world.counts) == {name for name, _ in world.STEPS}, "not every step was taken"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 22))
def test_what_is_pending_stays_so_in_ten_thousand_steps(seed: int) -> None:
    Administration(seed).run(STEPS)
