"""The settings of every client that say how it reaches a secured broker."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

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
