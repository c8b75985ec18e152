"""Delays markers on their way to partition leaders, as if the leaders were in other processes."""

from collections.abc import Mapping, Sequence
from random import Random

from odradek.broker.coordinators.transaction_markers import MarkerWriter, OnWritten, TxnMarker
from odradek.protocol.errors import ErrorCode
from tests.checker.history import TopicPartition
from tests.simulation.virtual_time import VirtualTimers


class FarMarkers:
    """Delivers markers late, some of them twice, and delays their responses. Other events happen in the meantime, and
    the process may die.

    Only markers of transaction.version 2 are delivered twice. In earlier versions a late marker legitimately ends
    whichever transaction is open.
    """

    def __init__(self, writer: MarkerWriter, timers: VirtualTimers, rng: Random) -> None:
        self._writer = writer
        self._timers = timers
        self._rng = rng

    def write(self, markers: Sequence[TxnMarker], then: OnWritten) -> None:
        def answered(results: Sequence[Mapping[TopicPartition, ErrorCode]]) -> None:
            self._timers.after(self._delay_ms(), lambda: then(results))

        self._timers.after(self._delay_ms(), lambda: self._writer.write(markers, answered))
        if all(marker.transaction_version == 2 for marker in markers) and self._rng.random() < 0.3:
            late_ms = self._rng.choice([10, 100, 1_000])
            self._timers.after(late_ms, lambda: self._writer.write(markers, lambda results: None))

    def _delay_ms(self) -> float:
        return self._rng.choice([0.1, 1, 1, 30])


def far_markers(writer: MarkerWriter, timers: VirtualTimers, rng: Random) -> MarkerWriter:
    return FarMarkers(writer, timers, rng)
