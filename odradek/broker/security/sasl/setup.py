"""From the settings of a SASL listener to what it offers, with messages that say what to correct. Shows no secrets."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odradek.broker.runtime.starting import CannotStart
from odradek.broker.security.sasl import plain
from odradek.broker.security.sasl.mechanism import Mechanism, Offer, Offers
from odradek.broker.security.sasl.requests import SaslRequests
from odradek.protocol.jaas import InvalidJaas, LoginModule, parse_login_module

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.configuration.listener_settings import ListenerSettings
    from odradek.broker.runtime.clock import Clock, Timers
    from odradek.broker.security.sasl.requests import Requests

ENABLED_MECHANISMS = "sasl.enabled.mechanisms"
JAAS_CONFIG = "sasl.jaas.config"
CALLBACK_HANDLER = "sasl.server.callback.handler.class"
MAX_REAUTH_MS = "connections.max.reauth.ms"
KEY_BYTES = 32
GSSAPI = "GSSAPI"


def sasl_requests(
    settings: ListenerSettings, config: BrokerConfig, offers: Offers, requests: Requests, clock: Clock, timers: Timers
) -> SaslRequests:
    """What answers the connections of a SASL listener."""
    return SaslRequests(
        requests,
        offers,
        clock,
        timers,
        failure_delay_ms=config.connection_failed_authentication_delay_ms,
        max_receive_bytes=_number(settings, "sasl.server.max.receive.size"),
        max_request_bytes=config.socket_request_max_bytes,
    )


def offers_of(settings: ListenerSettings) -> Offers:
    """The mechanisms of a SASL listener. Raises CannotStart."""
    names = settings.value(ENABLED_MECHANISMS)
    assert isinstance(names, tuple)
    if not names:
        raise CannotStart(f"listener {settings.listener} has no mechanism: name some in {_shown(settings)}")
    return {name: _offer(settings, name) for name in names}


def _offer(settings: ListenerSettings, name: str) -> Offer:
    build = BUILDERS.get(name)
    if name == GSSAPI:
        raise CannotStart(
            f"listener {settings.listener} asks for GSSAPI, which is Kerberos and is not served (it is what"
            f" {ENABLED_MECHANISMS} holds by default): set {_shown(settings)} to some of {', '.join(BUILDERS)}"
        )
    if build is None:
        raise CannotStart(
            f"listener {settings.listener} asks for the mechanism {name}, which does not exist here: set"
            f" {_shown(settings)} to some of {', '.join(BUILDERS)}"
        )
    max_reauth_ms = _number(settings, MAX_REAUTH_MS, name)
    return Offer(build(settings, _login_module(settings, name)), max_reauth_ms if max_reauth_ms > 0 else None)


def _login_module(settings: ListenerSettings, mechanism: str) -> LoginModule:
    name = settings.prefixed(JAAS_CONFIG, mechanism)
    text = settings.current_text(name)
    expected = LOGIN_MODULES[mechanism]
    if text is None:
        raise CannotStart(f"listener {settings.listener} offers {mechanism} and needs {name}={expected} required …;")
    try:
        module = parse_login_module(text)
    except InvalidJaas as error:
        raise CannotStart(f"{name}: {error}") from None
    if module.name != expected:
        raise CannotStart(f"{name} must name {expected}; other login modules are Java code, which does not run here")
    return module


def _plain(settings: ListenerSettings, module: LoginModule) -> Callable[[], Mechanism]:
    _refuse_own_code(settings, plain.NAME)
    accounts = plain.accounts(module.options, os.urandom(KEY_BYTES))
    return lambda: plain.PlainExchange(accounts)


def _refuse_own_code(settings: ListenerSettings, mechanism: str) -> None:
    name = settings.prefixed(CALLBACK_HANDLER, mechanism)
    if settings.current_text(name) is not None:
        raise CannotStart(f"{name} names Java code, which does not run here: remove it")


def _shown(settings: ListenerSettings) -> str:
    return settings.prefixed(ENABLED_MECHANISMS)


def _number(settings: ListenerSettings, name: str, mechanism: str | None = None) -> int:
    value = settings.value(name, mechanism)
    assert isinstance(value, int)
    return value


LOGIN_MODULES: Mapping[str, str] = {plain.NAME: plain.LOGIN_MODULE}
BUILDERS: Mapping[str, Callable[[ListenerSettings, LoginModule], Callable[[], Mechanism]]] = {plain.NAME: _plain}
