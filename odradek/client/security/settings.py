"""The security settings that all clients share. They determine how a client connects to a secured broker."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from odradek.system.key_file import as_file

if TYPE_CHECKING:
    from odradek.client.security.sasl import SaslExchange

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
MECHANISMS = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
JKS_MAGIC = b"\xfe\xed\xfe\xed"
DER_SEQUENCE = b"\x30"  # the first byte of a PKCS12 file
CONVERT = "keytool -importkeystore -srckeystore {0} -destkeystore {1} -deststoretype PKCS12"
TokenCallback = Callable[[], str | Awaitable[str]]


class SecuritySettings(TypedDict, total=False):
    """The security settings of a client, as keyword arguments.

    security_protocol   PLAINTEXT (the default), SSL, SASL_PLAINTEXT or SASL_SSL
    ssl_cafile          a file with the trusted certificates: PEM, or PKCS12 with `ssl_capassword`; by default, the
                        system's certificates
    ssl_cadata          the trusted certificates as PEM text
    ssl_certfile        a file with the client's own certificate, its chain and, unless `ssl_keyfile` is set, its key:
                        PEM or PKCS12
    ssl_certdata        the client's own certificate with its chain and key, as PEM text
    ssl_keyfile         a PEM file with the client's key
    ssl_password        password of an encrypted key, or of the PKCS12 file
    ssl_check_hostname  whether the broker's certificate must match the connection's address; True by default
    ssl_context         an SSLContext, which replaces all other `ssl_` settings except `ssl_check_hostname`
    sasl_mechanism      PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER
    sasl_username, sasl_password     the login for PLAIN and SCRAM
    sasl_token          for OAUTHBEARER: a function or coroutine function that returns a token. It is called for each
                        login. A function runs in a thread, so it may wait for a server.
    sasl_extensions     extensions to send with SCRAM (`{"tokenauth": "true"}` for a delegation token) or OAUTHBEARER
    """

    security_protocol: str
    ssl_cafile: str | Path | None
    ssl_capassword: str | None
    ssl_cadata: str | None
    ssl_certfile: str | Path | None
    ssl_certdata: str | None
    ssl_keyfile: str | Path | None
    ssl_password: str | None
    ssl_check_hostname: bool
    ssl_context: ssl.SSLContext | None
    sasl_mechanism: str | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_token: TokenCallback | None
    sasl_extensions: Mapping[str, str] | None


@dataclass(frozen=True)
class Security:
    """Validated security settings. `repr` shows no secrets."""

    security_protocol: str = "PLAINTEXT"
    ssl_cafile: str | Path | None = None
    ssl_capassword: str | None = field(default=None, repr=False)
    ssl_cadata: str | None = field(default=None, repr=False)
    ssl_certfile: str | Path | None = None
    ssl_certdata: str | None = field(default=None, repr=False)
    ssl_keyfile: str | Path | None = None
    ssl_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    ssl_context: ssl.SSLContext | None = None
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_token: TokenCallback | None = field(default=None, repr=False)
    sasl_extensions: Mapping[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raises ValueError for settings that contradict each other."""
        if self.security_protocol not in PROTOCOLS:
            raise ValueError(f"security_protocol must be one of {', '.join(PROTOCOLS)}, not {self.security_protocol!r}")
        self._check_tls()
        self._check_sasl()

    @classmethod
    def of(cls, settings: SecuritySettings) -> Security:
        """Validates the settings. Raises ValueError, or TypeError for an unknown setting."""
        if unknown := settings.keys() - cls.__dataclass_fields__.keys():
            raise TypeError(f"the client has no setting {', '.join(sorted(unknown))}")
        return cls(**settings)

    @property
    def has_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL")

    @cached_property
    def tls_context(self) -> ssl.SSLContext | None:
        """The TLS context, or None if TLS is not used. The files are read on first access. Raises ValueError for files
        with the wrong content, OSError for files that cannot be read."""
        if not self.has_tls:
            return None
        return client_context(self) if self.ssl_context is None else self.ssl_context

    def exchange(self, nonce: str, token: str | None) -> SaslExchange:
        """Creates the exchange for one login. `token` is the value that `sasl_token` has returned."""
        # Imported here because the import takes 5 ms, and most brokers that developers run require no login.
        from odradek.client.security.sasl import OAuthBearerExchange, PlainExchange, ScramExchange
        from odradek.protocol.scram import SCRAM_MECHANISMS

        mechanism = self.sasl_mechanism or ""
        if mechanism == OAUTHBEARER:
            return OAuthBearerExchange(token or "", self.sasl_extensions)
        user, password = self.sasl_username or "", self.sasl_password or ""
        if mechanism == PLAIN:
            return PlainExchange(user, password)
        return ScramExchange(SCRAM_MECHANISMS[mechanism], user, password, nonce, self.sasl_extensions)

    def _check_tls(self) -> None:
        files = ("ssl_cafile", "ssl_cadata", "ssl_certfile", "ssl_certdata", "ssl_keyfile")
        given = [name for name in (*files, "ssl_context") if getattr(self, name) is not None]
        if given and not self.has_tls:
            raise ValueError(f"{given[0]} is set, but security_protocol={self.security_protocol!r} does not use TLS")
        if self.ssl_context is not None and len(given) > 1:
            raise ValueError(f"ssl_context replaces {given[0]}: set only one of them")
        for one, other in (("ssl_cafile", "ssl_cadata"), ("ssl_certfile", "ssl_certdata")):
            if one in given and other in given:
                raise ValueError(f"set {one} or {other}, not both")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ValueError("ssl_keyfile needs an ssl_certfile")

    def _check_sasl(self) -> None:
        mechanism = self.sasl_mechanism
        if not self.has_sasl:
            if mechanism is not None:
                raise ValueError(
                    f"sasl_mechanism is set, but security_protocol={self.security_protocol!r} does not use SASL"
                )
            return
        if mechanism is None:
            raise ValueError(f"security_protocol={self.security_protocol!r} needs a sasl_mechanism")
        if mechanism == "GSSAPI":
            raise ValueError("Kerberos (GSSAPI) is not supported: use a listener with SCRAM or OAUTHBEARER")
        if mechanism not in MECHANISMS:
            raise ValueError(f"sasl_mechanism must be one of {', '.join(MECHANISMS)}, not {mechanism!r}")
        if mechanism == OAUTHBEARER:
            if self.sasl_token is None:
                raise ValueError("OAUTHBEARER needs sasl_token, a function that returns a token")
        elif not self.sasl_username or self.sasl_password is None:
            raise ValueError(f"{mechanism} needs sasl_username and sasl_password")
        if mechanism != OAUTHBEARER:
            self.exchange("nonce", None)  # raises ValueError for values that the mechanism cannot transmit


NO_SECURITY = Security()


def client_context(settings: Security) -> ssl.SSLContext:
    """Creates a context for TLS 1.2 and later, which always verifies the broker's certificate. Raises ValueError or
    OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.ssl_check_hostname
    _trust(context, settings)
    _identify(context, settings)
    return context


def _trust(context: ssl.SSLContext, settings: Security) -> None:
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
    # ValueError if the text is empty; TypeError if it is not ASCII.
    except (ssl.SSLError, ValueError, TypeError):
        raise ValueError(f"{what} contains no certificates in PEM format") from None


def _identify(context: ssl.SSLContext, settings: Security) -> None:
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
        with as_file(content if key is None else key + b"\n" + content) as path:
            # Always pass a password. Without a password, OpenSSL would prompt for it on the terminal.
            context.load_cert_chain(path, password=settings.ssl_password or "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(f"{what}: the key does not belong to the certificate") from None
        if b"ENCRYPTED" in (key or content):
            hint = "ssl_password is wrong" if has_password else "the key is encrypted: set ssl_password"
            raise ValueError(f"{what}: {hint}") from None
        raise ValueError(f"{what} does not contain a certificate and its key in PEM format") from None


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
    """Returns the key, certificate and chain of a PKCS12 store as PEM. The key is not encrypted."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    secret = (password or "").encode()
    try:
        key, certificate, chain = pkcs12.load_key_and_certificates(content, secret)
    except ValueError:
        raise ValueError(f"{what} cannot be opened as PKCS12 with this ssl_password") from None
    if key is None or certificate is None:
        raise ValueError(f"{what} contains no key with its certificate")
    certificates = b"".join(each.public_bytes(Encoding.PEM) for each in (certificate, *chain))
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificates


def _readable(path: Path) -> bytes:
    content = path.read_bytes()
    if content.startswith(JKS_MAGIC):
        into = path.with_suffix(".p12").name
        raise ValueError(f"{path} is a JKS store, which only Java reads: {CONVERT.format(path.name, into)}")
    return content
