"""Kafka's limits on connections and on the memory of requests. Pure counting; the server acts on it.

Source: SocketServer and ConnectionQuotas of Kafka 4.3.1, observed; the names are those of its settings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """`None` means no limit. `max_connections_per_ip_overrides` is by address, as the peer's address is written."""

    max_request_bytes: int = 100 * 1024 * 1024  # socket.request.max.bytes
    max_idle_ms: int | None = 600_000  # connections.max.idle.ms
    max_connections: int | None = None
    max_connections_per_ip: int | None = None
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    queued_max_request_bytes: int | None = None
    accept_backlog: int = 50  # socket.listen.backlog.size: how many may wait for a place


class Admission(Enum):
    ACCEPTED = auto()
    WAITS = auto()  # broker is full: the peer is connected, but nothing it says is read until a place is free
    REFUSED = auto()  # closed at once


class ConnectionQuota:
    """The open connections. As in Kafka, a full broker makes new ones wait, and closes too many from one address."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._per_ip: dict[str, int] = {}
        self._served = 0
        self._waiting = 0

    def admit(self, ip: str) -> Admission:
        limits = self._limits
        from_here = self._per_ip.get(ip, 0)
        allowed = limits.max_connections_per_ip_overrides.get(ip, limits.max_connections_per_ip)
        if allowed is not None and from_here >= allowed:
            return Admission.REFUSED
        if limits.max_connections is not None and self._served >= limits.max_connections:
            if self._waiting >= limits.accept_backlog:
                return Admission.REFUSED
            self._waiting += 1
            self._per_ip[ip] = from_here + 1
            return Admission.WAITS
        self._served += 1
        self._per_ip[ip] = from_here + 1
        return Admission.ACCEPTED

    def promote(self) -> bool:
        """Whether the one that waited longest may be served now; it counts as served if so."""
        full = self._limits.max_connections is not None and self._served >= self._limits.max_connections
        if self._waiting == 0 or full:
            return False
        self._waiting -= 1
        self._served += 1
        return True

    def release(self, ip: str, admission: Admission) -> None:
        """An admitted peer is gone. `admission` says whether it was still waiting."""
        if admission is Admission.WAITS:
            self._waiting -= 1
        else:
            self._served -= 1
        left = self._per_ip[ip] - 1
        if left:
            self._per_ip[ip] = left
        else:
            del self._per_ip[ip]


class RequestMemory:
    """queued.max.request.bytes: how many bytes of requests may be here at once, over all connections.

    As Kafka's pool it is not strict: while any byte is left, one more request of any size gets in.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._left_bytes = limit_bytes
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, size_bytes: int) -> bool:
        if self._left_bytes <= 0:
            return False
        self._left_bytes -= size_bytes
        return True

    def give_back(self, size_bytes: int) -> list[Callable[[], None]]:
        """Returns what to call now: those that were refused and may try again."""
        self._left_bytes += size_bytes
        if self._left_bytes <= 0 or not self._waiting:
            return []
        again, self._waiting = list(self._waiting), deque()
        return again

    def wait(self, again: Callable[[], None]) -> None:
        self._waiting.append(again)
