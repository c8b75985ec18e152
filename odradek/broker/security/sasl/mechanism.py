"""The interface of the broker's SASL mechanisms, which judge the tokens of a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Challenge:
    """The exchange continues: the client has to answer this token with another one."""

    token: bytes


@dataclass(frozen=True, slots=True)
class TokenAccepted:
    """The client has proved its identity.

    name           the user's name, without "User:"
    expires_at_ms  when the client's credential expires; None for never
    by_token       whether the client used a delegation token instead of its user's own credential
    """

    name: str
    token: bytes = field(default=b"", repr=False)
    expires_at_ms: int | None = None
    by_token: bool = False


@dataclass(frozen=True, slots=True)
class TokenRefused:
    """The client has failed. `message` is for the client and the log, and contains no secret."""

    message: str


Verdict: TypeAlias = Challenge | TokenAccepted | TokenRefused


class Mechanism(Protocol):
    """One exchange with one client. After TokenAccepted or TokenRefused it is not called again."""

    def judge(self, token: bytes, now_ms: int) -> Verdict:
        """Judges a token. Never raises, whatever the token is."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A mechanism that a listener offers to its clients.

    max_reauth_ms  the mechanism's `connections.max.reauth.ms`; None if it does not limit sessions
    """

    begin: Callable[[], Mechanism]
    max_reauth_ms: int | None = None


Offers: TypeAlias = Mapping[str, Offer]  # by the name of the mechanism
