"""Access to the HTTP port. Pure.

    where it listens, and what is set                       who is answered
    odradek.http.token                                      who has the token, wherever it comes from; below the path of
                                                            a cluster of tests, who has that one's, too
    no token, but TLS that requires a client's certificate  who has such a certificate
    neither, on the loopback                                whoever is on this machine
    neither, elsewhere                                      nobody: only whether the broker is alive and ready is told

Whether it is alive and ready is told to everybody who gets that far. Source: RFC 6750, 2.1; RFC 7617.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from odradek.broker.configuration.listeners import is_loopback

FOR_EVERYBODY = frozenset({"/healthz", "/readyz"})
CHALLENGE = 'Basic realm="odradek: the token is the password", charset="UTF-8"'  # so that browsers ask for it


class Access(Enum):
    EVERYBODY = auto()
    TOKEN = auto()
    HEALTH_ONLY = auto()


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    text: str
    headers: dict[str, str] = field(default_factory=dict)


def access(host: str, token: str | None, *, requires_certificate: bool) -> Access:
    """Returns who is answered. host: `odradek.http.host`"""
    if token:
        return Access.TOKEN
    return Access.EVERYBODY if requires_certificate or is_loopback(host) else Access.HEALTH_ONLY


def refusal(allowed: Access, tokens: Sequence[str], path: str, authorization: str) -> Refusal | None:
    """Says why a request is not answered; None: it is. authorization: its header, empty without one"""
    if allowed is Access.EVERYBODY or path in FOR_EVERYBODY:
        return None
    if allowed is Access.HEALTH_ONLY:
        return Refusal(
            403,
            "this port can be reached from other machines, so it only tells whether the broker is alive and ready"
            " (/healthz, /readyz): set odradek.http.token, or TLS with client certificates, for all else",
        )
    found = said(authorization).encode(errors="surrogateescape")
    if any(hmac.compare_digest(found, token.encode()) for token in tokens):
        return None
    return Refusal(401, "the token of odradek.http.token is missing or wrong", {"WWW-Authenticate": CHALLENGE})


def said(authorization: str) -> str:
    """Returns the token in `Bearer <token>`, or the password in Basic, with any name; empty where there is neither."""
    scheme, _, credentials = authorization.strip().partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    if scheme.lower() != "basic":
        return ""
    try:
        return b64decode(credentials.strip(), validate=True).decode().partition(":")[2]
    except ValueError:  # no base64, or no text in it
        return ""
