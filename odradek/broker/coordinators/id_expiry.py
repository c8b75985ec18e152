"""Transactional ids that nobody has used for long are forgotten: one shard after the other, each in slices, since a
million of them may expire at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from odradek.broker.coordinators.shard import Shard
    from odradek.broker.coordinators.shards import Shards
    from odradek.broker.runtime.clock import Timers
    from odradek.broker.transactions.core import TransactionCore
    from odradek.broker.transactions.turn import Outcome

FORGOTTEN_AT_ONCE: Final = 200  # some 3 ms


class IdExpiry:
    """One run after the other."""

    def __init__(self, shards: Shards[TransactionCore, Any], timers: Timers) -> None:
        self._shards = shards
        self._timers = timers
        self._left: list[Shard[TransactionCore]] = []

    def begin(self) -> None:
        """Does nothing while a run is under way."""
        if not self._left:
            self._left = list(self._shards)
            self._go_on()

    def _go_on(self) -> None:
        if not self._left:
            return
        count = 0

        def decide(core: TransactionCore, now_ms: int) -> Outcome[None]:
            nonlocal count
            outcome = core.expire(now_ms, FORGOTTEN_AT_ONCE)
            count = len(outcome.records)
            return outcome

        if not self._left[-1].tidy(decide) or count < FORGOTTEN_AT_ONCE:
            self._left.pop()
        self._timers.after(0, self._go_on)
