"""Names of hosts where settings and quotas allow them for addresses. Asking the resolver takes a thread."""

from __future__ import annotations

import socket
from collections.abc import Iterable


def address_of(text: str) -> str | None:
    """As the peer's address of a connection is written; None for the name of a host."""
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
