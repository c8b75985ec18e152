"""Whether an operation costs more CPU than before: the guard's verdict on what was measured, without a clock.

The two brokers take short turns. Whatever else the machine does only adds to the CPU time of a turn (caches, a core
that is shared), so the quietest turns of each are compared; and what seems slower is measured again before it counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

MARGIN = 1.25  # the most that an operation may cost, in units of what it cost before
ATTEMPTS = 3  # an operation is slower if each of so many measurements says so
QUIETEST = 0.2  # the share of the turns that count


class Verdict(Enum):
    AS_BEFORE = "as before"
    AGAIN = "to be measured again"
    SLOWER = "slower"


@dataclass(frozen=True, slots=True)
class Attempt:
    """CPU of the broker per operation in µs, one value for each turn."""

    before: Sequence[float]
    after: Sequence[float]

    @property
    def ratio(self) -> float:
        return cost(self.after) / cost(self.before)


def cost(turns: Sequence[float]) -> float:
    """The mean of the quietest turns, at least one of them. Raises ValueError if there are none."""
    if not turns:
        raise ValueError("no turns were measured")
    quietest = sorted(turns)[: max(1, int(len(turns) * QUIETEST))]
    return sum(quietest) / len(quietest)


def verdict(attempts: Sequence[Attempt], margin: float = MARGIN) -> Verdict:
    """One attempt within the margin is enough: what disturbs a measurement comes and goes, and a slower operation is
    slower each time."""
    if any(attempt.ratio <= margin for attempt in attempts):
        return Verdict.AS_BEFORE
    return Verdict.SLOWER if len(attempts) >= ATTEMPTS else Verdict.AGAIN
