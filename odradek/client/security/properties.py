"""Translates the security properties of Kafka's Java client and of librdkafka into settings of this client.

Properties that configure bearer tokens become callables, which can be pickled and sent to another process.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from odradek.client.security.settings import OAUTHBEARER, SecuritySettings
from odradek.protocol.java_properties import InvalidJaas, LoginModule, parse_login_module

TIMEOUT_S = 30
MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    """Creates unsigned tokens for development, like Kafka's OAuthBearerUnsecuredLoginCallbackHandler."""

    claims: Mapping[str, str]
    lifetime_s: int = 3600

    def __call__(self) -> str:
        now = int(time.time())
        claims = {**self.claims, "iat": now, "exp": now + self.lifetime_s}
        return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """Requests tokens with the client credentials grant (KIP-768), or reads them from the file that a `file:` URL
    names. Every login requests or reads the token again."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str | None = None

    def __call__(self) -> str:
        """Returns a token. Raises OSError if the server cannot be reached or refuses the request, and ValueError if its
        response contains no token."""
        scheme = urlsplit(self.url).scheme
        if scheme not in ("http", "https", "file"):
            raise ValueError(f"the token endpoint must be an http, https or file URL, not {scheme!r}")
        if scheme == "file":
            with urlopen(self.url) as file:
                return str(file.read(MAX_BYTES).decode()).strip()
        grant = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        request = Request(self.url, urlencode(grant).encode())
        secret = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        request.add_header("Authorization", f"Basic {secret}")
        request.add_header("Accept", "application/json")
        try:
            with urlopen(request, timeout=TIMEOUT_S) as answer:
                found = json.loads(answer.read(MAX_BYTES))
        except HTTPError as refused:  # leaves out the body, which may contain the secret
            raise OSError(f"{self.url} answered {refused.code} {refused.reason}") from None
        if not isinstance(found, dict) or not isinstance(found.get("access_token"), str):
            raise ValueError(f"{self.url} answered without an access_token")
        return str(found["access_token"])


def _encoded(value: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


# Properties whose values need no conversion, mapped to the names of this client's settings. Java's names come first,
# followed by librdkafka's names.
_UNCONVERTED: Mapping[str, str] = {
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
# Properties that select a Java class or a method of librdkafka. This client ignores them.
_MEANINGLESS = (
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
        *_UNCONVERTED,
        *_PASSWORDS,
        *_STORE_TYPES,
        *_OAUTH,
        *_MEANINGLESS,
    }
)
MODULES = ("PlainLoginModule", "ScramLoginModule", "OAuthBearerLoginModule")


def is_of_security(name: str) -> bool:
    """Returns whether the property concerns security. The result is also True for security properties that this client
    does not support."""
    return name.startswith(("security.", "sasl.", "ssl."))


def security_settings(properties: Mapping[str, str], prefix: str = "") -> SecuritySettings:
    """Converts these properties to settings. Ignores all properties that do not concern security. Contradictory
    settings are only detected later, by the client.

    prefix   prefix of the property names in messages

    Raises ValueError for an unknown security property, and for invalid values.
    """
    given = {name: value for name, value in properties.items() if is_of_security(name)}
    if unknown := sorted(given.keys() - PROPERTIES):
        raise ValueError(f"{prefix}{unknown[0]} is not supported; the supported security settings are {_listed()}")
    settings: SecuritySettings = {"security_protocol": given.get("security.protocol", "PLAINTEXT").upper()}
    if settings["security_protocol"].endswith("SSL"):
        _add_tls(given, settings)
    if settings["security_protocol"].startswith("SASL"):
        _add_sasl(given, settings)
    return settings


def _listed() -> str:
    return ", ".join(sorted(PROPERTIES - {*_MEANINGLESS}))


def _add_tls(given: Mapping[str, str], settings: SecuritySettings) -> None:
    for name in _STORE_TYPES:
        if given.get(name, "").upper() == "JKS":
            raise ValueError(
                f"{name} must be PEM or PKCS12: convert the store with keytool -importkeystore … -deststoretype PKCS12"
            )
        if given.get(name, "PEM").upper() not in ("PEM", "PKCS12"):
            raise ValueError(f"{name} must be PEM or PKCS12, not {given[name]!r}")
    _take(given, settings, "ssl")
    password = next((given[name] for name in _PASSWORDS if given.get(name)), None)
    if password is not None:
        settings["ssl_password"] = password
    key = given.get("ssl.keystore.key") or given.get("ssl.key.pem")
    chain = given.get("ssl.keystore.certificate.chain") or given.get("ssl.certificate.pem")
    if (key is None) != (chain is None):
        raise ValueError("ssl.keystore.key and ssl.keystore.certificate.chain must be set together")
    if key is not None and chain is not None:
        settings["ssl_certdata"] = f"{key.strip()}\n{chain}"
    algorithm = given.get(_IDENTIFICATION, "https").strip().lower()
    if algorithm not in ("https", "", "none"):
        raise ValueError(f"{_IDENTIFICATION} must be https, or empty to turn the check off, not {algorithm!r}")
    settings["ssl_check_hostname"] = algorithm == "https"


def _take(given: Mapping[str, str], settings: SecuritySettings, prefix: str) -> None:
    for name, own in _UNCONVERTED.items():
        if name.startswith(prefix) and given.get(name):
            settings[own] = given[name]  # type: ignore[literal-required]  # the table has names of settings


@dataclass(frozen=True, slots=True)
class Login:
    """The login module's options in `sasl.jaas.config`; empty if the property is not set."""

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
            raise ValueError(f"sasl.jaas.config: the login module must be one of {', '.join(MODULES)}, not {name}")
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
            f"{mechanism} needs sasl.jaas.config with username and password, or sasl.username and sasl.password"
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
        raise ValueError("OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url, or unsecuredLoginStringClaim_sub")
    start = "sasl.oauthbearer.client."
    client_id = given.get(f"{start}credentials.client.id") or given.get(f"{start}id") or login.get("clientId")
    secret = given.get(f"{start}credentials.client.secret") or given.get(f"{start}secret") or login.get("clientSecret")
    scope = given.get("sasl.oauthbearer.scope") or login.get("scope")
    settings["sasl_token"] = TokenEndpoint(url, client_id or "", secret or "", scope)
