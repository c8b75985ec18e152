"""Who is let in: the open connections of all listeners, those that wait for a place, and those that are turned away.

Source: docs/spec/security.md#s4-3, #s5. Where Kafka's acceptor waits, the connections that it would not have accepted
yet wait here, unread.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.network.limits import Admission, ConnectionLimits, ConnectionQuota

if TYPE_CHECKING:
    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.runtime.clock import TimerHandle, Timers

MOST_HELD: Final = 1_000  # connections that came too quickly and are closed a little later; more are closed at once


class CreationRates(Protocol):
    """Of connections that are made: quotas of addresses, and the settings max.connection.creation.rate."""

    def held_ms(self, address: str) -> int:
        """Counts a connection. Above 0: it is one too many of this address, to be closed after so long."""

    def waits_ms(self, listener: str) -> int:
        """Counts a connection that is accepted. How long it has to wait for its turn."""


class Newcomer(Protocol):
    @property
    def info(self) -> ConnectionInfo: ...
    def serve(self) -> None:
        """There is a place now for one that had to wait."""

    def abort(self) -> None: ...


@dataclass(slots=True)
class Throttled:
    """Connections that had to wait, or were held, because they were made too quickly; for how long in all."""

    connections: int = 0
    time_ms: int = 0

    def add(self, time_ms: int) -> None:
        self.connections += 1
        self.time_ms += time_ms


class Admissions:
    """
    rates                None while no rate of connections is limited
    delayed_at, held_at  connections that waited for their turn, or were closed in the end; by listener
    """

    def __init__(self, limits: ConnectionLimits, timers: Timers) -> None:
        self.rates: CreationRates | None = None
        self.delayed_at: defaultdict[str, Throttled] = defaultdict(Throttled)
        self.held_at: defaultdict[str, Throttled] = defaultdict(Throttled)
        self._timers = timers
        self._quota = ConnectionQuota(limits)
        self._waiting: deque[Newcomer] = deque()  # for others to leave
        self._delayed: dict[Newcomer, TimerHandle] = {}  # for their turn
        self._held: dict[Newcomer, TimerHandle] = {}  # to be closed

    def set_limits(self, limits: ConnectionLimits) -> None:
        """From now on; who is in stays in."""
        self._quota.limits = limits
        self._let_in()

    def admit(self, newcomer: Newcomer) -> Admission:
        info, rates = newcomer.info, self.rates
        if rates is not None:
            if self._quota.refuses(info.client_host) or self._quota.is_backlog_full:  # then it must not count
                return Admission.REFUSED
            held_ms = rates.held_ms(info.client_host)
            if held_ms > 0:
                self.held_at[info.listener].add(held_ms)
                if len(self._held) >= MOST_HELD:
                    return Admission.REFUSED
                self._held[newcomer] = self._timers.after(held_ms, newcomer.abort)
                return Admission.HELD
        waits_ms = 0 if rates is None else rates.waits_ms(info.listener)
        admission = self._quota.admit(info.client_host, info.listener, must_wait=waits_ms > 0)
        if admission is Admission.WAITS:
            if waits_ms > 0:
                self.delayed_at[info.listener].add(waits_ms)
                self._delayed[newcomer] = self._timers.after(waits_ms, lambda: self._turn_of(newcomer))
            else:
                self._waiting.append(newcomer)
        return admission

    def leave(self, newcomer: Newcomer, admission: Admission) -> None:
        """admission: what it was last"""
        timer = self._held.pop(newcomer, None) or self._delayed.pop(newcomer, None)
        if timer is not None:
            timer.cancel()
        elif admission is Admission.WAITS:
            self._waiting.remove(newcomer)
        if admission is not Admission.HELD:
            self._quota.release(newcomer.info.client_host, newcomer.info.listener, admission)
            self._let_in()

    def _turn_of(self, newcomer: Newcomer) -> None:
        del self._delayed[newcomer]
        self._waiting.append(newcomer)
        self._let_in()

    def _let_in(self) -> None:
        """Those that waited longest first; a listener that is full stands in nobody else's way."""
        if not self._waiting:
            return
        still: deque[Newcomer] = deque()
        waiting, self._waiting = self._waiting, still
        for newcomer in waiting:
            if self._quota.promote(newcomer.info.listener):
                newcomer.serve()
            else:
                still.append(newcomer)
