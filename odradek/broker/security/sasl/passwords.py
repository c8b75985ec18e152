"""Checks user names and passwords outside of SASL, for HTTP Basic authentication with the broker's users.

The broker's users are the users of the PLAIN mechanism and the users with SCRAM credentials. Source: RFC 7617, 2.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.broker.security.sasl.mechanism import TokenAccepted
from odradek.protocol.scram import SCRAM_MECHANISMS, client_key, salted_password, stored_key

if TYPE_CHECKING:
    from odradek.broker.security.sasl.credentials import ScramCredentials
    from odradek.broker.security.sasl.mechanism import Mechanism


class LoginRefused(Exception):
    """Raised if a login is malformed or if the user or password is wrong."""


@dataclass(frozen=True, slots=True)
class PasswordUsers:
    """The users that are allowed to log in.

    plain  returns a new PLAIN exchange for each listener that offers PLAIN
    scram  returns the cluster's SCRAM credentials
    """

    plain: Callable[[], Sequence[Mechanism]]
    scram: Callable[[], ScramCredentials]

    def knows(self, user: str, password: str, now_ms: int) -> bool:
        """Returns whether this is the user's password. Call this method in a thread, because checking a SCRAM user
        takes milliseconds."""
        token = b"\0".join((b"", user.encode(), password.encode()))
        if user and password and any(isinstance(each.judge(token, now_ms), TokenAccepted) for each in self.plain()):
            return True
        for mechanism in SCRAM_MECHANISMS.values():
            credential = self.scram().find(user, mechanism.value)
            if credential is None:
                continue
            salted = salted_password(mechanism, password.encode(), credential.salt, credential.iterations)
            if hmac.compare_digest(stored_key(mechanism, client_key(mechanism, salted)), credential.stored_key):
                return True
        return False


def basic_login(authorization: str) -> tuple[str, str]:
    """Returns the user and the password in an Authorization header. Raises LoginRefused if the header is malformed or
    uses a scheme other than Basic."""
    scheme, _, credentials = authorization.strip().partition(" ")
    try:
        if scheme.lower() != "basic":
            raise ValueError
        user, colon, password = b64decode(credentials.strip(), validate=True).decode().partition(":")
        if not colon:
            raise ValueError
    except ValueError:
        raise LoginRefused("The header Authorization must be Basic, with the user and the password") from None
    return user, password
