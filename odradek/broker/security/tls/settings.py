"""A listener's TLS settings: stores, client certificates, versions and cipher suites. This module does not read files.

Source: Kafka 4.3.1's checks, as observed; docs/spec/security.md#s1-2. In addition to these checks, a listener without a
certificate is refused, because every handshake would fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from odradek.broker.security.tls.principals import InvalidRule, MappingRule, parse_rules

if TYPE_CHECKING:
    from odradek.broker.configuration.listener_settings import ListenerSettings

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
VERSIONS = ("TLSv1.2", "TLSv1.3")  # oldest first


class UnusableTls(Exception):
    """Raised if a setting makes TLS impossible. The message begins with the setting's name."""

    def __init__(self, setting: str, why: str) -> None:
        super().__init__(f"{setting}: {why}")


class ClientAuth(Enum):
    """The values of ssl.client.auth, which determine whether a client certificate is requested. A certificate that
    cannot be verified is never accepted."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Store:
    """A keystore or truststore: either a file, or PEM text in the settings.

    type          PEM, PKCS12 or JKS; the default is JKS, which Java also uses for PKCS12 files
    setting       full name of the setting that contains the location or the text, for use in messages
    inline        PEM text; for a keystore, the key and the certificate chain
    key_password  None if the key is not encrypted, or is encrypted with the store's password
    """

    type: str
    setting: str
    location: str | None
    inline: str | None = field(repr=False)
    password: str | None = field(repr=False)
    key_password: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """A listener's TLS settings.

    truststore  None for the system's certificate authorities
    ciphers     a list in OpenSSL's format, or None for OpenSSL's default
    """

    listener: str
    keystore: Store
    truststore: Store | None
    client_auth: ClientAuth
    versions: tuple[str, ...]
    ciphers: str | None
    rules: tuple[MappingRule, ...]

    @property
    def requires_certificate(self) -> bool:
        """Whether clients must present a certificate."""
        return self.client_auth is ClientAuth.REQUIRED


def tls_settings(settings: ListenerSettings) -> TlsSettings:
    """Parses a listener's TLS settings. Raises UnusableTls."""
    versions, ciphers = _versions(settings)
    return TlsSettings(
        listener=settings.listener,
        keystore=_keystore(settings),
        truststore=_truststore(settings),
        client_auth=ClientAuth(settings.text("ssl.client.auth")),
        versions=versions,
        ciphers=ciphers,
        rules=_rules(settings),
    )


def _keystore(settings: ListenerSettings) -> Store:
    key, chain = settings.text("ssl.keystore.key"), settings.text("ssl.keystore.certificate.chain")
    location, kind, password = _described(settings, "ssl.keystore")
    name = settings.name
    if key is not None or chain is not None:
        for setting, missing, other in (
            ("ssl.keystore.key", chain, "ssl.keystore.certificate.chain"),
            ("ssl.keystore.certificate.chain", key, "ssl.keystore.key"),
        ):
            if missing is None:
                raise UnusableTls(name(setting), f"{other} is missing: a key and its certificates must be set together")
        _refuse_other_stores_than_pem(settings, "ssl.keystore", "ssl.keystore.key", kind, location)
        if password is not None:
            raise UnusableTls(
                name("ssl.keystore.password"),
                "a PEM store has no password: remove this setting, or use ssl.key.password",
            )
        return Store(PEM, name("ssl.keystore.key"), None, f"{key}\n{chain}", None, settings.text("ssl.key.password"))
    if location is None:
        here = settings.prefixed("ssl.keystore.location")
        raise UnusableTls(
            here,
            f"listener {settings.listener} needs a certificate: set this to a file, and ssl.keystore.type to PEM or"
            " PKCS12. `odradek certs` makes certificates for development",
        )
    if kind == PEM and password is not None:
        raise UnusableTls(
            name("ssl.keystore.password"), "a PEM store has no password: remove this setting, or use ssl.key.password"
        )
    if kind != PEM and password is None:
        raise UnusableTls(settings.prefixed("ssl.keystore.password"), f"the {kind} store {location} needs one")
    return Store(kind, name("ssl.keystore.location"), location, None, password, settings.text("ssl.key.password"))


def _truststore(settings: ListenerSettings) -> Store | None:
    certificates = settings.text("ssl.truststore.certificates")
    location, kind, password = _described(settings, "ssl.truststore")
    if certificates is not None:
        _refuse_other_stores_than_pem(settings, "ssl.truststore", "ssl.truststore.certificates", kind, location)
    if kind == PEM and password is not None:
        raise UnusableTls(
            settings.name("ssl.truststore.password"), "certificates in PEM are not encrypted: remove this setting"
        )
    if certificates is not None:
        return Store(PEM, settings.name("ssl.truststore.certificates"), None, certificates, None, None)
    if location is None:
        return None
    return Store(kind, settings.name("ssl.truststore.location"), location, None, password, None)


def _described(settings: ListenerSettings, store: str) -> tuple[str | None, str, str | None]:
    """Returns a store's location, type and password."""
    kind = (settings.text(f"{store}.type") or JKS).upper()
    if kind not in (PEM, PKCS12, JKS):
        raise UnusableTls(settings.name(f"{store}.type"), f"{kind} is not supported; use PEM or PKCS12")
    return settings.text(f"{store}.location") or None, kind, settings.text(f"{store}.password")


def _refuse_other_stores_than_pem(
    settings: ListenerSettings, store: str, inline: str, kind: str, location: str | None
) -> None:
    if kind != PEM:
        raise UnusableTls(
            settings.name(inline), f"keys and certificates that are given in a setting are PEM: set {store}.type=PEM"
        )
    if location is not None:
        raise UnusableTls(settings.name(inline), f"{store}.location is also set; set only one of the two")


def _versions(settings: ListenerSettings) -> tuple[tuple[str, ...], str | None]:
    """Returns the TLS versions, oldest first, and the ciphers for TLS 1.2 in OpenSSL's format, or None for the
    default."""
    protocols = settings.value("ssl.enabled.protocols")
    suites = settings.value("ssl.cipher.suites")
    assert isinstance(protocols, tuple)
    assert isinstance(suites, tuple)
    versions = tuple(version for version in VERSIONS if version in protocols)
    if not versions:
        name = settings.name("ssl.enabled.protocols")
        raise UnusableTls(
            name, f"only {' and '.join(VERSIONS)} are supported, because older versions of TLS are insecure"
        )
    if not suites:
        return versions, None
    ciphers = before_tls_1_3(suites)
    if not ciphers:
        versions = tuple(version for version in versions if version != "TLSv1.2")
    if not TLS_1_3.intersection(suites):
        versions = tuple(version for version in versions if version != "TLSv1.3")
    if not versions:
        name = settings.name("ssl.cipher.suites")
        raise UnusableTls(
            name, f"none of these cipher suites belongs to a version in ssl.enabled.protocols={','.join(protocols)}"
        )
    return versions, ":".join(ciphers) or None


def _rules(settings: ListenerSettings) -> tuple[MappingRule, ...]:
    try:
        return parse_rules(settings.text("ssl.principal.mapping.rules") or "")
    except InvalidRule as error:
        raise UnusableTls(settings.name("ssl.principal.mapping.rules"), str(error)) from None


TLS_1_3 = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    }
)


def before_tls_1_3(suites: Sequence[str]) -> list[str]:
    """Returns OpenSSL's names for the TLS 1.2 cipher suites. Names already in OpenSSL's form remain unchanged."""
    return [_openssl_name(suite) for suite in suites if suite not in TLS_1_3]


def _openssl_name(suite: str) -> str:
    """Translates a cipher suite's name. For example, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 becomes
    ECDHE-RSA-AES256-GCM-SHA384."""
    exchange, separator, cipher = suite.partition("_WITH_")
    if not separator:
        return suite
    exchange = exchange.removeprefix("TLS_").replace("_", "-")
    cipher = cipher.removesuffix("_SHA256") if cipher.startswith("CHACHA20_POLY1305") else cipher
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("_", "-")
    return cipher if exchange == "RSA" else f"{exchange}-{cipher}"
