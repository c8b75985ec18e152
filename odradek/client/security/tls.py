"""TLS: the context of a client, made from PEM or PKCS12; and the reasons why a handshake fails, in words for the person
who set it up.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from odradek.client.common.errors import AuthenticationFailed, ClientError, RetriableError
from odradek.protocol.errors import ErrorCode

JKS_MAGIC = b"\xfe\xed\xfe\xed"
DER_SEQUENCE = b"\x30"  # what a PKCS12 file begins with
CONVERT = "keytool -importkeystore -srckeystore {0} -destkeystore {1} -deststoretype PKCS12"


class ClientTlsSettings(Protocol):
    """The part of `odradek.client.security.settings.Security` that TLS takes."""

    @property
    def ssl_cafile(self) -> str | Path | None: ...
    @property
    def ssl_capassword(self) -> str | None: ...
    @property
    def ssl_cadata(self) -> str | None: ...
    @property
    def ssl_certfile(self) -> str | Path | None: ...
    @property
    def ssl_certdata(self) -> str | None: ...
    @property
    def ssl_keyfile(self) -> str | Path | None: ...
    @property
    def ssl_password(self) -> str | None: ...
    @property
    def ssl_check_hostname(self) -> bool: ...


def client_context(settings: ClientTlsSettings) -> ssl.SSLContext:
    """TLS 1.2 and later; the certificate of the broker is always verified. Raises ValueError, OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.ssl_check_hostname
    _trust(context, settings)
    _identify(context, settings)
    return context


def _trust(context: ssl.SSLContext, settings: ClientTlsSettings) -> None:
    if settings.ssl_cafile is not None:
        what = f"ssl_cafile {settings.ssl_cafile}"
        pem = _trusted_pem(Path(settings.ssl_cafile), settings.ssl_capassword)
    elif settings.ssl_cadata is not None:
        what, pem = "ssl_cadata", settings.ssl_cadata
    else:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError, TypeError):  # ValueError and TypeError: no certificate, or no ASCII
        raise ValueError(f"{what} holds no certificates in PEM form") from None


def _identify(context: ssl.SSLContext, settings: ClientTlsSettings) -> None:
    if settings.ssl_certfile is not None:
        what = f"ssl_certfile {settings.ssl_certfile}"
        content = _readable(Path(settings.ssl_certfile))
        if content.startswith(DER_SEQUENCE):
            content = _own_pem(content, what, settings.ssl_password)
        key = _readable(Path(settings.ssl_keyfile)) if settings.ssl_keyfile is not None else None
    elif settings.ssl_certdata is not None:
        what, content, key = "ssl_certdata", settings.ssl_certdata.encode(), None
    else:
        return
    has_password = bool(settings.ssl_password)
    try:
        with _in_memory(content if key is None else key + b"\n" + content) as path:
            # A password is always given: OpenSSL would ask on the terminal.
            context.load_cert_chain(path, password=settings.ssl_password or "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(f"{what}: the key does not belong to the certificate") from None
        if b"ENCRYPTED" in (key or content):
            hint = "ssl_password is wrong" if has_password else "the key is encrypted: set ssl_password"
            raise ValueError(f"{what}: {hint}") from None
        raise ValueError(f"{what} does not hold a certificate and its key in PEM form") from None


def _trusted_pem(path: Path, password: str | None) -> str:
    content = _readable(path)
    if not content.startswith(DER_SEQUENCE):
        return content.decode("ascii", "replace")
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs12

    try:
        store = pkcs12.load_pkcs12(content, (password or "").encode())
    except ValueError:
        raise ValueError(f"{path} cannot be opened as PKCS12 with this ssl_capassword") from None
    certificates = [*([store.cert] if store.cert is not None else []), *store.additional_certs]
    return "".join(each.certificate.public_bytes(Encoding.PEM).decode() for each in certificates)


def _own_pem(content: bytes, what: str, password: str | None) -> bytes:
    """Key, certificate and chain of a PKCS12 store; the key in the clear, as far as memory goes."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    secret = (password or "").encode()
    try:
        key, certificate, chain = pkcs12.load_key_and_certificates(content, secret)
    except ValueError:
        raise ValueError(f"{what} cannot be opened as PKCS12 with this ssl_password") from None
    if key is None or certificate is None:
        raise ValueError(f"{what} holds no key with its certificate")
    certificates = b"".join(each.public_bytes(Encoding.PEM) for each in (certificate, *chain))
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificates


def _readable(path: Path) -> bytes:
    content = path.read_bytes()
    if content.startswith(JKS_MAGIC):
        into = path.with_suffix(".p12").name
        raise ValueError(f"{path} is a JKS store, which only Java reads: {CONVERT.format(path.name, into)}")
    return content


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """The path of a file without a name, for OpenSSL: a key in the clear never gets to a disk."""
    descriptor = os.memfd_create("odradek-tls")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


NO_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
)
WANTS_A_CERTIFICATE = frozenset({"TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_BAD_CERTIFICATE"})
REFUSES_THE_CERTIFICATE = frozenset(
    {"SSLV3_ALERT_CERTIFICATE_UNKNOWN", "TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE"}
)
EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
WRONG_NAME = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


def tls_failure(name: str, error: OSError) -> ClientError:
    """AuthenticationFailed for what stays as it is until somebody changes the settings of one side."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationFailed(f"the certificate of {name} is refused: {_why(error)}")
    if isinstance(error, ssl.SSLError) and error.reason is not None:
        return _of_reason(name, error.reason)
    return RetriableError(
        f"{name} hung up during the TLS handshake: its listener may be one without TLS (PLAINTEXT, SASL_PLAINTEXT)",
        ErrorCode.NETWORK_EXCEPTION,
    )


def _why(error: ssl.SSLCertVerificationError) -> str:
    text = error.verify_message
    if error.verify_code in WRONG_NAME:
        return f"{text}. Connect by a name that it has, or set ssl_check_hostname=False"
    if error.verify_code == EXPIRED:
        return text
    return f"{text}. ssl_cafile has to hold the CA that issued it"


def _of_reason(name: str, reason: str) -> ClientError:
    words = reason.lower().replace("_", " ")
    if reason in NO_TLS:
        return AuthenticationFailed(
            f"{name} does not answer with TLS ({words}): its listener is one without TLS. Set security_protocol to"
            " PLAINTEXT or SASL_PLAINTEXT"
        )
    if reason in WANTS_A_CERTIFICATE:
        return AuthenticationFailed(
            f"{name} refuses the connection ({words}): it may require a certificate of the client, ssl_certfile"
        )
    if reason in REFUSES_THE_CERTIFICATE:
        return AuthenticationFailed(f"{name} does not trust the certificate of this client, ssl_certfile ({words})")
    if "ALERT" in reason:
        return AuthenticationFailed(f"{name} refuses the TLS handshake: {words}")
    return RetriableError(f"TLS with {name} failed: {words}", ErrorCode.NETWORK_EXCEPTION)
