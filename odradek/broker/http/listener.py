"""Listens on the HTTP port from the start, but imports the HTTP server only when the first client connects.

Importing aiohttp and prometheus-client takes longer than starting the broker, and doubles its memory. A broker whose
HTTP port is not used saves both time and memory. The import runs in a thread, so that Kafka clients are served in the
meantime.
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
from odradek.broker.runtime.starting import CannotStart

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
KEPT = 200  # number of recent warnings kept for the page
CLOSED = -1  # file descriptor of a closed socket
ANY_FREE_PORT, NO_HTTP = 0, -1


Stop: TypeAlias = Callable[[], Awaitable[None]]
Serve: TypeAlias = (
    "Callable[[Broker, Traffic, Sequence[logging.LogRecord], socket.socket, Access, ssl.SSLContext | None,"
    " AddRoutes | None], Awaitable[Stop]]"
)


def port_of(config: BrokerConfig) -> int:
    """Returns the configured port: 0 means any free port, and -1 means no HTTP.

    If no HTTP port is configured and the Kafka listener uses any free port, so does the HTTP port.
    """
    if config.serving[0].port == 0 and "odradek.http.port" not in config.given_settings:
        return ANY_FREE_PORT
    return config.odradek_http_port


def bind_pages(config: BrokerConfig) -> socket.socket | None:
    """Binds the HTTP port. Returns None if HTTP is disabled. Raises CannotStart if the port cannot be bound.

    If no port is configured and the default port is in use, this function binds any free port.
    """
    host, port = config.odradek_http_host, port_of(config)
    if port == NO_HTTP:
        return None
    try:
        return bind(host, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise CannotStart(
                f"the page, metrics and health cannot be served on port {port} of {host or 'every interface'}:"
                f" {error.strerror}; see odradek.http.host and --http-port"
            ) from None
        if "odradek.http.port" not in config.given_settings:
            return bind(host, ANY_FREE_PORT)
        raise CannotStart(
            f"port {port} for the page, metrics and health is taken, possibly by another broker: choose another port"
            " with --http-port or odradek.http.port; 0 takes any free port, -1 switches HTTP off"
        ) from None


class RecentWarnings(logging.Handler):
    """Collects the most recent warnings and errors for the page. Attached to the root logger by `start`."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: deque[logging.LogRecord] = deque(maxlen=KEPT)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def start(self) -> None:
        logging.root.addHandler(self)

    def end(self) -> None:
        logging.root.removeHandler(self)


class ControlListener:
    """Waits for the first connection to the HTTP port, then imports and starts the HTTP server."""

    def __init__(
        self,
        broker: Broker,
        traffic: Traffic,
        bound: socket.socket,
        certificates: LoadedTls | None,
        add_routes: AddRoutes | None,
    ) -> None:
        """Listens on the socket `bound`.

        certificates  None for HTTP without TLS
        add_routes    adds more routes to the HTTP server, such as those of the control interface
        """
        self._add_routes = add_routes
        bound.listen(BACKLOG)
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
                "the HTTP port %d serves only /healthz and /readyz, because other machines can reach it; set"
                " odradek.http.token to get metrics and the page",
                self.port,
            )
        self._end: Stop | None = None
        self._is_stopped = False
        self._warnings = RecentWarnings()
        self._warnings.start()
        broker.loop.add_reader(bound.fileno(), self._first_peer)

    @property
    def url(self) -> str:
        """The URL of the page for a browser on this machine."""
        host = self._broker.config.odradek_http_host or "localhost"
        scheme = "http" if self._context is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}/"

    @property
    def serves_page(self) -> bool:
        """True if the port serves the page, False if it serves only health checks."""
        return self._access is not Access.HEALTH_ONLY

    def _first_peer(self) -> None:
        self._broker.loop.remove_reader(self._bound.fileno())
        self._broker.workers.run(import_pages, self._imported)

    def _imported(self, outcome: JobResult[Serve]) -> None:
        try:
            serve = outcome.result()
        except ImportError as error:
            log.error("the page, metrics and health cannot be served: %s", error)
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


def listen(
    broker: Broker, traffic: Traffic, bound: socket.socket, add_routes: AddRoutes | None = None
) -> ControlListener:
    """Starts serving HTTP on `bound`, a socket returned by `bind_pages`."""
    certificates = broker.certificates
    if certificates is None or broker.config.odradek_http_security_protocol not in SSL_PROTOCOLS:
        return ControlListener(broker, traffic, bound, None, add_routes)

    def newest(connection: ssl.SSLObject, name: object, context: ssl.SSLContext) -> None:
        connection.context = certificates.tls_of(HTTP_LISTENER).context

    loaded = certificates.tls_of(HTTP_LISTENER)
    # A running server's TLS context cannot be replaced. Instead, each handshake calls `newest`, so that new connections
    # use renewed certificates.
    loaded.context.sni_callback = newest
    return ControlListener(broker, traffic, bound, loaded, add_routes)
