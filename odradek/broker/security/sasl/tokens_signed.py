"""Validates signed tokens with the public keys of a JWKS (RFC 7517). PyJWT verifies the signatures.

An algorithm is only used with keys of its own type. Otherwise, a token could make the broker use a public key as a
shared secret. Messages contain neither the token nor its claims.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.broker.security.sasl.oauthbearer import (
    ClaimRules,
    InvalidToken,
    TokenIdentity,
    TokenParts,
    check_claims,
    split,
)

HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
# The key type and the curve of each algorithm.
ALGORITHMS: Mapping[str, tuple[str, str | None]] = {
    **{f"{family}{bits}": ("RSA", None) for family in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
}
MAX_KEYS = 100


class InvalidKeySet(ValueError):
    """Raised if the input is not a JWKS or none of its keys can be read."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    key_id: str | None
    kind: tuple[str, str | None]  # key type, and the curve of an EC key
    algorithm: str | None  # the only algorithm that the key may be used with; None for any
    key: Any = field(repr=False)


def read_key_set(text: bytes) -> tuple[VerificationKey, ...]:
    """Reads a JWKS. Returns its keys for signatures and ignores keys with other types or uses.

    Raises InvalidKeySet if the text is invalid, or if it contains keys but none can be read. A set without keys is
    valid, and means that all keys have been withdrawn.
    """
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    try:
        entries = json.loads(text)["keys"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise InvalidKeySet("it is not a JSON object with a list of keys") from None
    if not isinstance(entries, list):
        raise InvalidKeySet("its keys are not a list")
    found, unreadable = [], 0
    for entry in entries[:MAX_KEYS]:
        if not isinstance(entry, dict):
            unreadable += 1
            continue
        if entry.get("use", "sig") != "sig":
            continue
        kind = (entry.get("kty"), entry.get("crv") if entry.get("kty") == "EC" else None)
        algorithm = next((name for name, of in ALGORITHMS.items() if of == kind), None)
        if algorithm is None:
            continue
        public = {name: value for name, value in entry.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "oth")}
        try:
            key = PyJWK.from_dict(public, algorithm=algorithm).key
        except (PyJWTError, ValueError, TypeError):
            unreadable += 1
            continue
        found.append(VerificationKey(entry.get("kid"), ALGORITHMS[algorithm], entry.get("alg"), key))
    if unreadable and not found:
        raise InvalidKeySet("none of its keys can be read")
    return tuple(found)


class SignedValidator:
    """Validates signed tokens.

    keys        returns the current keys
    key_missed  called when a token names an unknown key, which may be a new one
    """

    def __init__(
        self, keys: Callable[[], tuple[VerificationKey, ...]], key_missed: Callable[[], None], rules: ClaimRules
    ) -> None:
        self._keys = keys
        self._key_missed = key_missed
        self._rules = rules

    def validate(self, token: str, now_ms: int) -> TokenIdentity:
        parts = split(token)
        algorithm = parts.header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS or "crit" in parts.header:
            raise InvalidToken
        key_id = parts.header.get("kid")
        keys = self._keys()
        if key_id is not None:
            keys = tuple(key for key in keys if key.key_id == key_id)
            if not keys:
                self._key_missed()
        fitting = (key for key in keys if key.kind == ALGORITHMS[algorithm] and key.algorithm in (None, algorithm))
        if not any(_is_signed(parts, algorithm, key) for key in fitting):
            raise InvalidToken
        return check_claims(parts.claims, self._rules, now_ms)


def _is_signed(parts: TokenParts, algorithm: str, key: VerificationKey) -> bool:
    from jwt.algorithms import get_default_algorithms

    try:
        return get_default_algorithms()[algorithm].verify(parts.signed, key.key, parts.signature)
    except Exception:  # any error that the peer's bytes cause in the library means that the signature is invalid
        return False
