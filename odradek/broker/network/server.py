"""The server of a listener: its socket, the resources that its connections share, and the sweep that closes idle
connections."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

from odradek.broker.api.context import Addresses, ConnectionInfo
from odradek.broker.network.admission import Admission, Admissions, ConnectionLimits, RequestMemory
from odradek.broker.network.connection import Connection
from odradek.broker.network.connection_host import FrameReceiver, Handshakes
from odradek.broker.runtime.clock import Scan, TimerHandle, Timers
from odradek.system.sockets import OWN_PORT

if TYPE_CHECKING:
    from odradek.broker.network.controlled_connection import ControlledConnection, ObserverFactory

# With Kafka's default of 50, connections are dropped when many clients start at once. A longer queue costs nothing.
MIN_BACKLOG: Final = 128
RECEIVE_BUFFER_BYTES: Final = 128 * 1024
SWEEPS_PER_IDLE_TIME: Final = 8  # an idle connection is closed after connections.max.idle.ms plus up to 1/8 of it


def bind(host: str, port: int) -> socket.socket:
    """Creates a bound socket that is not listening. An empty host means all addresses, IPv4 and IPv6. Raises
    OSError."""
    if host:
        # ASCII names are passed as bytes, because Python would first import the IDNA codec for a str.
        name = host.encode() if host.isascii() else host
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # IPv4 is preferred, as in Java, for a name with addresses of both versions, such as "localhost".
        found.sort(key=lambda one: one[0] is not socket.AF_INET)
        family, _, _, _, address = found[0]
        return _bound(family, address)
    try:
        return _bound(socket.AF_INET6, ("::", port))
    except OSError as error:
        if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise
        return _bound(socket.AF_INET, ("0.0.0.0", port))


def _bound(family: int, address: Any) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, OWN_PORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address[0] == "::" else 1)
        bound.bind(address)
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound


def _receive_buffer(loop: asyncio.AbstractEventLoop) -> memoryview:
    """Returns the receive buffer that all servers of the loop share. Sharing is safe, since each connection handles the
    bytes that it has read before another connection reads."""
    found = _receive_buffers.get(loop)
    if found is None:
        found = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        _receive_buffers[loop] = found
    return found


_receive_buffers: WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview] = WeakKeyDictionary()


class Server:
    """The server of one listener. Not thread-safe: must be used on the event loop's thread. The broker calls `listen`,
    then `stop`; connections call the remaining methods."""

    def __init__(
        self,
        requests: FrameReceiver,
        limits: ConnectionLimits,
        timers: Timers,
        loop: asyncio.AbstractEventLoop,
        *,
        listener_name: str = "PLAINTEXT",
        addresses: Addresses | None = None,
        handshakes: Handshakes[Connection] | None = None,
        authentication_timeout_ms: int | None = None,
        admissions: Admissions | None = None,
        connection_ids: Iterator[int] | None = None,
        now_s: Callable[[], float] = perf_counter,
        make_connection: Callable[[Server], Connection] = Connection,
    ) -> None:
        """Creates a server that is not listening.

        authentication_timeout_ms
                         the time within which clients must authenticate; None if the listener has no authentication
        admissions       shared by a broker's listeners
        connection_ids   the source of connection ids, shared by the listeners of the broker and the nodes of its
                         cluster
        now_s            measures how much time a connection uses in one turn of the event loop
        make_connection  creates a connection, which is a `Connection` or an object of a derived class
        """
        self.handshakes = handshakes
        self.requests = requests
        self.limits = limits
        self.loop = loop
        self.now_s = now_s
        self.listener_name = listener_name
        self.addresses = addresses
        self.receive_buffer = _receive_buffer(loop)
        self.received = self.receive_buffer.toreadonly()
        queued_bytes = limits.queued_max_request_bytes
        self.memory = RequestMemory(queued_bytes) if queued_bytes is not None else None
        self.sweep_count = 0  # a connection stores this number when it is active
        self.timers = timers
        self._sweep_timer: TimerHandle | None = None
        self._admissions = admissions or Admissions(limits, timers)
        self._connections: set[Connection] = set()
        self._connection_ids = count(1) if connection_ids is None else connection_ids
        self._connections_made = 0
        self._listener: asyncio.Server | None = None
        self._all_gone: asyncio.Event | None = None
        self._authentication_timeout_ms = authentication_timeout_ms
        self._make_connection = make_connection
        self.observers: Sequence[ObserverFactory] = ()
        self._deadlines: dict[Connection, TimerHandle] = {}

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def connections(self) -> list[ConnectionInfo]:
        """Returns the open connections, oldest first."""
        return sorted((each.info for each in self._connections), key=lambda info: info.connection_id)

    def observed_by(self, makers: Sequence[ObserverFactory]) -> None:
        """Replaces the factories of observers. Called by `observe`. Every connection must be a `ControlledConnection`.
        Each connection immediately drops observers from other factories."""
        self.observers = makers
        for connection in self._connections:
            controlled = cast("ControlledConnection", connection)
            if controlled.makers:
                controlled.observed_by([maker for maker in controlled.makers if maker in makers])

    @property
    def connections_made(self) -> int:
        """The number of connections opened since the server was created."""
        return self._connections_made

    async def listen(self, bound: socket.socket) -> None:
        """Starts accepting connections on a socket from `bind`. The server will close the socket."""
        self._listener = await self.loop.create_server(
            lambda: self._make_connection(self), sock=bound, backlog=max(self.limits.accept_backlog, MIN_BACKLOG)
        )
        if self.limits.max_idle_ms is not None:
            self._sweep_later(self.limits.max_idle_ms)

    def stop_accepting(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def abort_connections(self) -> None:
        """Stops accepting connections and aborts all open connections without sending any more bytes."""
        self.stop_accepting()
        for connection in list(self._connections):
            connection.abort()

    async def stop(self, timeout_s: float) -> None:
        """Answers the requests in flight, except requests waiting for a timer or for other clients. Then closes all
        connections."""
        self.stop_accepting()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in list(self._connections):
            connection.drain()
        if self._connections:
            self._all_gone = asyncio.Event()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._all_gone.wait()
            except TimeoutError:
                for connection in list(self._connections):
                    connection.abort()

    # Methods that connections call.

    def next_connection_id(self) -> int:
        self._connections_made += 1
        return next(self._connection_ids)

    def admit(self, connection: Connection) -> Admission:
        admission = self._admissions.admit(connection)
        if admission is not Admission.REFUSED:
            self._connections.add(connection)
            if admission is not Admission.HELD and self._authentication_timeout_ms is not None:
                connection.info.is_authenticated = False
                self._give_time(connection, self._authentication_timeout_ms)
        return admission

    def connection_closed(self, connection: Connection, admission: Admission, owed_bytes: int) -> None:
        self._connections.discard(connection)
        deadline = self._deadlines.pop(connection, None)
        if deadline is not None:
            deadline.cancel()
        self._admissions.release(connection, admission)
        if self.memory is not None:
            self.release_memory(owed_bytes)
        if self._all_gone is not None and not self._connections:
            self._all_gone.set()

    def release_memory(self, size_bytes: int) -> None:
        """Frees the memory of answered requests. Requests that waited for memory try again in the loop's next turn."""
        assert self.memory is not None
        for again in self.memory.release(size_bytes):
            self.loop.call_soon(again)

    def _give_time(self, connection: Connection, timeout_ms: int) -> None:
        """Closes the connection if it has not authenticated in time. No work is lost, since the client was not
        permitted to do anything before."""

        def over() -> None:
            del self._deadlines[connection]
            if not connection.info.is_authenticated:
                connection.refuse(
                    f"the client did not authenticate within odradek.authentication.timeout.ms={timeout_ms}"
                )

        self._deadlines[connection] = self.timers.after(timeout_ms, over)

    def _sweep_later(self, idle_ms: int) -> None:
        interval_ms = idle_ms / SWEEPS_PER_IDLE_TIME
        sweep = Scan(lambda: self._sweep(idle_ms), interval_ms, lambda: 0 if self._connections else None)
        self._sweep_timer = self.timers.after(interval_ms, sweep)

    def _sweep(self, idle_ms: int) -> None:
        self.sweep_count += 1
        for connection in list(self._connections):
            if self.sweep_count - connection.active_at_sweep > SWEEPS_PER_IDLE_TIME:
                connection.abort()
        self._sweep_later(idle_ms)
