"""Limits the rate of new connections by address, by listener, and for the whole broker. Source:
docs/spec/security.md#s4-3.

The throttle time of one connection is at most one window. A connection may wait longer than one window, because it also
waits for earlier connections to its listener.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.broker.security.quotas.entities import CONNECTION_CREATION_RATE, IP, QuotaEntity
from odradek.broker.security.quotas.metering import SampledRate, Windows

FIRST_CLEARANCE = 1_000  # number of addresses that triggers the first removal of idle addresses


class ConnectionRates:
    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._of_address: dict[str, float] = {}
        self._of_any_address: float | None = None
        self._of_broker: float | None = None
        self._of_listener: Mapping[str, float] = {}
        self._from: dict[str, SampledRate] = {}  # by address
        self._in_all = SampledRate(windows)
        self._at: dict[str, SampledRate] = {}  # by listener
        self._free_at_ms: dict[str, float] = {}  # time at which a listener's acceptor is free for the next connection
        self._clearance_at = FIRST_CLEARANCE

    def set_limits(
        self,
        limits: Mapping[QuotaEntity, Mapping[str, float]],
        addresses_of: Mapping[str, Sequence[str]],
        *,
        of_broker: float | None,
        of_listener: Mapping[str, float],
    ) -> None:
        """Replaces the limits.

        addresses_of  the addresses of each IP entity that `limits` names
        of_broker     connections per second over all listeners, or None for no limit
        of_listener   connections per second for each listener that has its own limit
        """
        self._of_address = {}
        self._of_any_address = limits.get(((IP, None),), {}).get(CONNECTION_CREATION_RATE)
        for name, addresses in addresses_of.items():
            limit = limits.get(((IP, name),), {}).get(CONNECTION_CREATION_RATE)
            if limit is not None:
                self._of_address.update(dict.fromkeys(addresses, limit))
        self._of_broker = of_broker
        self._of_listener = of_listener
        self._free_at_ms.clear()  # the new rates apply to new connections immediately

    @property
    def is_limited(self) -> bool:
        return bool(
            self._of_address or self._of_listener or self._of_any_address is not None or self._of_broker is not None
        )

    @property
    def address_count(self) -> int:
        return len(self._from)

    def held_ms(self, address: str, now_ms: float) -> int:
        """Counts a connection from this address and returns 0. If the address exceeds its rate, the connection is not
        counted, and the result is how long the connection must be held, in ms."""
        limit = self._of_address.get(address, self._of_any_address)
        if limit is None:
            return 0
        rate = self._from.get(address)
        if rate is None:
            self._maybe_clear(now_ms)
            rate = self._from[address] = SampledRate(self._windows)
        rate.record(1, now_ms)
        held_ms = min(rate.throttle_ms(limit, now_ms), self._windows.size_ms)
        if held_ms > 0:
            rate.record(-1, now_ms)
        return held_ms

    def waits_ms(self, listener: str, now_ms: float) -> int:
        """Counts a connection to this listener. Returns the time in ms until Kafka's acceptor would accept the
        connection.

        Kafka's acceptor handles one connection after another, and pauses for the throttle time of each connection.
        """
        of_listener = self._of_listener.get(listener)
        if of_listener is None and self._of_broker is None:
            return 0
        begun_ms = max(now_ms, self._free_at_ms.get(listener, now_ms))
        throttle_ms = 0
        if self._of_broker is not None:
            self._in_all.record(1, begun_ms)
            throttle_ms = self._in_all.throttle_ms(self._of_broker, begun_ms)
        if of_listener is not None:
            rate = self._at.setdefault(listener, SampledRate(self._windows))
            rate.record(1, begun_ms)
            throttle_ms = max(throttle_ms, rate.throttle_ms(of_listener, begun_ms))
        accepted_ms = begun_ms + min(throttle_ms, self._windows.size_ms)
        self._free_at_ms[listener] = accepted_ms
        return int(accepted_ms - now_ms)

    def _maybe_clear(self, now_ms: float) -> None:
        if len(self._from) >= self._clearance_at:
            self._from = {address: rate for address, rate in self._from.items() if not rate.is_over(now_ms)}
            self._clearance_at = max(FIRST_CLEARANCE, 2 * len(self._from))
