"""Protects against malicious web sites, which can make a visitor's browser send requests to localhost.

There are two attacks. A site can resolve its own name to 127.0.0.1 (DNS rebinding); the Host header then contains the
site's name. A site can also send a cross-origin request; the Origin header then contains the site's name. A page served
from another port of this host has a different origin too. IP addresses in Host are allowed, since DNS rebinding needs a
name. Source: RFC 9110, 7.2; RFC 6454, 4.
"""

from __future__ import annotations

from collections.abc import Container
from ipaddress import ip_address
from urllib.parse import urlsplit

LOCAL = "localhost"


def host_name(header: str) -> str:
    """Returns the host in a Host header, without its port and without the brackets of an IPv6 address. Returns an empty
    string if there is no host."""
    return (urlsplit(f"//{header}").hostname or "") if header else ""


def is_our_name(name: str, ours: Container[str]) -> bool:
    """Returns whether a host name certainly refers to this broker: localhost, an IP address, or one of `ours`.

    name  in lower case
    """
    if name == LOCAL or name.endswith(f".{LOCAL}") or name in ours:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def refusal(host: str, origin: str | None, ours: Container[str]) -> str | None:
    """Returns the reason to refuse a request with these headers, or None if it may be answered."""
    try:
        name = host_name(host)
        asking = urlsplit(origin).netloc.lower() if origin else host.lower()
    except ValueError:
        return "the Host or Origin header cannot be read"
    if not is_our_name(name, ours):
        return f"the Host header names {name or 'nothing'}, which is not this broker: use its address, or localhost"
    if asking != host.lower():
        return f"pages of {origin} may not send this request"
    return None
