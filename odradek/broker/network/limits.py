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
    max_connections_of_listeners: Mapping[str, int] = field(default_factory=dict)  # listener.name.*.max.connections


class Admission(Enum):
    ACCEPTED = auto()
    WAITS = auto()  # the peer is connected, but nothing it says is read until a place is free, or it is its turn
    HELD = auto()  # its address makes connections too quickly: closed after a while, unread
    REFUSED = auto()  # closed at once


class ConnectionQuota:
    """The open connections. As in Kafka, a full broker makes new ones wait, and closes too many from one address.

    limits  may be replaced at any time; who is in stays in
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._per_ip: dict[str, int] = {}
        self._served = 0
        self._served_by: dict[str, int] = {}  # listener
        self._waiting = 0

    def admit(self, ip: str, listener: str = "", *, must_wait: bool = False) -> Admission:
        if self.refuses(ip):
            return Admission.REFUSED
        must_wait = must_wait or self._is_full(listener)
        if must_wait and self.is_backlog_full:
            return Admission.REFUSED
        self._per_ip[ip] = self._per_ip.get(ip, 0) + 1
        if must_wait:
            self._waiting += 1
            return Admission.WAITS
        self._serve(listener)
        return Admission.ACCEPTED

    def refuses(self, ip: str) -> bool:
        """Whether this address has as many connections as it may have."""
        allowed = self.limits.max_connections_per_ip_overrides.get(ip, self.limits.max_connections_per_ip)
        return allowed is not None and self._per_ip.get(ip, 0) >= allowed

    @property
    def is_backlog_full(self) -> bool:
        return self._waiting >= self.limits.accept_backlog

    def promote(self, listener: str = "") -> bool:
        """Whether one that waited at this listener may be served now; it counts as served if so."""
        if self._waiting == 0 or self._is_full(listener):
            return False
        self._waiting -= 1
        self._serve(listener)
        return True

    def release(self, ip: str, listener: str, admission: Admission) -> None:
        """An admitted peer is gone. `admission` says whether it was still waiting."""
        if admission is Admission.WAITS:
            self._waiting -= 1
        else:
            self._served -= 1
            self._served_by[listener] -= 1
        left = self._per_ip[ip] - 1
        if left:
            self._per_ip[ip] = left
        else:
            del self._per_ip[ip]

    def _is_full(self, listener: str) -> bool:
        limits = self.limits
        if limits.max_connections is not None and self._served >= limits.max_connections:
            return True
        of_listener = limits.max_connections_of_listeners.get(listener)
        return of_listener is not None and self._served_by.get(listener, 0) >= of_listener

    def _serve(self, listener: str) -> None:
        self._served += 1
        self._served_by[listener] = self._served_by.get(listener, 0) + 1


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
