"""JSON web tokens: their parts, and what has to hold of their claims. Source: docs/spec/security.md#s2-4."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from odradek.broker.security.sasl.oauthbearer import Bearer, InvalidToken, NotBase64

Json: TypeAlias = Mapping[str, object]
PARTS = 3
BASE64URL = re.compile(r"[A-Za-z0-9_-]*={0,2}")
LATEST_S = 1 << 53  # of a time; later ones are no numbers to calculate with


@dataclass(frozen=True, slots=True)
class Parts:
    """Of a token in compact form. signed: what the signature is of"""

    header: Json
    claims: Json
    signature: bytes
    signed: bytes


@dataclass(frozen=True, slots=True)
class Rules:
    """What is demanded of claims. audience: one of these, if any; issuer: None for any"""

    name_claim: str = "sub"
    scope_claim: str = "scope"
    skew_ms: int = 0
    needs_issued_at: bool = False
    heeds_not_before: bool = False
    audience: tuple[str, ...] = ()
    issuer: str | None = None
    required_scope: tuple[str, ...] = ()
    refuses_repeated_scope: bool = False


def split(token: str) -> Parts:
    """Raises InvalidToken, NotBase64."""
    parts = token.split(".")
    if len(parts) != PARTS:
        raise InvalidToken
    header, claims, signature = (_decoded(part) for part in parts)
    return Parts(_json(header), _json(claims), signature, token.rpartition(".")[0].encode())


def judge(claims: Json, rules: Rules, now_ms: int) -> Bearer:
    """Raises InvalidToken."""
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
    if rules.heeds_not_before and (_time_ms(claims, "nbf") or 0) > now_ms + rules.skew_ms:
        raise InvalidToken
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidToken
    if rules.audience and not set(rules.audience) & set(_texts(claims.get("aud"))):
        raise InvalidToken
    _check_scope(claims.get(rules.scope_claim), rules)
    return Bearer(name, expires_at_ms)


def _check_scope(scope: object, rules: Rules) -> None:
    granted = scope.split() if isinstance(scope, str) else [entry.strip() for entry in _texts(scope)]
    if rules.refuses_repeated_scope and len(set(granted)) != len(granted):
        raise InvalidToken
    if not set(rules.required_scope) <= set(granted):
        raise InvalidToken("insufficient_scope", " ".join(rules.required_scope))


def _texts(value: object) -> list[str]:
    """A text, or a list of texts; raises InvalidToken for a list of something else."""
    if value is None:
        return []
    entries = value if isinstance(value, list) else [value]
    texts = [entry for entry in entries if isinstance(entry, str)]
    if len(texts) != len(entries):
        raise InvalidToken
    return texts


def _time_ms(claims: Json, name: str) -> int | None:
    """None where there is none. Raises InvalidToken for what is no number of seconds."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LATEST_S < value < LATEST_S:
        raise InvalidToken
    return round(value * 1000)


def _decoded(part: str) -> bytes:
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
