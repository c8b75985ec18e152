"""The formulas and the four messages of SCRAM (RFC 5802, RFC 7677), as used by Kafka clients and brokers.

    client first   n,[a=authzid],n=<saslname>,r=<nonce>[,ext=value…]
    server first   r=<nonce><server nonce>,s=<base64 salt>,i=<iterations>
    client final   c=biws,r=<both nonces>[,ext=value…],p=<base64 proof>
    server final   v=<base64 server signature>, or e=<error>

Both `odradek.client` and the broker's SASL code (`odradek/broker/security/sasl`) use this module. It does not generate
nonces or salts, which are passed as arguments. Names are UTF-8, whereas Kafka accepts only ASCII. As in Kafka,
passwords are not normalized (SASLprep). Parsers raise ScramError if the text is not the expected message. Source: RFC
5802 sections 3, 5 and 7; Kafka's ScramMessages for its restrictions.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.alter_user_scram_credentials_request import ScramCredentialUpsertion

MIN_ITERATIONS = 4096  # minimum for both mechanisms on both sides
MAX_ITERATIONS = 16_384  # maximum that a broker accepts for storage
NEW_SALT_BYTES = 24  # size of the salts of new passwords

_SAFE = "[^\x00=,]"
_NAME = f"(?:{_SAFE}|=2C|=3D)+"
_VALUE = "[^\x00,]+"
_NONCE = "[!-+\\--~]+"  # printable characters without commas
_BASE64 = "(?:[A-Za-z0-9/+]{4})*(?:[A-Za-z0-9/+]{3}=|[A-Za-z0-9/+]{2}==)?"
_EXTENSIONS = f"(?P<extensions>(?:,[A-Za-z]+={_VALUE})*)"
_RESERVED = f"(?:m={_VALUE},)?"

_CLIENT_FIRST = re.compile(
    f"n,(?:a=(?P<authzid>{_NAME}))?,(?P<bare>{_RESERVED}n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_SERVER_FIRST = re.compile(
    f"{_RESERVED}r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]+){_EXTENSIONS}"
)
_CLIENT_FINAL = re.compile(
    f"(?P<unproven>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(f"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


class ScramError(MalformedMessage):
    """The text is not the expected SCRAM message."""


class ScramMechanism(Enum):
    """A SCRAM mechanism. The value is its number in requests and metadata records."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        return "SCRAM-SHA-256" if self is ScramMechanism.SHA_256 else "SCRAM-SHA-512"

    @property
    def hash_name(self) -> str:
        """The name of the hash function in hashlib."""
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"


SCRAM_MECHANISMS: Mapping[str, ScramMechanism] = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}


def scram_upsertion(
    name: str, mechanism: ScramMechanism, password: str, iterations: int, salt: bytes
) -> ScramCredentialUpsertion:
    """Returns the request entry that sets a user's password. The call is slow, because it computes
    `salted_password`."""
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism.value,
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(mechanism, password.encode(), salt, iterations),
    )


# The formulas.


def salted_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Computes the salted password. This is the only slow formula: 4096 iterations take about 2 ms, during which the
    interpreter lock is released."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", mechanism.hash_name)


def stored_key(mechanism: ScramMechanism, key: bytes) -> bytes:
    """Computes the key that a broker stores instead of the client key."""
    return hashlib.new(mechanism.hash_name, key).digest()


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Server Key", mechanism.hash_name)


def client_proof(mechanism: ScramMechanism, key: bytes, auth_message: bytes) -> bytes:
    """Computes the proof that the client has the client key, without revealing the key."""
    signature = hmac.digest(stored_key(mechanism, key), auth_message, mechanism.hash_name)
    return _xor(key, signature)


def is_proof_of(mechanism: ScramMechanism, stored: bytes, auth_message: bytes, proof: bytes) -> bool:
    """Returns whether a client proof matches this stored key. A proof of the wrong length does not match."""
    signature = hmac.digest(stored, auth_message, mechanism.hash_name)
    if len(proof) != len(signature):
        return False
    return hmac.compare_digest(stored_key(mechanism, _xor(proof, signature)), stored)


def server_signature(mechanism: ScramMechanism, key: bytes, auth_message: bytes) -> bytes:
    """Computes the proof that the server has the server key."""
    return hmac.digest(key, auth_message, mechanism.hash_name)


def auth_message(client_first_bare: str, server_first: str, client_final_unproven: str) -> bytes:
    """Builds the text that both sides sign."""
    return f"{client_first_bare},{server_first},{client_final_unproven}".encode()


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


# The messages.


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The client's first message. `bare` is the part that is signed. `authorization_id` is empty if the client did not
    send one."""

    user: str
    nonce: str
    bare: str
    authorization_id: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def make(
        cls, user: str, nonce: str, *, authorization_id: str = "", extensions: Mapping[str, str] | None = None
    ) -> ClientFirst:
        more = dict(extensions or {})
        return cls(user, nonce, f"n={escaped(user)},r={nonce}{_join_extensions(more)}", authorization_id, more)

    @classmethod
    def parse(cls, token: bytes) -> ClientFirst:
        found = _match(_CLIENT_FIRST, token, "first message of a client")
        return cls(
            unescaped(found["name"]),
            found["nonce"],
            found["bare"],
            unescaped(found["authzid"] or ""),
            _split(found["extensions"]),
        )

    @property
    def gs2_header(self) -> str:
        return f"n,{f'a={escaped(self.authorization_id)}' if self.authorization_id else ''},"

    @property
    def text(self) -> str:
        return self.gs2_header + self.bare


@dataclass(frozen=True, slots=True)
class ServerFirst:
    """The server's first message. `nonce` is the client's nonce followed by the server's nonce."""

    nonce: str
    salt: bytes
    iterations: int
    text: str

    @classmethod
    def make(cls, nonce: str, salt: bytes, iterations: int) -> ServerFirst:
        return cls(nonce, salt, iterations, f"r={nonce},s={base64.b64encode(salt).decode()},i={iterations}")

    @classmethod
    def parse(cls, token: bytes) -> ServerFirst:
        found = _match(_SERVER_FIRST, token, "first message of a server")
        if len(found["iterations"]) > 10:
            raise ScramError("the iteration count has more than ten digits")
        return cls(found["nonce"], _decode_base64(found["salt"]), int(found["iterations"]), found[0])


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """The client's final message. `unproven` is the part that is signed."""

    nonce: str
    unproven: str
    proof: bytes

    @classmethod
    def unproven_text(cls, first: ClientFirst, nonce: str) -> str:
        return f"c={base64.b64encode(first.gs2_header.encode()).decode()},r={nonce}"

    @classmethod
    def parse(cls, token: bytes) -> ClientFinal:
        found = _match(_CLIENT_FINAL, token, "final message of a client")
        return cls(found["nonce"], found["unproven"], _decode_base64(found["proof"]))

    @property
    def text(self) -> str:
        return f"{self.unproven},p={base64.b64encode(self.proof).decode()}"


@dataclass(frozen=True, slots=True)
class ServerFinal:
    """The server's final message, which contains either a signature or an error text."""

    signature: bytes = b""
    error: str = ""

    @classmethod
    def parse(cls, token: bytes) -> ServerFinal:
        found = _match(_SERVER_FINAL, token, "final message of a server")
        return cls(_decode_base64(found["signature"] or ""), found["error"] or "")

    @property
    def text(self) -> str:
        return f"e={self.error}" if self.error else f"v={base64.b64encode(self.signature).decode()}"


def escaped(name: str) -> str:
    """Encodes a name as a saslname, in which commas and equals signs must be escaped."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(saslname: str) -> str:
    return saslname.replace("=2C", ",").replace("=3D", "=")


def _match(pattern: re.Pattern[str], token: bytes, what: str) -> re.Match[str]:
    try:
        found = pattern.fullmatch(token.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise ScramError(f"the token is not the SCRAM {what}")  # the text is omitted because it may contain secrets
    return found


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramError("not base64") from None


def _join_extensions(extensions: Mapping[str, str]) -> str:
    return "".join(f",{name}={value}" for name, value in extensions.items())


def _split(extensions: str) -> dict[str, str]:
    pairs = (part.split("=", 1) for part in extensions.split(",") if part)
    return dict(pairs)
