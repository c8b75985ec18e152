"""Decides from measurements whether an operation costs more CPU time than before. This module does not use a clock.

The two brokers take short turns at the work. Other work on the machine can only increase a turn's CPU time (because of
caches or a shared core), so each broker's quietest turns are compared. An operation that seems slower is measured again
before it is reported as slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

MARGIN = 1.25  # highest accepted cost, relative to the cost at the base
ATTEMPTS = 3  # number of measurements that must all show that an operation is slower
QUIETEST = 0.2  # fraction of the turns to compare


class Verdict(Enum):
    AS_BEFORE = "as before"
    AGAIN = "to be measured again"
    SLOWER = "slower"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The brokers' CPU time per operation in each turn, in µs."""

    before: Sequence[float]
    after: Sequence[float]

    @property
    def ratio(self) -> float:
        return cost(self.after) / cost(self.before)


def cost(turns: Sequence[float]) -> float:
    """Returns the mean of the quietest turns (at least one turn). Raises ValueError if there are no turns."""
    if not turns:
        raise ValueError("no turns were measured")
    quietest = sorted(turns)[: max(1, int(len(turns) * QUIETEST))]
    return sum(quietest) / len(quietest)


def verdict(attempts: Sequence[Attempt], margin: float = MARGIN) -> Verdict:
    """Returns the verdict on an operation. A single attempt within the margin is enough for AS_BEFORE, because
    disturbances come and go, whereas a slower operation is slower in every attempt."""
    if any(attempt.ratio <= margin for attempt in attempts):
        return Verdict.AS_BEFORE
    return Verdict.SLOWER if len(attempts) >= ATTEMPTS else Verdict.AGAIN
