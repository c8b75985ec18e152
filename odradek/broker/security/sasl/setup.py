"""Sets up the mechanisms that SASL listeners offer, based on the settings. Error messages name the setting to correct
and contain no secrets.

The settings are read at startup, and again when AlterConfigs changes them. Changes apply to new exchanges; open
sessions continue until they are renewed. The OAUTHBEARER settings from startup remain in effect, because loading new
keys would block.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from odradek.broker.configuration.broker_settings import EFFECTIVE_SETTINGS
from odradek.broker.runtime.starting import CannotStart
from odradek.broker.security.sasl import oauthbearer as bearer
from odradek.broker.security.sasl import plain, scram
from odradek.broker.security.sasl.mechanism import Mechanism, Offer, Offers
from odradek.broker.security.sasl.oauthbearer import NAME as OAUTHBEARER
from odradek.broker.security.sasl.requests import RequestDispatch, SaslRequests
from odradek.broker.security.sasl.scram import TokenLogins
from odradek.protocol.java_properties import InvalidJaas, LoginModule, parse_login_module
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.scram import SCRAM_MECHANISMS

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.configuration.listener_settings import ListenerSettings
    from odradek.broker.runtime.clock import Clock, Timers
    from odradek.broker.runtime.workers import Workers
    from odradek.broker.security.sasl.credentials import ScramCredentials
    from odradek.broker.security.tokens.decisions import TokenRules
    from odradek.broker.security.tokens.image import DelegationTokens

ENABLED_MECHANISMS = "sasl.enabled.mechanisms"
JAAS_CONFIG = "sasl.jaas.config"
CALLBACK_HANDLER = "sasl.server.callback.handler.class"
MAX_REAUTH_MS = "connections.max.reauth.ms"
KEY_BYTES = 32
NONCE_BYTES = 16
GSSAPI = "GSSAPI"


def sasl_requests(
    settings: ListenerSettings,
    config: BrokerConfig,
    offers: Callable[[], Offers],
    requests: RequestDispatch,
    clock: Clock,
    timers: Timers,
    steady_clock: Clock,
) -> SaslRequests:
    """Creates the object that receives a SASL listener's requests."""
    return SaslRequests(
        requests,
        offers,
        clock,
        timers,
        steady_clock=steady_clock,
        failure_delay_ms=config.connection_failed_authentication_delay_ms,
        max_receive_bytes=_number(settings, "sasl.server.max.receive.size"),
        max_request_bytes=config.socket_request_max_bytes,
    )


@dataclass(frozen=True, slots=True)
class Accounts:
    """The sources of users for the mechanisms. The users are looked up at each login, when the data directory is
    already open.

    secret  the secret from which salts for unknown users are derived; a restart does not change it
    rules   the rules of the emulated release of Kafka
    """

    scram_credentials: Callable[[], ScramCredentials]
    delegation_tokens: Callable[[], DelegationTokens]
    token_rules: TokenRules | None
    secret: Callable[[], bytes]
    workers: Workers
    timers: Timers
    rules: KafkaRules = NEWEST


def offers_of(settings: ListenerSettings, accounts: Accounts, retained: Offers | None = None) -> Offers:
    """Returns a SASL listener's mechanisms. Raises CannotStart. Mechanisms in `retained` are not set up again."""
    names = settings.value(ENABLED_MECHANISMS)
    assert isinstance(names, tuple)
    if not names:
        raise CannotStart(
            f"listener {settings.listener} has no SASL mechanism: list at least one in {_quoted_source(settings)}"
        )
    retained = retained or {}
    return {name: retained[name] if name in retained else _offer(settings, name, accounts) for name in names}


def _offer(settings: ListenerSettings, name: str, accounts: Accounts) -> Offer:
    build = BUILDERS.get(name)
    if name == GSSAPI:
        raise CannotStart(
            f"listener {settings.listener} enables GSSAPI (Kerberos), which is not supported (it is the default of"
            f" {ENABLED_MECHANISMS}): set {_quoted_source(settings)} to one or more of {', '.join(BUILDERS)}"
        )
    if build is None:
        raise CannotStart(
            f"listener {settings.listener} enables the mechanism {name}, which is not supported: set"
            f" {_quoted_source(settings)} to one or more of {', '.join(BUILDERS)}"
        )
    max_reauth_ms = _number(settings, MAX_REAUTH_MS, name)
    begin = build(name, settings, _login_module(settings, name), accounts)
    return Offer(begin, max_reauth_ms if max_reauth_ms > 0 else None)


def _login_module(settings: ListenerSettings, mechanism: str) -> LoginModule:
    name = settings.prefixed(JAAS_CONFIG, mechanism)
    text = settings.current_text(name)
    expected = LOGIN_MODULES[mechanism]
    if text is None:
        raise CannotStart(f"listener {settings.listener} offers {mechanism}: set {name}={expected} required …;")
    try:
        module = parse_login_module(text)
    except InvalidJaas as error:
        raise CannotStart(f"{name}: {error}") from None
    if module.name != expected:
        raise CannotStart(f"{name} must name {expected}; other login modules are Java classes, which cannot run here")
    return module


def _plain(name: str, settings: ListenerSettings, module: LoginModule, accounts: Accounts) -> Callable[[], Mechanism]:
    _refuse_own_code(settings, name)
    passwords = plain.accounts(module.options, os.urandom(KEY_BYTES))
    return lambda: plain.PlainExchange(passwords)


def _scram(name: str, settings: ListenerSettings, module: LoginModule, accounts: Accounts) -> Callable[[], Mechanism]:
    _refuse_own_code(settings, name)
    mechanism = SCRAM_MECHANISMS[name]
    rules = accounts.token_rules
    tokens = None if rules is None else TokenLogins(mechanism, rules, accounts.delegation_tokens)
    identities = scram.UsersOfImage(mechanism, accounts.scram_credentials, tokens)
    return lambda: scram.ScramExchange(mechanism, identities, accounts.secret(), _new_nonce)


def _oauthbearer(
    name: str, settings: ListenerSettings, module: LoginModule, accounts: Accounts
) -> Callable[[], Mechanism]:
    from odradek.broker.security.sasl.oauthbearer_setup import oauthbearer

    return oauthbearer(settings, module, accounts.workers, accounts.timers, accounts.rules)


def _new_nonce() -> str:
    return os.urandom(NONCE_BYTES).hex()


def _refuse_own_code(settings: ListenerSettings, mechanism: str) -> None:
    name = settings.prefixed(CALLBACK_HANDLER, mechanism)
    if settings.current_text(name) is not None:
        raise CannotStart(f"{name} names a Java class, which cannot run here: remove this setting")


def _quoted_source(settings: ListenerSettings) -> str:
    return settings.prefixed(ENABLED_MECHANISMS)


def _number(settings: ListenerSettings, name: str, mechanism: str | None = None) -> int:
    value = settings.value(name, mechanism)
    assert isinstance(value, int)
    return value


Build: TypeAlias = Callable[[str, "ListenerSettings", LoginModule, Accounts], Callable[[], Mechanism]]

LOGIN_MODULES: Mapping[str, str] = {
    plain.NAME: plain.LOGIN_MODULE,
    bearer.NAME: bearer.LOGIN_MODULE,
    **dict.fromkeys(SCRAM_MECHANISMS, scram.LOGIN_MODULE),
}
BUILDERS: Mapping[str, Build] = {
    plain.NAME: _plain,
    **dict.fromkeys(SCRAM_MECHANISMS, _scram),
    bearer.NAME: _oauthbearer,
}


log = logging.getLogger("odradek.sasl")

SETTINGS = (MAX_REAUTH_MS, *sorted(name for name in EFFECTIVE_SETTINGS if name.startswith("sasl.")))
Texts: TypeAlias = tuple[str | None, ...]


class SaslListeners:
    def __init__(self, config: BrokerConfig, listeners: Iterable[str], accounts: Accounts) -> None:
        """Sets up all SASL listeners. Raises CannotStart."""
        self._config = config
        self._accounts = accounts
        self._offers: dict[str, Offers] = {
            name: offers_of(config.listener_settings(name), accounts) for name in listeners
        }
        self._texts = {name: self._texts_of(name) for name in self._offers}

    def __contains__(self, listener: str) -> bool:
        return listener in self._offers

    def offers(self, listener: str) -> Offers:
        return self._offers[listener]

    def refresh(self) -> None:
        """Applies changed settings. If a listener's new settings are invalid, the listener keeps its mechanisms, and a
        warning is logged."""
        for name, offers in self._offers.items():
            texts = self._texts_of(name)
            if texts == self._texts[name]:
                continue
            self._texts[name] = texts
            retained = {mechanism: offer for mechanism, offer in offers.items() if mechanism == OAUTHBEARER}
            try:
                self._offers[name] = offers_of(self._config.listener_settings(name), self._accounts, retained)
            except CannotStart as error:
                log.warning(
                    "listener %s keeps its mechanisms, because the new settings cannot be used: %s", name, error
                )

    def _texts_of(self, listener: str) -> Texts:
        settings = self._config.listener_settings(listener)
        mechanisms = (None, *BUILDERS)
        jaas = (settings.current_text(settings.prefixed(JAAS_CONFIG, mechanism)) for mechanism in BUILDERS)
        return (*(settings.text(name, mechanism) for name in SETTINGS for mechanism in mechanisms), *jaas)
