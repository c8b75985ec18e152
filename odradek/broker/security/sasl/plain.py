"""The PLAIN mechanism (RFC 4616). A single token contains the user name and the password, which are checked against the
accounts in a JAAS setting."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from odradek.broker.security.sasl.mechanism import TokenAccepted, TokenRefused, Verdict

NAME = "PLAIN"
LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER_PREFIX = "user_"
FIELDS = 3
DIFFERENT_ID = "Authentication failed: Client requested an authorization id that is different from username"
INVALID = TokenRefused("Authentication failed: Invalid username or password")


class PlainAccounts:
    """Passwords by user name. Checking a password takes equally long whether or not the user exists."""

    __slots__ = ("_digests", "_key")

    def __init__(self, passwords: Mapping[str, str], key: bytes) -> None:
        """Hashes the passwords.

        `key` consists of random bytes, which ensure that the time taken to compare digests reveals nothing about the
        passwords.
        """
        self._key = key
        self._digests = {user.encode(): self._digest(password.encode()) for user, password in passwords.items()}

    def verify(self, user: bytes, password: bytes) -> bool:
        digest = self._digest(password)
        return hmac.compare_digest(self._digests.get(user, self._key), digest) and user in self._digests

    def _digest(self, password: bytes) -> bytes:
        return hmac.digest(self._key, password, hashlib.sha256)


def accounts(options: Mapping[str, str], key: bytes) -> PlainAccounts:
    """Returns a login module's accounts. Each option `user_<name>` defines an account. The options `username` and
    `password` do not define an account."""
    passwords = {name.removeprefix(USER_PREFIX): text for name, text in options.items() if name.startswith(USER_PREFIX)}
    return PlainAccounts(passwords, key)


class PlainExchange:
    """Checks a token of the form `authzid NUL authcid NUL password`."""

    __slots__ = ("_accounts",)

    def __init__(self, accounts: PlainAccounts) -> None:
        self._accounts = accounts

    def judge(self, token: bytes, now_ms: int) -> Verdict:
        fields = token.split(b"\0", FIELDS)
        if len(fields) != FIELDS:
            return TokenRefused(f"Invalid SASL/PLAIN response: expected {FIELDS} tokens, got {len(fields)}")
        authorization_id, user, password = fields
        if not user:
            return TokenRefused("Authentication failed: username not specified")
        if not password:
            return TokenRefused("Authentication failed: password not specified")
        if authorization_id not in (b"", user):
            return TokenRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if not self._accounts.verify(user, password):
            return INVALID
        return TokenAccepted(user.decode())
