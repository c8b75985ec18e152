"""The broker's side of SCRAM-SHA-256 and SCRAM-SHA-512, including logins with delegation tokens.

An exchange does not reveal which users exist. For a user that does not exist, the broker sends the same salt each time,
and refuses the proof after as much work as for a wrong password. A login costs a few HMACs, regardless of the
password's iteration count. For a delegation token, the user name is the token's id, and the password is its HMAC in
base64. Source: docs/spec/security.md#s2-3, #s2-6; RFC 5802.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from odradek.broker.security.sasl.credentials import ScramCredential, ScramCredentials
from odradek.broker.security.sasl.mechanism import Challenge, TokenAccepted, TokenRefused, Verdict
from odradek.broker.security.tokens.decisions import TokenRules
from odradek.broker.security.tokens.image import DelegationTokens
from odradek.protocol.scram import (
    MIN_ITERATIONS,
    ClientFinal,
    ClientFirst,
    ScramError,
    ScramMechanism,
    ServerFinal,
    ServerFirst,
    auth_message,
    client_key,
    is_proof_of,
    salted_password,
    server_key,
    server_signature,
    stored_key,
)

LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
TOKEN_EXTENSION = "tokenauth"  # "true" if the user name is the id of a delegation token
DIFFERENT_ID = "Authentication failed: Client requested an authorization id that is different from username"
INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
SALT_BYTES = 26
SALT_ALPHABET = b"0123456789abcdefghijklmnopqrstuvwxyz"  # characters that Kafka's tools use in salts


class UsersOfImage:
    """Looks up identities in the metadata image."""

    __slots__ = ("_credentials", "_mechanism", "_tokens")

    def __init__(
        self, mechanism: ScramMechanism, credentials: Callable[[], ScramCredentials], tokens: TokenLogins | None = None
    ) -> None:
        """Creates the lookup for one mechanism. `tokens` is None if delegation tokens are disabled."""
        self._mechanism = mechanism.value
        self._credentials = credentials
        self._tokens = tokens

    def user(self, name: str) -> ScramIdentity | None:
        credential = self._credentials().find(name, self._mechanism)
        return None if credential is None else ScramIdentity(name, credential)

    def token(self, token_id: str, salt: bytes, now_ms: int) -> ScramIdentity | None:
        return None if self._tokens is None else self._tokens.find(token_id, salt, now_ms)


class ScramExchange:
    """A SCRAM exchange with one client.

    made_up_key  a secret of this broker, from which credentials for unknown users are derived
    new_nonce    returns printable text without commas
    """

    __slots__ = ("_first", "_identities", "_identity", "_key", "_mechanism", "_new_nonce", "_server_first")

    def __init__(
        self, mechanism: ScramMechanism, identities: Identities, made_up_key: bytes, new_nonce: Callable[[], str]
    ) -> None:
        self._mechanism = mechanism
        self._identities = identities
        self._key = made_up_key
        self._new_nonce = new_nonce
        self._first: ClientFirst | None = None
        self._server_first: ServerFirst | None = None
        self._identity: ScramIdentity | None = None  # None if the user does not exist

    def judge(self, token: bytes, now_ms: int) -> Verdict:
        try:
            return self._answer_first_message(token, now_ms) if self._first is None else self._end(self._first, token)
        except ScramError:
            return self._refusal()

    def _answer_first_message(self, token: bytes, now_ms: int) -> Verdict:
        first = ClientFirst.parse(token)
        if first.authorization_id not in ("", first.user):
            return TokenRefused(DIFFERENT_ID)
        made_up = made_up_credential(self._mechanism, self._key, first.user)
        if first.extensions.get(TOKEN_EXTENSION, "").lower() == "true":
            self._identity = self._identities.token(first.user, made_up.salt, now_ms)
        else:
            self._identity = self._identities.user(first.user)
        credential = made_up if self._identity is None else self._identity.credential
        self._first = first
        self._server_first = ServerFirst.make(first.nonce + self._new_nonce(), credential.salt, credential.iterations)
        return Challenge(self._server_first.text.encode())

    def _end(self, first: ClientFirst, token: bytes) -> Verdict:
        final = ClientFinal.parse(token)
        assert self._server_first is not None
        identity = self._identity
        made_up = made_up_credential(self._mechanism, self._key, first.user)
        credential = made_up if identity is None else identity.credential
        signed = auth_message(first.bare, self._server_first.text, final.unproven)
        is_proven = is_proof_of(self._mechanism, credential.stored_key, signed, final.proof)
        signature = server_signature(self._mechanism, credential.server_key, signed)
        if identity is None or not is_proven or final.nonce != self._server_first.nonce:
            return self._refusal()
        answer = ServerFinal(signature).text.encode()
        return TokenAccepted(identity.name, answer, identity.expires_at_ms, identity.by_token)

    def _refusal(self) -> TokenRefused:
        return TokenRefused(f"{INVALID} {self._mechanism.sasl_name}")


def made_up_credential(mechanism: ScramMechanism, key: bytes, user: str) -> ScramCredential:
    """Derives a credential for an unknown user. Its salt looks like a salt from Kafka's tools, and no password matches
    its keys."""
    text = f"{mechanism.sasl_name}\0{user}".encode()
    salt = hmac.digest(key, b"salt" + text, hashlib.sha256)[:SALT_BYTES]
    stored_key = hmac.digest(key, b"key" + text, mechanism.hash_name)
    letters = bytes(SALT_ALPHABET[byte % len(SALT_ALPHABET)] for byte in salt)
    return ScramCredential(letters, stored_key, stored_key, MIN_ITERATIONS)


@dataclass(frozen=True, slots=True)
class ScramIdentity:
    """A user that can log in.

    name           the user's name, without "User:"
    expires_at_ms  time when the session must end, or None for never
    by_token       whether a delegation token is used
    """

    name: str
    credential: ScramCredential = field(repr=False)
    expires_at_ms: int | None = None
    by_token: bool = False


class Identities(Protocol):
    """Finds the users that can log in with one SCRAM mechanism."""

    def user(self, name: str) -> ScramIdentity | None: ...

    def token(self, token_id: str, salt: bytes, now_ms: int) -> ScramIdentity | None:
        """Returns a delegation token's identity, or None if the token does not exist or has expired. `salt` is used to
        salt the token's HMAC."""


USER = "User:"


class TokenLogins:
    """The identities of delegation tokens for one mechanism.

    A token's credential is calculated when the token is first used, which takes a few milliseconds, and cached while
    the token exists.
    """

    __slots__ = ("_credentials", "_mechanism", "_rules", "_tokens")

    def __init__(self, mechanism: ScramMechanism, rules: TokenRules, tokens: Callable[[], DelegationTokens]) -> None:
        self._mechanism = mechanism
        self._rules = rules
        self._tokens = tokens
        self._credentials: dict[str, ScramCredential] = {}

    def find(self, token_id: str, salt: bytes, now_ms: int) -> ScramIdentity | None:
        tokens = self._tokens().by_id
        token = tokens.get(token_id)
        if token is None or token.is_expired(now_ms):
            return None
        credential = self._credentials.get(token_id)
        if credential is None:
            self._credentials = {known: each for known, each in self._credentials.items() if known in tokens}
            credential = self._credentials[token_id] = self._credential(token_id, salt)
        expires_at_ms = min(token.expires_ms, token.max_ms)
        return ScramIdentity(token.owner.removeprefix(USER), credential, expires_at_ms, by_token=True)

    def _credential(self, token_id: str, salt: bytes) -> ScramCredential:
        password = base64.b64encode(self._rules.proof(token_id))
        salted = salted_password(self._mechanism, password, salt, MIN_ITERATIONS)
        return ScramCredential(
            salt,
            stored_key(self._mechanism, client_key(self._mechanism, salted)),
            server_key(self._mechanism, salted),
            MIN_ITERATIONS,
        )
