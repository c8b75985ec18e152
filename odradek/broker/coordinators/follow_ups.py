"""Turns that follow from another one, such as the end of a transaction from its markers: queued, so that no turn runs
inside another. They run in the order in which they were asked for, as soon as the turn under way has ended.

    with follow_ups:      # a turn
        …                 # may call `follow_ups.add(turn)`
                          # here they run, and those that follow from them
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

logger = logging.getLogger(__name__)


class FollowUps:
    __slots__ = ("_depth", "_turns")

    def __init__(self) -> None:
        self._depth = 0  # a reply that is released may bring the next request at once, whose turn is part of this one
        self._turns: deque[Callable[[], None]] = deque()

    def add(self, turn: Callable[[], None]) -> None:
        """Run it when the turn under way has ended; at once if there is none."""
        self._turns.append(turn)
        if self._depth == 0:
            with self:
                pass

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        if self._depth == 1:
            while self._turns:
                turn = self._turns.popleft()
                try:
                    turn()
                except Exception:  # a bug, and not that of whoever asked for the turn before
                    logger.exception("a turn that followed from another failed")
        self._depth -= 1
