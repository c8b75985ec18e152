"""The settings of every client that say how it reaches a secured broker; and Kafka's properties for that, of the Java
client and of librdkafka, as such settings.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from odradek.client.security.sasl import TokenEndpoint, UnsecuredTokens
from odradek.protocol.jaas import InvalidJaas, LoginModule, parse_login_module

if TYPE_CHECKING:
    from odradek.client.security.sasl import SaslExchange

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
MECHANISMS = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
TokenCallback = Callable[[], str | Awaitable[str]]


class SecuritySettings(TypedDict, total=False):
    """
    security_protocol   PLAINTEXT (the default), SSL, SASL_PLAINTEXT or SASL_SSL
    ssl_cafile          the certificates that are trusted: PEM, or PKCS12 with `ssl_capassword`. By default those of
                        the system
    ssl_cadata          the same as PEM text
    ssl_certfile        the client's own certificate with its chain, and its key unless `ssl_keyfile` has it: PEM or
                        PKCS12
    ssl_certdata        the same as PEM text
    ssl_keyfile         the key, PEM
    ssl_password        of an encrypted key, or of the PKCS12 file
    ssl_check_hostname  whether the broker's certificate has to be one for the address that was asked; True by default
    ssl_context         a context of your own, in place of all other `ssl_` settings but `ssl_check_hostname`
    sasl_mechanism      PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER
    sasl_username, sasl_password     for PLAIN and SCRAM
    sasl_token          for OAUTHBEARER: a function that returns a token, or a coroutine function. It is called for each
                        login; a function runs in a thread, so it may ask a server
    sasl_extensions     sent along with SCRAM (`{"tokenauth": "true"}` with a delegation token) or OAUTHBEARER
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
    """Settings that were checked. `repr` shows no secret."""

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
        """Raises ValueError for settings that contradict one another."""
        if self.security_protocol not in PROTOCOLS:
            raise ValueError(f"security_protocol is one of {', '.join(PROTOCOLS)}, not {self.security_protocol!r}")
        self._check_tls()
        self._check_sasl()

    @classmethod
    def of(cls, settings: SecuritySettings) -> Security:
        """Raises ValueError, and TypeError for a setting that no client has."""
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
        """Read from the files when it is first asked for. Raises ValueError for files that are not what they should
        be, OSError for those that cannot be read."""
        if not self.has_tls:
            return None
        if self.ssl_context is not None:
            return self.ssl_context
        from odradek.client.security.tls import client_context

        return client_context(self)

    def exchange(self, nonce: str, token: str | None) -> SaslExchange:
        """A login; `token` is what `sasl_token` returned."""
        # Here: it takes 5 ms to import, and most brokers of developers want no login.
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
            raise ValueError(f"{given[0]} is set, but security_protocol={self.security_protocol!r} does without TLS")
        if self.ssl_context is not None and len(given) > 1:
            raise ValueError(f"ssl_context takes the place of {given[0]}: set one of them")
        for one, other in (("ssl_cafile", "ssl_cadata"), ("ssl_certfile", "ssl_certdata")):
            if one in given and other in given:
                raise ValueError(f"set {one} or {other}, not both")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ValueError("ssl_keyfile takes an ssl_certfile")

    def _check_sasl(self) -> None:
        mechanism = self.sasl_mechanism
        if not self.has_sasl:
            if mechanism is not None:
                raise ValueError(
                    f"sasl_mechanism is set, but security_protocol={self.security_protocol!r} does without SASL"
                )
            return
        if mechanism is None:
            raise ValueError(f"security_protocol={self.security_protocol!r} takes a sasl_mechanism")
        if mechanism == "GSSAPI":
            raise ValueError("Kerberos (GSSAPI) is not supported: ask for a SCRAM or OAUTHBEARER listener")
        if mechanism not in MECHANISMS:
            raise ValueError(f"sasl_mechanism is one of {', '.join(MECHANISMS)}, not {mechanism!r}")
        if mechanism == OAUTHBEARER:
            if self.sasl_token is None:
                raise ValueError("OAUTHBEARER takes sasl_token, a function that returns a token")
        elif not self.sasl_username or self.sasl_password is None:
            raise ValueError(f"{mechanism} takes sasl_username and sasl_password")
        if mechanism != OAUTHBEARER:
            self.exchange("nonce", None)  # raises ValueError for what the mechanism cannot carry


NO_SECURITY = Security()


# Kafka's name → the client's, where the value is taken as it is. Below librdkafka's names.
_AS_IT_IS: Mapping[str, str] = {
    "ssl.truststore.location": "ssl_cafile",
    "ssl.truststore.password": "ssl_capassword",
    "ssl.truststore.certificates": "ssl_cadata",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.ca.location": "ssl_cafile",
    "ssl.ca.pem": "ssl_cadata",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "sasl.username": "sasl_username",
    "sasl.password": "sasl_password",
}
_PASSWORDS = ("ssl.key.password", "ssl.keystore.password")
_STORE_TYPES = ("ssl.keystore.type", "ssl.truststore.type")
_IDENTIFICATION = "ssl.endpoint.identification.algorithm"
_OAUTH = (
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
)
# Which Java class does it, or librdkafka's way: here one way serves all.
_WITHOUT_MEANING = (
    "sasl.login.callback.handler.class",
    "sasl.client.callback.handler.class",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.method",
)
PROPERTIES = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.jaas.config",
        _IDENTIFICATION,
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.pem",
        "ssl.certificate.pem",
        *_AS_IT_IS,
        *_PASSWORDS,
        *_STORE_TYPES,
        *_OAUTH,
        *_WITHOUT_MEANING,
    }
)
MODULES = ("PlainLoginModule", "ScramLoginModule", "OAuthBearerLoginModule")


def is_of_security(name: str) -> bool:
    """Whether a property has to do with it, known or not."""
    return name.startswith(("security.", "sasl.", "ssl."))


def security_settings(properties: Mapping[str, str], prefix: str = "") -> SecuritySettings:
    """Properties that have nothing to do with security are left alone. What contradicts one another is noticed by the
    client itself.

    prefix   what the names had in front of them, for messages

    Raises ValueError for a property of security that is unknown, and for values that mean nothing.
    """
    given = {name: value for name, value in properties.items() if is_of_security(name)}
    if unknown := sorted(given.keys() - PROPERTIES):
        raise ValueError(f"{prefix}{unknown[0]} is not supported; the settings of security are {_listed()}")
    settings: SecuritySettings = {"security_protocol": given.get("security.protocol", "PLAINTEXT").upper()}
    if settings["security_protocol"].endswith("SSL"):
        _add_tls(given, settings)
    if settings["security_protocol"].startswith("SASL"):
        _add_sasl(given, settings)
    return settings


def _listed() -> str:
    return ", ".join(sorted(PROPERTIES - {*_WITHOUT_MEANING}))


def _add_tls(given: Mapping[str, str], settings: SecuritySettings) -> None:
    for name in _STORE_TYPES:
        if given.get(name, "").upper() == "JKS":
            raise ValueError(f"{name} is PEM or PKCS12 here: keytool -importkeystore … -deststoretype PKCS12 makes one")
        if given.get(name, "PEM").upper() not in ("PEM", "PKCS12"):
            raise ValueError(f"{name} is PEM or PKCS12, not {given[name]!r}")
    _take(given, settings, "ssl")
    password = next((given[name] for name in _PASSWORDS if given.get(name)), None)
    if password is not None:
        settings["ssl_password"] = password
    key = given.get("ssl.keystore.key") or given.get("ssl.key.pem")
    chain = given.get("ssl.keystore.certificate.chain") or given.get("ssl.certificate.pem")
    if (key is None) != (chain is None):
        raise ValueError("ssl.keystore.key and ssl.keystore.certificate.chain go together")
    if key is not None and chain is not None:
        settings["ssl_certdata"] = f"{key.strip()}\n{chain}"
    algorithm = given.get(_IDENTIFICATION, "https").strip().lower()
    if algorithm not in ("https", "", "none"):
        raise ValueError(f"{_IDENTIFICATION} is https, or empty to switch the check off, not {algorithm!r}")
    settings["ssl_check_hostname"] = algorithm == "https"


def _take(given: Mapping[str, str], settings: SecuritySettings, prefix: str) -> None:
    for name, own in _AS_IT_IS.items():
        if name.startswith(prefix) and given.get(name):
            settings[own] = given[name]  # type: ignore[literal-required]  # the table has names of settings


@dataclass(frozen=True, slots=True)
class Login:
    """What the JAAS text says; empty without one."""

    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, text: str | None) -> Login:
        if text is None:
            return cls()
        try:
            module: LoginModule = parse_login_module(text)
        except InvalidJaas as error:
            raise ValueError(f"sasl.jaas.config: {error}") from None
        name = module.name.rpartition(".")[2]
        if name not in MODULES:
            raise ValueError(f"sasl.jaas.config: the login module is one of {', '.join(MODULES)}, not {name}")
        return cls(module.options)


def _add_sasl(given: Mapping[str, str], settings: SecuritySettings) -> None:
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms")
    if mechanism is None:
        raise ValueError("sasl.mechanism is missing (Kafka's default, GSSAPI, is not supported)")
    settings["sasl_mechanism"] = mechanism
    login = Login.read(given.get("sasl.jaas.config")).options
    if mechanism == OAUTHBEARER:
        _add_tokens(given, login, settings)
        return
    _take(given, settings, "sasl")
    if "username" in login:
        settings["sasl_username"] = login["username"]
    if "password" in login:
        settings["sasl_password"] = login["password"]
    if login.get("tokenauth", "false").lower() == "true":
        settings["sasl_extensions"] = {"tokenauth": "true"}
    if not settings.get("sasl_username") or settings.get("sasl_password") is None:
        raise ValueError(
            f"{mechanism} takes sasl.jaas.config with username and password, or sasl.username and -password"
        )


def _add_tokens(given: Mapping[str, str], login: Mapping[str, str], settings: SecuritySettings) -> None:
    settings["sasl_extensions"] = {
        name.removeprefix("extension_"): value for name, value in login.items() if name.startswith("extension_")
    }
    claims = {
        name.removeprefix("unsecuredLoginStringClaim_"): value
        for name, value in login.items()
        if name.startswith("unsecuredLoginStringClaim_")
    }
    if claims:
        settings["sasl_token"] = UnsecuredTokens(claims, int(login.get("unsecuredLoginLifetimeSeconds", "3600")))
        return
    url = given.get("sasl.oauthbearer.token.endpoint.url")
    if url is None:
        raise ValueError("OAUTHBEARER takes sasl.oauthbearer.token.endpoint.url, or unsecuredLoginStringClaim_sub")
    start = "sasl.oauthbearer.client."
    client_id = given.get(f"{start}credentials.client.id") or given.get(f"{start}id") or login.get("clientId")
    secret = given.get(f"{start}credentials.client.secret") or given.get(f"{start}secret") or login.get("clientSecret")
    scope = given.get("sasl.oauthbearer.scope") or login.get("scope")
    settings["sasl_token"] = TokenEndpoint(url, client_id or "", secret or "", scope)
