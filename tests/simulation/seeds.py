"""The seeds that a simulation tries. `SEED=n` selects a single seed, and `SEEDS=n` the first n seeds."""

import os
from collections.abc import Sequence


def seeds(usually: int) -> Sequence[int]:
    if "SEED" in os.environ:
        return [int(os.environ["SEED"])]
    return range(int(os.environ.get("SEEDS", usually)))
