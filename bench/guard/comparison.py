"""Decides whether an operation costs more CPU than before, given the measurements. Uses no clock.

The two brokers take short turns. Other work on the machine can only increase the CPU time of a turn (caches, a shared
core), so the quietest turns of each broker are compared. If an operation seems slower, it is measured again before that
counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

MARGIN = 1.25  # the highest cost that is accepted, relative to the cost before
ATTEMPTS = 3  # an operation counts as slower if each of these measurements shows it
QUIETEST = 0.2  # the share of the turns that count


class Verdict(Enum):
    AS_BEFORE = "as before"
    AGAIN = "to be measured again"
    SLOWER = "slower"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The broker's CPU per operation in µs, for each turn."""

    before: Sequence[float]
    after: Sequence[float]

    @property
    def ratio(self) -> float:
        return cost(self.after) / cost(self.before)


def cost(turns: Sequence[float]) -> float:
    """Returns the mean of the quietest turns, at least one. Raises ValueError if there are none."""
    if not turns:
        raise ValueError("no turns were measured")
    quietest = sorted(turns)[: max(1, int(len(turns) * QUIETEST))]
    return sum(quietest) / len(quietest)


def verdict(attempts: Sequence[Attempt], margin: float = MARGIN) -> Verdict:
    """Returns the verdict. A single attempt within the margin suffices: disturbances come and go, but a slower
    operation is slower in each attempt."""
    if any(attempt.ratio <= margin for attempt in attempts):
        return Verdict.AS_BEFORE
    return Verdict.SLOWER if len(attempts) >= ATTEMPTS else Verdict.AGAIN
