"""The interface of a broker's SASL mechanisms: tokens of a client in, the verdict on each of them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Challenge:
    """The exchange goes on: the client answers this token with another."""

    token: bytes


@dataclass(frozen=True, slots=True)
class TokenAccepted:
    """The client is who it says.

    name           of the user, without "User:"
    expires_at_ms  when what it showed expires; None: never
    by_token       whether a delegation token was shown, in place of what its owner knows
    """

    name: str
    token: bytes = field(default=b"", repr=False)
    expires_at_ms: int | None = None
    by_token: bool = False


@dataclass(frozen=True, slots=True)
class TokenRefused:
    """`message` is for the client and the log, and has no secret in it."""

    message: str


Verdict: TypeAlias = Challenge | TokenAccepted | TokenRefused


class Mechanism(Protocol):
    """One exchange with one client. After Accepted or Refused it gets no further token."""

    def judge(self, token: bytes, now_ms: int) -> Verdict:
        """Raises nothing, whatever the token."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A mechanism as a listener offers it.

    max_reauth_ms  its `connections.max.reauth.ms`; None: sessions have no end of their own
    """

    begin: Callable[[], Mechanism]
    max_reauth_ms: int | None = None


Offers: TypeAlias = Mapping[str, Offer]  # by the name of the mechanism
