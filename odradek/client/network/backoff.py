"""How long to wait before trying again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

JITTER = 0.2  # either way, so that clients that failed together do not come back together


@dataclass(frozen=True, slots=True)
class Backoff:
    """Twice as long after each failure, as Kafka's clients do (KIP-580)."""

    first_ms: float
    most_ms: float
    rng: random.Random = field(default_factory=random.Random, compare=False)

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row, at least one."""
        doubled = self.first_ms * 2.0 ** min(failures - 1, 30)
        return min(doubled, self.most_ms) * self.rng.uniform(1 - JITTER, 1 + JITTER) / 1000
