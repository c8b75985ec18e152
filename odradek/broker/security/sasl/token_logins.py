"""SCRAM logins by delegation token: the user is the id of the token, the password its proof in base64.

Source: docs/spec/security.md#s2-6.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from odradek.broker.security.sasl.credentials import ScramCredential
from odradek.broker.security.sasl.identity import Identity
from odradek.broker.security.tokens.decisions import TokenRules
from odradek.broker.security.tokens.image import DelegationTokens
from odradek.protocol.scram import (
    MIN_ITERATIONS,
    ScramMechanism,
    client_key,
    salted_password,
    server_key,
    stored_key,
)

USER = "User:"


class TokenLogins:
    """The identities of delegation tokens for one mechanism.

    The credential of a token is calculated at its first login, which takes a few milliseconds, and kept while the
    token is there.
    """

    __slots__ = ("_credentials", "_mechanism", "_rules", "_tokens")

    def __init__(self, mechanism: ScramMechanism, rules: TokenRules, tokens: Callable[[], DelegationTokens]) -> None:
        self._mechanism = mechanism
        self._rules = rules
        self._tokens = tokens
        self._credentials: dict[str, ScramCredential] = {}

    def find(self, token_id: str, salt: bytes, now_ms: int) -> Identity | None:
        tokens = self._tokens().by_id
        token = tokens.get(token_id)
        if token is None or token.is_expired(now_ms):
            return None
        credential = self._credentials.get(token_id)
        if credential is None:
            self._credentials = {known: each for known, each in self._credentials.items() if known in tokens}
            credential = self._credentials[token_id] = self._credential(token_id, salt)
        expires_at_ms = min(token.expires_ms, token.max_ms)
        return Identity(token.owner.removeprefix(USER), credential, expires_at_ms, by_token=True)

    def _credential(self, token_id: str, salt: bytes) -> ScramCredential:
        password = base64.b64encode(self._rules.proof(token_id))
        salted = salted_password(self._mechanism, password, salt, MIN_ITERATIONS)
        return ScramCredential(
            salt,
            stored_key(self._mechanism, client_key(self._mechanism, salted)),
            server_key(self._mechanism, salted),
            MIN_ITERATIONS,
        )
