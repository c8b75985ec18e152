"""Opens the configured listeners and reads the connection limits. Errors name the setting to correct.

The setting max.connections.per.ip.overrides and client address quotas may contain host names. Resolving a name may
block, so `connection_limits` and `addresses_of_hosts` should be called in a thread.
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
    """Binds a listener's socket. Raises CannotStart if the address cannot be used."""
    try:
        bound = bind(listener.host, listener.port)
    except OSError as error:
        where = f"{listener.host or '*'}:{listener.port}"
        if error.errno == errno.EADDRINUSE:
            raise CannotStart(
                f"port {listener.port} is taken ({where}), possibly by another broker: choose another port with"
                " --port or `listeners`; --port 0 takes any free port"
            ) from None
        raise CannotStart(f"cannot listen on {where}: {error.strerror}") from None
    # Accepted sockets inherit these sizes. Kafka's default of 100 KiB is not used, since the kernel's own sizes grow as
    # needed.
    for name, option in ((SEND_BUFFER, socket.SO_SNDBUF), (RECEIVE_BUFFER, socket.SO_RCVBUF)):
        size_bytes = int(config.given_settings.get(name, -1))
        if size_bytes > 0:
            try:
                bound.setsockopt(socket.SOL_SOCKET, option, size_bytes)
            except OSError as error:
                bound.close()
                raise CannotStart(f"{name}={size_bytes} cannot be set: {error.strerror}") from None
    return bound


def connection_limits(config: BrokerConfig) -> ConnectionLimits:
    """Returns the connection limits in the configuration. Call this function in a thread if `names_hosts` returns true,
    since resolving a name may block. Raises CannotStart if a host name cannot be resolved."""
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
    """Returns the values of a numeric setting that is set for individual listeners, by listener name."""
    texts = {one.name: config.listener_settings(one.name).own_text(setting) for one in config.serving}
    return {name: int(text) for name, text in texts.items() if text is not None}


def by_address(overrides: str) -> dict[str, int]:
    """Parses `max.connections.per.ip.overrides`, which consists of host:count pairs, and resolves host names. Raises
    CannotStart if a name cannot be resolved."""
    limits = {}
    for host, count in host_counts(overrides):
        try:
            limits[socket.gethostbyname(host)] = int(count)
        except OSError as error:
            raise CannotStart(
                f"max.connections.per.ip.overrides: the host {host} cannot be resolved: {error.strerror}"
            ) from None
    return limits


def names_hosts(config: BrokerConfig) -> bool:
    """Returns whether `max.connections.per.ip.overrides` contains a host name, which has to be resolved."""
    return any(address_of(host) is None for host, _ in host_counts(config.max_connections_per_ip_overrides))


def host_counts(overrides: str) -> list[tuple[str, str]]:
    """Splits `max.connections.per.ip.overrides` into pairs of host and count."""
    pairs = filter(None, (pair.strip() for pair in overrides.split(",")))
    return [(host, count) for host, _, count in (pair.rpartition(":") for pair in pairs)]


def address_of(text: str) -> str | None:
    """Returns an IP address in the same notation as peer addresses, or None if the argument is a host name."""
    from ipaddress import ip_address  # imported here because most brokers have no limits for addresses

    try:
        return ip_address(text).compressed
    except ValueError:
        return None


def addresses_of_hosts(hosts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns the addresses of each host, omitting hosts that have no address. Call this function in a thread, since it
    may block."""
    found = {}
    for host in hosts:
        try:
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            continue
        found[host] = tuple({str(info[4][0]) for info in infos})
    return found
