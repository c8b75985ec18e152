"""Reads stores: the bytes of a file or of a setting, and the keys and certificates in them, as PEM."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.broker.security.tls.settings import PEM, UnusableTls

if TYPE_CHECKING:
    from odradek.broker.security.tls.settings import Store

JKS_MAGIC = (bytes.fromhex("feedfeed"), bytes.fromhex("cececece"))
CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
PRIVATE_KEY = b"PRIVATE KEY-----"
MOST_BYTES = 16 * 1024 * 1024  # no store is that large; a wrong path can lead to something that is


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """The key and its certificates, the own one first, in PEM. password: None where the key is not encrypted."""

    pem: bytes = field(repr=False)
    password: str | None = field(repr=False)


def read_bytes(store: Store) -> bytes:
    """What the store consists of. Raises UnusableTls."""
    if store.inline is not None:
        # A properties file can say \n for the end of a line, and so can a setting that is altered.
        return store.inline.replace("\\n", "\n").encode()
    assert store.location is not None
    try:
        with Path(store.location).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UnusableTls(store.setting, f"{store.location} cannot be read: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise UnusableTls(store.setting, f"{store.location} is too large for a store")
    return content


def key_material(store: Store, content: bytes) -> KeyMaterial:
    """Of a keystore. Raises UnusableTls."""
    if store.type == PEM:
        for what, marker in (("private key", PRIVATE_KEY), ("certificate", CERTIFICATE)):
            if marker not in content:
                raise UnusableTls(store.setting, f"{_place(store)} has no {what} in PEM")
        return KeyMaterial(content, store.key_password)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    loaded = _pkcs12(store, content)
    if loaded.key is None or loaded.cert is None:
        raise UnusableTls(store.setting, f"{_place(store)} has no private key with a certificate")
    key = loaded.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [loaded.cert, *loaded.additional_certs]
    return KeyMaterial(key + b"".join(one.certificate.public_bytes(Encoding.PEM) for one in chain), None)


def trusted_certificates(store: Store, content: bytes) -> str:
    """Of a truststore, in PEM. Raises UnusableTls."""
    if store.type == PEM:
        if CERTIFICATE not in content:
            raise UnusableTls(store.setting, f"{_place(store)} has no certificate in PEM")
        return content.decode("ascii", errors="replace")
    from cryptography.hazmat.primitives.serialization import Encoding

    loaded = _pkcs12(store, content)
    found = [*loaded.additional_certs] if loaded.cert is None else [loaded.cert, *loaded.additional_certs]
    if not found:
        raise UnusableTls(store.setting, f"{_place(store)} has no certificate")
    return b"".join(one.certificate.public_bytes(Encoding.PEM) for one in found).decode("ascii")


def _pkcs12(store: Store, content: bytes) -> PKCS12KeyAndCertificates:
    if content.startswith(JKS_MAGIC):
        raise UnusableTls(
            store.setting,
            f"{_place(store)} is a JKS store, which only Java reads. Convert it: keytool -importkeystore -srckeystore"
            f" {store.location} -destkeystore store.p12 -deststoretype PKCS12, and set the type to PKCS12",
        )
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        return load_pkcs12(content, None if store.password is None else store.password.encode())
    except ValueError:
        why = "cannot be read as PKCS12: the password is wrong, or it is something else"
        raise UnusableTls(store.setting, f"{_place(store)} {why}") from None


def _place(store: Store) -> str:
    return "it" if store.location is None else store.location


if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
