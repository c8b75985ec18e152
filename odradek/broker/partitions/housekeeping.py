"""Periodic chores, partition by partition: retention, producer expiry, flushing by time, checkpoints.

A chore goes through all partitions in slices: after SLICE_MS it yields to the clients, then continues. Its next run is
counted from the end of the last one, so that runs of one chore never overlap.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.broker.runtime.clock import Clock, Scan, TimerHandle, Timers
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.partitions.partition import Partition

logger = logging.getLogger(__name__)

SLICE_MS = 3
NEVER_MS = 10 * 365 * 24 * 60 * 60 * 1000  # Kafka's way of saying "off" is an interval longer than this


@dataclass(frozen=True, slots=True)
class Chore:
    """`interval_ms` is asked before each run, since settings may change; `at_end` runs behind the last partition.
    `stop` is for what a run has set going. `due_ms`: see `Scan`; None: each run does something."""

    name: str
    interval_ms: Callable[[], int | None]
    visit: Callable[[Partition, int], None] | None = None
    at_end: Callable[[int], None] | None = None
    stop: Callable[[], None] | None = None
    due_ms: Callable[[Iterable[Partition], int], int | None] | None = None


class Housekeeping:
    """Runs the chores. `partitions` is called for each run."""

    def __init__(
        self,
        chores: Iterable[Chore],
        partitions: Callable[[], Iterable[Partition]],
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._chores = tuple(chores)
        self._partitions = partitions
        self._clock = clock
        self._timers = timers
        self._armed: dict[str, TimerHandle] = {}

    def start(self, initial_delay_ms: int) -> None:
        """The first run of each chore comes after `initial_delay_ms` or its interval, whichever is shorter."""
        for chore in self._chores:
            self._arm(chore, initial_delay_ms)

    def stop(self) -> None:
        for timer in self._armed.values():
            timer.cancel()
        self._armed.clear()
        for chore in self._chores:
            if chore.stop is not None:
                chore.stop()

    def _arm(self, chore: Chore, at_most_ms: int = NEVER_MS) -> None:
        interval_ms = chore.interval_ms()
        self._armed.pop(chore.name, None)
        if interval_ms is None or interval_ms >= NEVER_MS:
            return
        due_ms = chore.due_ms
        run: Callable[[], None] = lambda: self._run(chore)  # noqa: E731
        if due_ms is not None:
            run = Scan(run, interval_ms, lambda: due_ms(self._partitions(), self._clock.now_ms()))
        self._armed[chore.name] = self._timers.after(min(interval_ms, at_most_ms), run)

    def _run(self, chore: Chore) -> None:
        self._go_on(chore, iter(list(self._partitions()) if chore.visit is not None else ()))

    def _go_on(self, chore: Chore, left: Iterator[Partition]) -> None:
        began_ms = now_ms = self._clock.now_ms()
        for partition in left:
            self._visit(chore, partition, now_ms)
            now_ms = self._clock.now_ms()
            if now_ms - began_ms >= SLICE_MS:
                self._armed[chore.name] = self._timers.after(0, lambda: self._go_on(chore, left))
                return
        if chore.at_end is not None:
            try:
                chore.at_end(now_ms)
            except (KafkaError, OSError) as failure:
                logger.warning("%s: %s", chore.name, failure)
        self._arm(chore)

    def _visit(self, chore: Chore, partition: Partition, now_ms: int) -> None:
        if partition.is_deleted or chore.visit is None:
            return
        try:
            chore.visit(partition, now_ms)
        except (KafkaError, OSError) as failure:
            logger.warning("%s of %r: %s", chore.name, partition, failure)
