"""Computes how long to wait before retrying a request and before sending a request to a node that throttles the
client."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from odradek.protocol.api_facts import client_waits

# Fraction by which a delay is randomly lengthened or shortened, so that clients that failed together do not retry
# together.
JITTER = 0.2


@dataclass(frozen=True, slots=True)
class Backoff:
    """An exponential backoff whose delay doubles after each failure, as in Kafka's clients (KIP-580)."""

    first_ms: float
    max_ms: float
    rng: random.Random = field(default_factory=random.Random, compare=False)

    def delay_s(self, failures: int) -> float:
        """Returns the delay in seconds after this many consecutive failures. `failures` is at least 1."""
        doubled = self.first_ms * 2.0 ** min(failures - 1, 30)
        return min(doubled, self.max_ms) * self.rng.uniform(1 - JITTER, 1 + JITTER) / 1000


@dataclass(slots=True)
class Throttle:
    """The throttle for one node. No request is sent to the node before `until_s`, in seconds on the loop's clock
    (KIP-219)."""

    until_s: float = 0.0

    def note_throttle(self, api_key: int, version: int, throttle_ms: int, now_s: float) -> bool:
        """Applies a response's throttle time. Returns whether it extends the throttle. A shorter time has no effect."""
        until_s = now_s + throttle_ms / 1000
        if throttle_ms <= 0 or until_s <= self.until_s or not client_waits(api_key, version):
            return False
        self.until_s = until_s
        return True

    def left_s(self, now_s: float) -> float:
        return max(0.0, self.until_s - now_s)
