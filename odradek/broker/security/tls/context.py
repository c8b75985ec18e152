"""From the settings of a listener with TLS to what the `ssl` module needs, read from the files as they are now."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from odradek.broker.security.tls.settings import ClientAuth, UnusableTls
from odradek.broker.security.tls.store_files import CERTIFICATE, key_material, read_bytes, trusted_certificates

if TYPE_CHECKING:
    from odradek.broker.security.tls.settings import TlsSettings
    from odradek.broker.security.tls.store_files import KeyMaterial

END_CERTIFICATE = b"-----END CERTIFICATE-----"
VERIFY_MODES = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}
TLS_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class LoadedTls:
    """certificate: this broker's own, in DER; digest: of the stores' contents and of the settings"""

    settings: TlsSettings
    context: ssl.SSLContext
    certificate: bytes
    digest: bytes


def digest_of(settings: TlsSettings) -> bytes:
    """Another one means that the stores have to be read again. Raises UnusableTls."""
    digest = sha256(repr((settings, settings.keystore.password, settings.keystore.key_password)).encode())
    digest.update(read_bytes(settings.keystore))
    if settings.truststore is not None:
        digest.update(read_bytes(settings.truststore))
    return digest.digest()


def load(settings: TlsSettings) -> LoadedTls:
    """Reads the stores. Raises UnusableTls: also where key and certificate do not belong together."""
    digest = digest_of(settings)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = TLS_VERSIONS[settings.versions[0]]
    context.maximum_version = TLS_VERSIONS[settings.versions[-1]]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION
    if settings.ciphers is not None:
        try:
            context.set_ciphers(settings.ciphers)
        except ssl.SSLError:
            raise UnusableTls("ssl.cipher.suites", f"no suite of TLS 1.2 is known in {settings.ciphers}") from None
    material = key_material(settings.keystore, read_bytes(settings.keystore))
    _load_key(context, material, settings)
    _load_trusted(context, settings)
    context.verify_mode = VERIFY_MODES[settings.client_auth]
    context.verify_flags |= (
        ssl.VERIFY_X509_PARTIAL_CHAIN
    )  # as in Java, what is in the truststore is trusted, root or not
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


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """A path to it while it is needed, since `ssl` reads keys from paths only; in memory where the system can."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("odradek-key", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile("wb", prefix="odradek-key-") as file:  # only its owner may read it
        file.write(content)
        file.flush()
        yield file.name
