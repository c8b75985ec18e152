"""The mechanism OAUTHBEARER (RFC 7628): one message with a token, which a validator judges.

    client first   n,[a=authzid],^Aauth=Bearer <token>[^Akey=value…]^A^A

A token that is refused is no error at first: the client is told why as JSON, and either says ^A, which ends the
exchange, or shows another token. Source: docs/spec/security.md#s2-4; Kafka 4.3.1's OAuthBearerSaslServer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from odradek.broker.security.sasl.mechanism import Accepted, Challenge, Refused, Verdict

NAME = "OAUTHBEARER"
LOGIN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
END_OF_FAILED = b"\x01"
MAX_REFUSED_TOKENS = 3  # of one exchange: each costs a verification, and no delay yet
AUTH = "auth"

FIRST = re.compile(
    "n,(?:a=(?P<authzid>(?:[\x01-\x7f](?<![=,])|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
CREDENTIAL = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
UNREADABLE = Refused("Authentication failed: the client's first OAUTHBEARER message cannot be read")
DIFFERENT_ID = Refused("Authentication failed: the authorization id of the client is not the principal of the token")
NOT_BASE64 = Refused("Authentication failed: a part of the token is not base64url")


@dataclass(frozen=True, slots=True)
class Bearer:
    """Whom a valid token stands for, and until when."""

    name: str
    expires_at_ms: int


class InvalidToken(Exception):
    """A token is refused. In the words of RFC 7628: `status`, and the scope that is missing. Never the token."""

    def __init__(self, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.scope = scope


class NotBase64(Exception):
    """A part of the token is no text that a token could have; the exchange fails at once."""


class Validator(Protocol):
    def validate(self, token: str, now_ms: int) -> Bearer:
        """Raises InvalidToken, NotBase64, and nothing else."""


class OAuthBearerExchange:
    __slots__ = ("_refused", "_refused_count", "_validator")

    def __init__(self, validator: Validator) -> None:
        self._validator = validator
        self._refused: str | None = None  # why, if the last token was
        self._refused_count = 0

    def judge(self, token: bytes, now_ms: int) -> Verdict:
        if self._refused is not None and token == END_OF_FAILED:
            return Refused(self._refused)
        first = parse_first(token)
        if first is None:
            return UNREADABLE
        authorization_id, shown = first
        try:
            bearer = self._validator.validate(shown, now_ms)
        except NotBase64:
            return NOT_BASE64
        except InvalidToken as error:
            self._refused = _as_json(error)
            self._refused_count += 1
            if self._refused_count >= MAX_REFUSED_TOKENS:
                return Refused(self._refused)
            return Challenge(self._refused.encode())
        if authorization_id not in ("", bearer.name):
            return DIFFERENT_ID
        return Accepted(bearer.name, expires_at_ms=bearer.expires_at_ms)


def parse_first(message: bytes) -> tuple[str, str] | None:
    """Authorization id, which may be empty, and token; None if it cannot be read."""
    try:
        found = FIRST.fullmatch(message.decode("ascii"))
    except UnicodeDecodeError:
        return None
    if found is None:
        return None
    pairs = [pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair]
    shown = [value for name, value in pairs if name == AUTH]
    credential = CREDENTIAL.fullmatch(shown[0]) if len(shown) == 1 else None
    if credential is None or credential["scheme"].lower() != "bearer":
        return None
    authorization_id = (found["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return authorization_id, credential["token"]


def _as_json(error: InvalidToken) -> str:
    told: Mapping[str, str] = {"status": error.status} | ({"scope": error.scope} if error.scope else {})
    return json.dumps(told, separators=(",", ":"))
