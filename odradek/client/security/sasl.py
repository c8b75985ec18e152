"""The client's side of SASL exchanges. This module uses no sockets, clock or randomness.

| mechanism | first token | then |
|---|---|---|
| PLAIN | user and password | done |
| SCRAM-SHA-256, SCRAM-SHA-512 | user and nonce | the client proves the password; then it verifies the server's proof |
| OAUTHBEARER | the token | done, or one byte that confirms a refusal, after which the broker sends the reason |

Source: RFC 4616, RFC 5802, RFC 7628; KIP-84, KIP-255.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import Protocol

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
    client_proof,
    salted_password,
    server_key,
    server_signature,
)

MAX_ITERATIONS = 1_000_000  # about half a second of work; a server that requires more may be malicious
CONTROL_A = "\x01"
ERROR_ACKNOWLEDGEMENT = b"\x01"
_EXTENSION_NAME = re.compile("[A-Za-z]+")
_EXTENSION_VALUE = re.compile("[\x21-\x7e \t\r\n]+")


class SaslError(Exception):
    """Raised if the server violates the mechanism, refuses the login, or cannot prove that it knows the password."""


class SaslExchange(Protocol):
    """The client's side of one login. Every login needs a new exchange, even on the same connection."""

    def initial_response(self) -> bytes: ...

    def answer(self, challenge: bytes) -> bytes | None:
        """Returns the next token to send, or None if the exchange has succeeded. Raises SaslError."""
        ...


class PlainExchange:
    def __init__(self, user: str, password: str) -> None:
        """Creates an exchange. Raises ValueError for a name or password that the mechanism cannot transmit."""
        if not user or "\x00" in user + password:
            raise ValueError("PLAIN needs a user name, and neither the user name nor the password may contain NUL")
        self._token = f"\x00{user}\x00{password}".encode()

    def initial_response(self) -> bytes:
        return self._token

    def answer(self, challenge: bytes) -> bytes | None:
        return None


class ScramStep(Enum):
    FIRST = auto()
    PROOF = auto()
    VERIFIED = auto()


class ScramExchange:
    """A SCRAM exchange. `answer` computes the salted password, which takes several milliseconds and releases the
    interpreter lock."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        nonce: str,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        """Creates an exchange.

        nonce   at least 16 random bytes as printable text without commas

        Raises ValueError for an extension that SCRAM cannot transmit.
        """
        for name, value in (extensions or {}).items():
            if not _EXTENSION_NAME.fullmatch(name) or not value or "," in value:
                raise ValueError(f"the SCRAM extension {name!r} has an invalid name or value")
        self._mechanism = mechanism
        self._password = password.encode()
        self._client_first = ClientFirst.make(user, nonce, extensions=extensions)
        self._step = ScramStep.FIRST
        self._server_signature = b""

    def initial_response(self) -> bytes:
        return self._client_first.text.encode()

    def answer(self, challenge: bytes) -> bytes | None:
        try:
            match self._step:
                case ScramStep.FIRST:
                    proof = self._proof(ServerFirst.parse(challenge))
                    self._step = ScramStep.PROOF
                    return proof
                case ScramStep.PROOF:
                    self._verify(ServerFinal.parse(challenge))
                    self._step = ScramStep.VERIFIED
                    return None
                case ScramStep.VERIFIED:
                    raise SaslError("the server sent another message after its final message")
        except ScramError as error:
            raise SaslError(f"the server's answer is invalid: {error}") from None

    def _proof(self, server_first: ServerFirst) -> bytes:
        nonce = self._client_first.nonce
        if not server_first.nonce.startswith(nonce) or server_first.nonce == nonce:
            raise SaslError("the server's nonce does not continue the client's")
        if not MIN_ITERATIONS <= server_first.iterations <= MAX_ITERATIONS:
            raise SaslError(
                f"the server requests {server_first.iterations} iterations, but must request {MIN_ITERATIONS} to"
                f" {MAX_ITERATIONS}"
            )
        mechanism = self._mechanism
        unproven = ClientFinal.unproven_text(self._client_first, server_first.nonce)
        signed = auth_message(self._client_first.bare, server_first.text, unproven)
        salted = salted_password(mechanism, self._password, server_first.salt, server_first.iterations)
        self._server_signature = server_signature(mechanism, server_key(mechanism, salted), signed)
        proof = client_proof(mechanism, client_key(mechanism, salted), signed)
        return ClientFinal(server_first.nonce, unproven, proof).text.encode()

    def _verify(self, server_final: ServerFinal) -> None:
        if server_final.error:
            raise SaslError(f"the server reported the error {server_final.error}")
        if not hmac.compare_digest(server_final.signature, self._server_signature):
            raise SaslError(
                "the server could not prove that it knows the password, so it is not the server that it claims to be"
            )


class OAuthBearerExchange:
    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        """Creates an exchange. Raises ValueError for a token or an extension that the mechanism cannot transmit."""
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError(
                "a bearer token must not be empty, and may contain only printable ASCII characters without spaces"
            )
        fields = [f"auth=Bearer {token}"]
        for name, value in (extensions or {}).items():
            if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
                raise ValueError(f"the OAUTHBEARER extension {name!r} has an invalid name or value")
            fields.append(f"{name}={value}")
        self._token = "".join(("n,,", *(CONTROL_A + each for each in fields), CONTROL_A, CONTROL_A)).encode()
        self._refusal: str | None = None

    def initial_response(self) -> bytes:
        return self._token

    def answer(self, challenge: bytes) -> bytes | None:
        if self._refusal is not None:
            raise SaslError(f"the broker refused the token: {self._refusal}")
        if not challenge:
            return None
        self._refusal = _status_of(challenge)
        return ERROR_ACKNOWLEDGEMENT


def _status_of(challenge: bytes) -> str:
    """Returns the status in a refusal such as {"status": "invalid_token"}, or a substitute phrase if the refusal has no
    status."""
    try:
        return str(json.loads(challenge)["status"])
    except (ValueError, KeyError, TypeError):
        return "without a reason"
