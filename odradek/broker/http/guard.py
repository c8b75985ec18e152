"""Guard against pages elsewhere: a browser on any page of the world can be made to send requests to localhost.

A page elsewhere can give its own name the address 127.0.0.1 (DNS rebinding); then `Host` holds that name. It can send a
request from where it is; then `Origin` does, where a page at another port of this host is another page. An IP address
in `Host` is no such name. Source: RFC 9110, 7.2; RFC 6454, 4.
"""

from __future__ import annotations

from collections.abc import Container
from ipaddress import ip_address
from urllib.parse import urlsplit

LOCAL = "localhost"


def host_name(header: str) -> str:
    """Returns the host without the port and the brackets of an IPv6 address; empty if there is none."""
    return (urlsplit(f"//{header}").hostname or "") if header else ""


def is_our_name(name: str, ours: Container[str]) -> bool:
    """Says whether `name`, in lower case, can only be this broker: localhost, an address, or one of `ours`."""
    if name == LOCAL or name.endswith(f".{LOCAL}") or name in ours:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def refusal(host: str, origin: str | None, ours: Container[str]) -> str | None:
    """Says why a request with these headers is not answered; None: it is."""
    try:
        name = host_name(host)
        asking = urlsplit(origin).netloc.lower() if origin else host.lower()
    except ValueError:
        return "the Host or Origin header cannot be read"
    if not is_our_name(name, ours):
        return f"the Host header names {name or 'nothing'}, which is not this broker: use its address, or localhost"
    if asking != host.lower():
        return f"the page at {origin} may not ask for this"
    return None
