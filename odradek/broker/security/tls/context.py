"""Creates `ssl` contexts from a listener's settings and the current contents of its stores.

A store is a file, or PEM text in a setting. Keys and certificates are passed to OpenSSL as PEM.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.broker.security.tls.settings import PEM, ClientAuth, Store, TlsSettings, UnusableTls
from odradek.system.key_file import as_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates


JKS_MAGIC = (bytes.fromhex("feedfeed"), bytes.fromhex("cececece"))
CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
PRIVATE_KEY = b"PRIVATE KEY-----"
MAX_BYTES = 16 * 1024 * 1024  # far larger than any store; a wrong path could refer to a huge file


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A key and its certificates in PEM format, starting with the key's own certificate. `password` is None if the key
    is not encrypted."""

    pem: bytes = field(repr=False)
    password: str | None = field(repr=False)


def read_bytes(store: Store) -> bytes:
    """Reads a store's contents. Raises UnusableTls."""
    if store.inline is not None:
        # In properties files and in settings changed by AlterConfigs, PEM line breaks are often written as \n.
        return store.inline.replace("\\n", "\n").encode()
    assert store.location is not None
    try:
        with Path(store.location).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UnusableTls(store.setting, f"{store.location} cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise UnusableTls(store.setting, f"{store.location} is too large for a store")
    return content


def key_material(store: Store, content: bytes) -> KeyMaterial:
    """Reads the key and its certificate chain from a keystore. Raises UnusableTls."""
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
    """Returns a truststore's certificates as PEM. Raises UnusableTls."""
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
        why = "cannot be read as PKCS12: the password is wrong, or the store has another format"
        raise UnusableTls(store.setting, f"{_place(store)} {why}") from None


def _place(store: Store) -> str:
    return "it" if store.location is None else store.location


END_CERTIFICATE = b"-----END CERTIFICATE-----"
VERIFY_MODES = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}
TLS_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class LoadedTls:
    """A listener's TLS context.

    certificate  the broker's own certificate, in DER
    digest       a digest of the settings and of the contents of the stores
    """

    settings: TlsSettings
    context: ssl.SSLContext
    certificate: bytes
    digest: bytes


def digest_of(settings: TlsSettings) -> bytes:
    """Returns a digest that changes when the stores have to be read again. Raises UnusableTls."""
    digest = sha256(repr((settings, settings.keystore.password, settings.keystore.key_password)).encode())
    digest.update(read_bytes(settings.keystore))
    if settings.truststore is not None:
        digest.update(read_bytes(settings.truststore))
    return digest.digest()


def load(settings: TlsSettings) -> LoadedTls:
    """Reads the stores and creates a context. Raises UnusableTls if a store or the cipher suites cannot be used, or if
    the key does not match its certificate."""
    digest = digest_of(settings)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = TLS_VERSIONS[settings.versions[0]]
    context.maximum_version = TLS_VERSIONS[settings.versions[-1]]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION
    if settings.ciphers is not None:
        try:
            context.set_ciphers(settings.ciphers)
        except ssl.SSLError:
            raise UnusableTls(
                "ssl.cipher.suites", f"OpenSSL does not support these cipher suites: {settings.ciphers}"
            ) from None
    material = key_material(settings.keystore, read_bytes(settings.keystore))
    _load_key(context, material, settings)
    _load_trusted(context, settings)
    context.verify_mode = VERIFY_MODES[settings.client_auth]
    # As in Java, every certificate in the truststore is trusted, even if it is not a root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return LoadedTls(settings, context, _first_certificate(material.pem), digest)


def _load_key(context: ssl.SSLContext, material: KeyMaterial, settings: TlsSettings) -> None:
    def password() -> str:
        if material.password is None:
            raise UnusableTls(settings.keystore.setting, "its private key is encrypted: set ssl.key.password")
        return material.password

    setting = settings.keystore.setting
    with as_file(material.pem) as path:
        try:
            context.load_cert_chain(path, password=password)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                why = "its private key does not belong to its first certificate"
            elif material.password is not None and b"ENCRYPTED" in material.pem:
                why = "its private key cannot be read: ssl.key.password is wrong, or the key is damaged"
            else:
                why = f"key or certificate cannot be read ({error.reason or error})"
            raise UnusableTls(setting, why) from None


def _load_trusted(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if settings.truststore is None:
        if settings.client_auth is not ClientAuth.NONE:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    certificates = trusted_certificates(settings.truststore, read_bytes(settings.truststore))
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError):
        raise UnusableTls(settings.truststore.setting, "its certificates cannot be read") from None


def _first_certificate(pem: bytes) -> bytes:
    start = pem.index(CERTIFICATE)
    end = pem.index(END_CERTIFICATE, start) + len(END_CERTIFICATE)
    return ssl.PEM_cert_to_DER_cert(pem[start:end].decode("ascii"))
