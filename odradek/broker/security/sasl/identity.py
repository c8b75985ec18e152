"""Whom a SCRAM credential stands for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from odradek.broker.security.sasl.credentials import ScramCredential


@dataclass(frozen=True, slots=True)
class Identity:
    """name: without "User:". expires_at_ms: None for never. by_token: whether a delegation token was shown"""

    name: str
    credential: ScramCredential = field(repr=False)
    expires_at_ms: int | None = None
    by_token: bool = False


class Identities(Protocol):
    """Who can log in with one SCRAM mechanism."""

    def user(self, name: str) -> Identity | None: ...

    def token(self, token_id: str, salt: bytes, now_ms: int) -> Identity | None:
        """Of a delegation token that has not expired; salt: what to salt its proof with"""
