"""Decides which requests to the HTTP port are answered. This module has no side effects.

    configuration                                  answered requests
    odradek.http.token is set                      requests from any address with the token; below a test cluster's
                                                   path, that cluster's token is sufficient
    no token; TLS requires client certificates     all requests, because every client has presented a certificate
    otherwise, on the loopback interface           all requests from this machine
    otherwise, on another interface                health checks only

Health checks (/healthz, /readyz) are always answered. If a request for records contains a broker user's name and
password instead of the token, it is answered in every configuration, with that user's rights. Source: RFC 6750, 2.1;
RFC 7617.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from odradek.broker.configuration.listeners import is_loopback

PUBLIC_PATHS = frozenset({"/healthz", "/readyz"})
CHALLENGE = 'Basic realm="odradek: the token is the password", charset="UTF-8"'  # makes browsers prompt for the token


class Access(Enum):
    EVERYBODY = auto()
    TOKEN = auto()
    HEALTH_ONLY = auto()


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    text: str
    headers: dict[str, str] = field(default_factory=dict)
    code: str | None = None  # Kafka's name for the same error


def access(host: str, token: str | None, *, requires_certificate: bool) -> Access:
    """Decides which requests the HTTP port answers.

    host   the setting `odradek.http.host`
    token  the setting `odradek.http.token`
    """
    if token:
        return Access.TOKEN
    return Access.EVERYBODY if requires_certificate or is_loopback(host) else Access.HEALTH_ONLY


def refusal(allowed: Access, tokens: Sequence[str], path: str, authorization: str) -> Refusal | None:
    """Returns the response that refuses a request, or None if the request may be answered.

    authorization  the Authorization header; empty if the request has none
    """
    if allowed is Access.EVERYBODY or path in PUBLIC_PATHS:
        return None
    if allowed is Access.HEALTH_ONLY:
        return Refusal(
            403,
            "this port can be reached from other machines, so it serves only /healthz and /readyz: to use"
            " everything else, set odradek.http.token, or require client certificates with TLS",
        )
    if has_token(tokens, authorization):
        return None
    return Refusal(
        401, "the request lacks the token of odradek.http.token, or the token is wrong", {"WWW-Authenticate": CHALLENGE}
    )


def has_token(tokens: Sequence[str], authorization: str) -> bool:
    found = token_in(authorization).encode(errors="surrogateescape")
    return any(hmac.compare_digest(found, token.encode()) for token in tokens)


def is_login(tokens: Sequence[str], authorization: str) -> bool:
    """Returns whether the Authorization header contains a user's name and password. Returns False if the password is
    one of the tokens."""
    return authorization.strip().lower().startswith("basic ") and not has_token(tokens, authorization)


def token_in(authorization: str) -> str:
    """Returns the token in the Authorization header: the token in `Bearer <token>`, or the password in Basic
    authentication with any user name. Returns an empty string if the header has neither."""
    scheme, _, credentials = authorization.strip().partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    if scheme.lower() != "basic":
        return ""
    try:
        return b64decode(credentials.strip(), validate=True).decode().partition(":")[2]
    except ValueError:  # the credentials are not valid base64 or not valid UTF-8
        return ""
