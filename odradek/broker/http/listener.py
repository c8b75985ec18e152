"""The socket of the HTTP port. It listens from the start, but the HTTP server is imported at the first connection.

Importing aiohttp and prometheus-client takes longer than starting the broker, and as much memory again. A broker whose
HTTP port nobody uses saves both. The import runs in a thread, so that Kafka clients are served meanwhile.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from odradek.broker.configuration.listener_settings import HTTP_LISTENER, SSL_PROTOCOLS
from odradek.broker.http.access import Access, access
from odradek.broker.network.server import bind

if TYPE_CHECKING:
    import ssl

    from odradek.broker.broker import Broker
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.http.connections import AddRoutes
    from odradek.broker.http.measures import Traffic
    from odradek.broker.runtime.workers import JobResult
    from odradek.broker.security.tls.context import LoadedTls

log = logging.getLogger("odradek.control")

BACKLOG = 16
KEPT = 200  # number of recent warnings for the page
CLOSED = -1  # file descriptor of a closed socket
ANY_FREE_PORT, NO_HTTP = 0, -1


Stop: TypeAlias = Callable[[], Awaitable[None]]
Serve: TypeAlias = (
    "Callable[[Broker, Traffic, Sequence[logging.LogRecord], socket.socket, Access, ssl.SSLContext | None,"
    " AddRoutes | None], Awaitable[Stop]]"
)


def port_of(config: BrokerConfig) -> int:
    """Returns the configured port.

    If the port is not configured and the Kafka listener uses any free port, the HTTP port does so, too.
    """
    if config.serving[0].port == 0 and "odradek.http.port" not in config.given:
        return ANY_FREE_PORT
    return config.odradek_http_port


def bind_pages(host: str, port: int) -> socket.socket | None:
    """Returns a listening socket. If that fails, logs a warning and returns None, as Kafka clients do not need it."""
    try:
        bound = bind(host, port)
        bound.listen(BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            why = "is taken, maybe by another broker: choose one with `odradek.http.port`; 0 takes any that is free"
        else:
            why = f"cannot be used: {error.strerror}"
        log.warning("no metrics and health pages: port %d on %s %s", port, host or "every interface", why)
        return None
    return bound


class RecentWarnings(logging.Handler):
    """Collects the most recent warnings and errors for the page. Attached to the root logger by `begin`."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: deque[logging.LogRecord] = deque(maxlen=KEPT)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def begin(self) -> None:
        logging.root.addHandler(self)

    def end(self) -> None:
        logging.root.removeHandler(self)


class ControlListener:
    """Waits for the first connection to the HTTP port, and then imports and starts the HTTP server."""

    def __init__(
        self,
        broker: Broker,
        traffic: Traffic,
        bound: socket.socket,
        certificates: LoadedTls | None,
        add_routes: AddRoutes | None,
    ) -> None:
        """
        certificates  None for HTTP without TLS
        add_routes    adds further routes to the HTTP server, such as those of the control interface
        """
        self._add_routes = add_routes
        self.port: int = bound.getsockname()[1]
        self._broker = broker
        self._traffic = traffic
        self._bound = bound
        self._context = None if certificates is None else certificates.context
        self._access = access(
            broker.config.odradek_http_host,
            broker.config.odradek_http_token,
            requires_certificate=certificates is not None and certificates.settings.requires_certificate,
        )
        if self._access is Access.HEALTH_ONLY:
            log.info(
                "the HTTP port %d only tells whether the broker is alive and ready, since other machines reach it: set"
                " odradek.http.token for metrics and the page",
                self.port,
            )
        self._end: Stop | None = None
        self._is_stopped = False
        self._warnings = RecentWarnings()
        self._warnings.begin()
        broker.loop.add_reader(bound.fileno(), self._first_peer)

    def _first_peer(self) -> None:
        self._broker.loop.remove_reader(self._bound.fileno())
        self._broker.workers.run(import_pages, self._imported)

    def _imported(self, outcome: JobResult[Serve]) -> None:
        try:
            serve = outcome.result()
        except ImportError as error:
            log.error("no metrics and health pages: %s", error)
            self._bound.close()
            return
        self._broker.spawn(self._serve(serve))

    async def _serve(self, serve: Serve) -> None:
        if not self._is_stopped:
            self._end = await serve(
                self._broker,
                self._traffic,
                self._warnings.records,
                self._bound,
                self._access,
                self._context,
                self._add_routes,
            )

    async def stop(self) -> None:
        self._is_stopped = True
        self._warnings.end()
        if self._end is not None:
            await self._end()
            return
        if self._bound.fileno() != CLOSED:
            self._broker.loop.remove_reader(self._bound.fileno())
            self._bound.close()


def import_pages() -> Serve:
    from odradek.broker.http.pages import serve

    return serve


def listen(broker: Broker, traffic: Traffic, add_routes: AddRoutes | None = None) -> ControlListener | None:
    """Opens the HTTP port. Returns None if it is disabled or cannot be opened."""
    port = port_of(broker.config)
    bound = None if port == NO_HTTP else bind_pages(broker.config.odradek_http_host, port)
    if bound is None:
        return None
    certificates = broker.certificates
    if certificates is None or broker.config.odradek_http_security_protocol not in SSL_PROTOCOLS:
        return ControlListener(broker, traffic, bound, None, add_routes)

    def newest(connection: ssl.SSLObject, name: object, context: ssl.SSLContext) -> None:
        connection.context = certificates.of(HTTP_LISTENER).context

    loaded = certificates.of(HTTP_LISTENER)
    # A server cannot change its context later, but calls this at each handshake; so renewed certificates are used.
    loaded.context.sni_callback = newest
    return ControlListener(broker, traffic, bound, loaded, add_routes)
