"""How long to wait before a node is asked, or asked again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from odradek.protocol.api_facts import client_waits

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


@dataclass(slots=True)
class Throttle:
    """Until when a node that told a throttle time is asked nothing (KIP-219), in seconds of the loop's clock."""

    until_s: float = 0.0

    def told(self, api_key: int, version: int, throttle_ms: int, now_s: float) -> bool:
        """Says whether the node waits longer for this answer. A shorter time ends no longer one."""
        until_s = now_s + throttle_ms / 1000
        if throttle_ms <= 0 or until_s <= self.until_s or not client_waits(api_key, version):
            return False
        self.until_s = until_s
        return True

    def left_s(self, now_s: float) -> float:
        return max(0.0, self.until_s - now_s)
