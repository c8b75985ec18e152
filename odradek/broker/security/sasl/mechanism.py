"""The interface of the broker's SASL mechanisms, which check a client's tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Challenge:
    """The exchange continues. The client has to respond to this token with another token."""

    token: bytes


@dataclass(frozen=True, slots=True)
class TokenAccepted:
    """The client has proved its identity.

    name           the user's name, without "User:"
    expires_at_ms  time when the client's credential expires, or None if it never does
    by_token       whether the client used a delegation token instead of the user's own credential
    """

    name: str
    token: bytes = field(default=b"", repr=False)
    expires_at_ms: int | None = None
    by_token: bool = False


@dataclass(frozen=True, slots=True)
class TokenRefused:
    """The client has failed to prove its identity. `message` is sent to the client and logged, and contains no
    secret."""

    message: str


Verdict: TypeAlias = Challenge | TokenAccepted | TokenRefused


class Mechanism(Protocol):
    """An exchange with one client, which ends with TokenAccepted or TokenRefused. It must not be used after that."""

    def judge(self, token: bytes, now_ms: int) -> Verdict:
        """Checks a token. Never raises an error, whatever the token contains."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A mechanism that a listener offers to its clients.

    max_reauth_ms  the mechanism's `connections.max.reauth.ms`, or None if it does not limit sessions
    """

    begin: Callable[[], Mechanism]
    max_reauth_ms: int | None = None


Offers: TypeAlias = Mapping[str, Offer]  # by the name of the mechanism
