"""Limits connections and the memory of requests. Connections beyond the limits wait or are refused.

Source: the observed behaviour of Kafka 4.3.1's SocketServer and ConnectionQuotas; docs/spec/security.md#s4-3, #s5. The
limits are named after Kafka's settings. In situations where Kafka's acceptor thread stops accepting connections,
Odradek accepts connections but does not read from them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.runtime.clock import TimerHandle, Timers


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits on connections; `None` means no limit. The keys of `max_connections_per_ip_overrides` are peer
    addresses."""

    max_request_bytes: int = 100 * 1024 * 1024  # socket.request.max.bytes
    max_idle_ms: int | None = 600_000  # connections.max.idle.ms
    max_connections: int | None = None
    max_connections_per_ip: int | None = None
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    queued_max_request_bytes: int | None = None
    accept_backlog: int = 50  # socket.listen.backlog.size: maximum number of connections waiting to be served
    max_connections_of_listeners: Mapping[str, int] = field(default_factory=dict)  # listener.name.*.max.connections


class Admission(Enum):
    ACCEPTED = auto()
    WAITS = auto()  # the peer is connected, but nothing is read until another connection closes or a delay ends
    HELD = auto()  # closed unread after a delay, because the peer's address opens connections too fast
    REFUSED = auto()  # closed immediately


class ConnectionQuota:
    """Counts the open connections. As in Kafka, new connections wait while the broker has its maximum number of
    connections, and a connection is closed if its address has too many connections.

    limits  can be replaced at any time; connections that have already been admitted remain open
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._per_ip: dict[str, int] = {}
        self._served = 0
        self._served_by: dict[str, int] = {}  # by listener name
        self._waiting = 0

    def admit(self, ip: str, listener: str = "", *, must_wait: bool = False) -> Admission:
        if self.is_full_for(ip):
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

    def is_full_for(self, ip: str) -> bool:
        """Returns whether this address has reached its maximum number of connections."""
        allowed = self.limits.max_connections_per_ip_overrides.get(ip, self.limits.max_connections_per_ip)
        return allowed is not None and self._per_ip.get(ip, 0) >= allowed

    @property
    def is_backlog_full(self) -> bool:
        return self._waiting >= self.limits.accept_backlog

    def serve_waiting(self, listener: str = "") -> bool:
        """Returns whether a waiting connection to this listener can be served now. If so, counts it as served."""
        if self._waiting == 0 or self._is_full(listener):
            return False
        self._waiting -= 1
        self._serve(listener)
        return True

    def release(self, ip: str, listener: str, admission: Admission) -> None:
        """Removes an admitted connection. `admission` is the connection's last state, which shows whether it was still
        waiting."""
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
    """Limits the total size of the requests in memory, for all connections together, to queued.max.request.bytes.

    Like Kafka's memory pool, this is not a strict limit: if any byte is free, a request of any size is admitted.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._left_bytes = limit_bytes
        self._waiting: deque[Callable[[], None]] = deque()

    def reserve(self, size_bytes: int) -> bool:
        if self._left_bytes <= 0:
            return False
        self._left_bytes -= size_bytes
        return True

    def release(self, size_bytes: int) -> list[Callable[[], None]]:
        """Frees memory. Returns callbacks for the requests that were refused memory and can now try again."""
        self._left_bytes += size_bytes
        if self._left_bytes <= 0 or not self._waiting:
            return []
        again, self._waiting = list(self._waiting), deque()
        return again

    def wait_for_room(self, again: Callable[[], None]) -> None:
        self._waiting.append(again)


# Maximum number of connections that are held because their addresses connect too fast. Any more such connections are
# closed immediately.
MAX_HELD_CONNECTIONS: Final = 1_000


class CreationRates(Protocol):
    """Limits the rates of new connections according to client address quotas and the max.connection.creation.rate
    settings."""

    def held_ms(self, address: str) -> int:
        """Counts a new connection. If its address connects too fast, returns the delay after which to close the
        connection. Returns 0 otherwise."""

    def waits_ms(self, listener: str) -> int:
        """Counts an accepted connection. Returns how long to wait before serving it."""


class NewConnection(Protocol):
    @property
    def info(self) -> ConnectionInfo: ...
    def serve(self) -> None:
        """Serves a connection that had to wait."""

    def abort(self) -> None: ...


@dataclass(slots=True)
class ThrottleCounts:
    """The number of connections that were delayed or held because they were opened too fast, and their total delay."""

    connections: int = 0
    time_ms: int = 0

    def add(self, time_ms: int) -> None:
        self.connections += 1
        self.time_ms += time_ms


class Admissions:
    """Admits new connections to all of a broker's listeners within its limits.

    rates       None if the rates of new connections are unlimited
    delayed_at  connections that were delayed before they were served, by listener
    held_at     connections that were held before they were closed, by listener
    """

    def __init__(self, limits: ConnectionLimits, timers: Timers) -> None:
        self.rates: CreationRates | None = None
        self.delayed_at: defaultdict[str, ThrottleCounts] = defaultdict(ThrottleCounts)
        self.held_at: defaultdict[str, ThrottleCounts] = defaultdict(ThrottleCounts)
        self._timers = timers
        self._quota = ConnectionQuota(limits)
        self._waiting: deque[NewConnection] = deque()  # connections waiting for another connection to close
        self._delayed: dict[NewConnection, TimerHandle] = {}  # connections that are delayed because of a rate
        self._held: dict[NewConnection, TimerHandle] = {}  # connections that will be closed after a delay

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Applies new limits to new connections. Connections that have already been admitted remain open."""
        self._quota.limits = limits
        self._let_in()

    def admit(self, newcomer: NewConnection) -> Admission:
        info, rates = newcomer.info, self.rates
        if rates is not None:
            # A refused connection must not count towards the rate.
            if self._quota.is_full_for(info.client_host) or self._quota.is_backlog_full:
                return Admission.REFUSED
            held_ms = rates.held_ms(info.client_host)
            if held_ms > 0:
                self.held_at[info.listener].add(held_ms)
                if len(self._held) >= MAX_HELD_CONNECTIONS:
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

    def release(self, newcomer: NewConnection, admission: Admission) -> None:
        """Removes a connection, whose last state is `admission`."""
        timer = self._held.pop(newcomer, None) or self._delayed.pop(newcomer, None)
        if timer is not None:
            timer.cancel()
        elif admission is Admission.WAITS:
            self._waiting.remove(newcomer)
        if admission is not Admission.HELD:
            self._quota.release(newcomer.info.client_host, newcomer.info.listener, admission)
            self._let_in()

    def _turn_of(self, newcomer: NewConnection) -> None:
        del self._delayed[newcomer]
        self._waiting.append(newcomer)
        self._let_in()

    def _let_in(self) -> None:
        """Serves waiting connections, oldest first. A full listener does not delay connections to other listeners."""
        if not self._waiting:
            return
        still: deque[NewConnection] = deque()
        waiting, self._waiting = self._waiting, still
        for newcomer in waiting:
            if self._quota.serve_waiting(newcomer.info.listener):
                newcomer.serve()
            else:
                still.append(newcomer)
