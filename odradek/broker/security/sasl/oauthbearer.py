"""The OAUTHBEARER mechanism (RFC 7628). The client sends one message with a token, which a validator checks.

    client first   n,[a=authzid],^Aauth=Bearer <token>[^Akey=value…]^A^A

A refused token does not end the exchange. The client receives the reason as JSON, then sends either ^A, which ends the
exchange, or another token. Tokens are JSON web tokens. The validator in this module accepts tokens without signatures.
It is meant for development, because anyone who can connect can claim any identity. Source: docs/spec/security.md#s2-4;
OAuthBearerSaslServer of Kafka 4.3.1.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from odradek.broker.security.sasl.mechanism import Challenge, TokenAccepted, TokenRefused, Verdict

NAME = "OAUTHBEARER"
LOGIN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
END_OF_FAILED = b"\x01"
# Maximum number of refused tokens per exchange. Without a limit, a client could make the broker verify any number of
# tokens, because refusals within an exchange are sent without a delay.
MAX_REFUSED_TOKENS = 3
AUTH = "auth"

FIRST = re.compile(
    "n,(?:a=(?P<authzid>(?:[\x01-\x7f](?<![=,])|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
CREDENTIAL = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
UNREADABLE = TokenRefused("Authentication failed: the client's first OAUTHBEARER message cannot be read")
DIFFERENT_ID = TokenRefused(
    "Authentication failed: the authorization id of the client is not the principal of the token"
)
NOT_BASE64 = TokenRefused("Authentication failed: a part of the token is not base64url")


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """The identity in a valid token, and its expiry time."""

    name: str
    expires_at_ms: int


class InvalidToken(Exception):
    """Raised if the token is refused. `status` and `scope` (the missing scope) are sent to the client as in RFC 7628.
    The error never contains the token."""

    def __init__(self, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.scope = scope


class NotBase64(Exception):
    """Raised if a part of the token is not base64url. The exchange then fails immediately."""


class Validator(Protocol):
    def validate(self, token: str, now_ms: int) -> TokenIdentity:
        """Checks a token. Raises InvalidToken or NotBase64, and no other error."""


class OAuthBearerExchange:
    __slots__ = ("_refused", "_refused_count", "_validator")

    def __init__(self, validator: Validator) -> None:
        self._validator = validator
        self._refused: str | None = None  # the reason for refusing the last token, or None if it was not refused
        self._refused_count = 0

    def judge(self, token: bytes, now_ms: int) -> Verdict:
        if self._refused is not None and token == END_OF_FAILED:
            return TokenRefused(self._refused)
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
                return TokenRefused(self._refused)
            return Challenge(self._refused.encode())
        if authorization_id not in ("", bearer.name):
            return DIFFERENT_ID
        return TokenAccepted(bearer.name, expires_at_ms=bearer.expires_at_ms)


def parse_first(message: bytes) -> tuple[str, str] | None:
    """Returns the authorization id, which may be empty, and the token. Returns None if the message is malformed."""
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
    body: Mapping[str, str] = {"status": error.status} | ({"scope": error.scope} if error.scope else {})
    return json.dumps(body, separators=(",", ":"))


Json: TypeAlias = Mapping[str, object]
PARTS = 3
BASE64URL = re.compile(r"[A-Za-z0-9_-]*={0,2}")
LATEST_S = 1 << 53  # upper limit for times; larger values are not exact as floating-point numbers


@dataclass(frozen=True, slots=True)
class TokenParts:
    """The parts of a compact token. `signed` contains the bytes that the signature covers."""

    header: Json
    claims: Json
    signature: bytes
    signed: bytes


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """The rules for claims.

    audience  if not empty, the token must name at least one of these audiences
    issuer    the required issuer, or None to allow any issuer
    """

    name_claim: str = "sub"
    scope_claim: str = "scope"
    skew_ms: int = 0
    needs_issued_at: bool = False
    checks_not_before: bool = False
    audience: tuple[str, ...] = ()
    issuer: str | None = None
    required_scope: tuple[str, ...] = ()
    refuses_repeated_scope: bool = False


def split(token: str) -> TokenParts:
    """Decodes a token's parts. Raises InvalidToken or NotBase64."""
    parts = token.split(".")
    if len(parts) != PARTS:
        raise InvalidToken
    header, claims, signature = (_decode_base64(part) for part in parts)
    return TokenParts(_json(header), _json(claims), signature, token.rpartition(".")[0].encode())


def check_claims(claims: Json, rules: ClaimRules, now_ms: int) -> TokenIdentity:
    """Checks the claims against the rules. Returns the token's identity. Raises InvalidToken."""
    name = claims.get(rules.name_claim)
    expires_at_ms = _time_ms(claims, "exp")
    issued_at_ms = _time_ms(claims, "iat")
    if not isinstance(name, str) or not name.strip() or expires_at_ms is None:
        raise InvalidToken
    if expires_at_ms + rules.skew_ms <= now_ms:
        raise InvalidToken
    if issued_at_ms is None and rules.needs_issued_at:
        raise InvalidToken
    if issued_at_ms is not None and (issued_at_ms > now_ms + rules.skew_ms or issued_at_ms >= expires_at_ms):
        raise InvalidToken
    if rules.checks_not_before and (_time_ms(claims, "nbf") or 0) > now_ms + rules.skew_ms:
        raise InvalidToken
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidToken
    if rules.audience and not set(rules.audience) & set(_texts(claims.get("aud"))):
        raise InvalidToken
    _check_scope(claims.get(rules.scope_claim), rules)
    return TokenIdentity(name, expires_at_ms)


def _check_scope(scope: object, rules: ClaimRules) -> None:
    granted = scope.split() if isinstance(scope, str) else [entry.strip() for entry in _texts(scope)]
    if rules.refuses_repeated_scope and len(set(granted)) != len(granted):
        raise InvalidToken
    if not set(rules.required_scope) <= set(granted):
        raise InvalidToken("insufficient_scope", " ".join(rules.required_scope))


def _texts(value: object) -> list[str]:
    """Returns a string or a list of strings as a list. Raises InvalidToken for any other value."""
    if value is None:
        return []
    entries = value if isinstance(value, list) else [value]
    texts = [entry for entry in entries if isinstance(entry, str)]
    if len(texts) != len(entries):
        raise InvalidToken
    return texts


def _time_ms(claims: Json, name: str) -> int | None:
    """Returns the claim in milliseconds, or None if absent. Raises InvalidToken if it is not a number."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LATEST_S < value < LATEST_S:
        raise InvalidToken
    return round(value * 1000)


def _decode_base64(part: str) -> bytes:
    if not BASE64URL.fullmatch(part):
        raise NotBase64
    try:
        return base64.urlsafe_b64decode(part.rstrip("=") + "=" * (-len(part.rstrip("=")) % 4))
    except binascii.Error:
        raise NotBase64 from None


def _json(data: bytes) -> Json:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidToken from None
    if not isinstance(value, dict):
        raise InvalidToken
    return value


UNSECURED_HANDLER = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)


class UnsecuredValidator:
    def __init__(self, rules: ClaimRules) -> None:
        self._rules = rules

    def validate(self, token: str, now_ms: int) -> TokenIdentity:
        parts = split(token)
        if parts.header.get("alg") != "none" or parts.signature:
            raise InvalidToken
        return check_claims(parts.claims, self._rules, now_ms)
