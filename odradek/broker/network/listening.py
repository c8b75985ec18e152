"""From the configuration to sockets and limits, with messages that say what to correct where that is impossible.

Names of hosts are allowed for addresses in settings and quotas; asking the resolver takes a thread.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.broker.network.admission import ConnectionLimits
from odradek.broker.network.server import bind
from odradek.broker.runtime.starting import CannotStart

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.configuration.listeners import Listener

SEND_BUFFER = "socket.send.buffer.bytes"
RECEIVE_BUFFER = "socket.receive.buffer.bytes"


def bind_listener(listener: Listener, config: BrokerConfig) -> socket.socket:
    """Raises CannotStart."""
    try:
        bound = bind(listener.host, listener.port)
    except OSError as error:
        where = f"{listener.host or '*'}:{listener.port}"
        if error.errno == errno.EADDRINUSE:
            raise CannotStart(
                f"port {listener.port} is taken ({where}), maybe by another broker: choose one with --port or"
                " `listeners`; --port 0 takes any that is free"
            ) from None
        raise CannotStart(f"cannot listen on {where}: {error.strerror}") from None
    # Accepted sockets inherit them. Kafka's own default, 100 KiB, is not taken over: the kernel's sizes grow as needed.
    for name, option in ((SEND_BUFFER, socket.SO_SNDBUF), (RECEIVE_BUFFER, socket.SO_RCVBUF)):
        size_bytes = int(config.given.get(name, -1))
        if size_bytes > 0:
            bound.setsockopt(socket.SOL_SOCKET, option, size_bytes)
    return bound


def connection_limits(config: BrokerConfig) -> ConnectionLimits:
    """Raises CannotStart."""
    idle_ms, queued_bytes = config.connections_max_idle_ms, config.queued_max_request_bytes
    return ConnectionLimits(
        max_request_bytes=config.socket_request_max_bytes,
        max_idle_ms=None if idle_ms < 0 else idle_ms,
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=by_address(config.max_connections_per_ip_overrides),
        queued_max_request_bytes=None if queued_bytes < 0 else queued_bytes,
        accept_backlog=config.socket_listen_backlog_size,
        max_connections_of_listeners=of_listeners(config, "max.connections"),
    )


def of_listeners(config: BrokerConfig, setting: str) -> dict[str, int]:
    """A number that is set for single listeners, by their names."""
    texts = {one.name: config.listener_settings(one.name).own_text(setting) for one in config.serving}
    return {name: int(text) for name, text in texts.items() if text is not None}


def by_address(overrides: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides`, host:count pairs, with the addresses of hosts that are given by name."""
    limits = {}
    for pair in filter(None, (pair.strip() for pair in overrides.split(","))):
        host, _, count = pair.rpartition(":")
        try:
            limits[socket.gethostbyname(host)] = int(count)
        except OSError as error:
            raise CannotStart(f"max.connections.per.ip.overrides: the host {host}: {error.strerror}") from None
    return limits


def address_of(text: str) -> str | None:
    """Normalizes an address to the form of a connection's peer; None for the name of a host."""
    from ipaddress import ip_address  # here: most brokers limit nobody

    try:
        return ip_address(text).compressed
    except ValueError:
        return None


def addresses_of_hosts(hosts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Asks the resolver: in a thread. What has no address is left out."""
    found = {}
    for host in hosts:
        try:
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            continue
        found[host] = tuple({str(info[4][0]) for info in infos})
    return found
