"""From the settings of a listener to the validator of its OAUTHBEARER tokens. Shows no secrets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.runtime.starting import CannotStart
from odradek.broker.security.sasl import tokens_signed, tokens_unsecured
from odradek.broker.security.sasl.claims import Rules
from odradek.broker.security.sasl.key_source import KeySource, reader_of
from odradek.broker.security.sasl.oauthbearer import NAME, OAuthBearerExchange, Validator
from odradek.broker.security.sasl.tokens_signed import SignedValidator
from odradek.broker.security.sasl.tokens_unsecured import UnsecuredValidator

if TYPE_CHECKING:
    from odradek.broker.configuration.listener_settings import ListenerSettings
    from odradek.broker.runtime.clock import Timers
    from odradek.broker.runtime.workers import Workers
    from odradek.broker.security.sasl.mechanism import Mechanism
    from odradek.protocol.java_properties import LoginModule

log = logging.getLogger("odradek.sasl")

CALLBACK_HANDLER = "sasl.server.callback.handler.class"
URL = "sasl.oauthbearer.jwks.endpoint.url"
OPTION = "unsecuredValidator"  # how the options of a login module begin that are for the validator


def oauthbearer(
    settings: ListenerSettings, module: LoginModule, workers: Workers, timers: Timers
) -> Callable[[], Mechanism]:
    """Waits for the JWKS, if there is one. Raises CannotStart."""
    name = settings.prefixed(CALLBACK_HANDLER, NAME)
    handler = settings.current_text(name)
    url = settings.text(URL, NAME)
    validator: Validator
    if handler == tokens_signed.HANDLER:
        validator = _signed(settings, url, workers, timers)
    elif handler in (None, tokens_unsecured.HANDLER):
        if url is not None:
            raise CannotStart(
                f"listener {settings.listener}: {settings.name(URL, NAME)} is set, and signatures would not be checked:"
                f" set {name}={tokens_signed.HANDLER}"
            )
        validator = _unsecured(settings, module)
    else:
        raise CannotStart(
            f"{name} names Java code, which does not run here: {tokens_signed.HANDLER} and {tokens_unsecured.HANDLER}"
            " are known"
        )
    return lambda: OAuthBearerExchange(validator)


def _unsecured(settings: ListenerSettings, module: LoginModule) -> UnsecuredValidator:
    log.warning(
        "listener %s takes OAUTHBEARER tokens without signatures: whoever can connect is who it says. For development"
        " only; %s=%s checks signatures",
        settings.listener,
        settings.prefixed(CALLBACK_HANDLER, NAME),
        tokens_signed.HANDLER,
    )
    options = module.options
    skew_ms = options.get(f"{OPTION}AllowableClockSkewMs", "0")
    if not (skew_ms.isascii() and skew_ms.isdecimal()):
        raise CannotStart(f"{OPTION}AllowableClockSkewMs must be a number of milliseconds")
    return UnsecuredValidator(
        Rules(
            name_claim=options.get(f"{OPTION}PrincipalClaimName", "sub"),
            scope_claim=options.get(f"{OPTION}ScopeClaimName", "scope"),
            skew_ms=int(skew_ms),
            required_scope=tuple(options.get(f"{OPTION}RequiredScope", "").split()),
        )
    )


def _signed(settings: ListenerSettings, url: str | None, workers: Workers, timers: Timers) -> SignedValidator:
    if url is None:
        raise CannotStart(f"listener {settings.listener} checks signatures and needs {settings.prefixed(URL, NAME)}")
    try:
        source = KeySource(
            reader_of(url),
            workers,
            timers,
            refresh_ms=_number(settings, "sasl.oauthbearer.jwks.endpoint.refresh.ms"),
            retry_ms=_number(settings, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
            max_retry_ms=_number(settings, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        )
    except (ValueError, OSError) as error:
        raise CannotStart(f"{settings.name(URL, NAME)}: the keys at {url} cannot be read: {error}") from None
    audience = settings.value("sasl.oauthbearer.expected.audience", NAME)
    assert isinstance(audience, tuple)
    rules = Rules(
        name_claim=settings.text("sasl.oauthbearer.sub.claim.name", NAME) or "sub",
        scope_claim=settings.text("sasl.oauthbearer.scope.claim.name", NAME) or "scope",
        skew_ms=1000 * _number(settings, "sasl.oauthbearer.clock.skew.seconds"),
        needs_issued_at=True,
        heeds_not_before=True,
        audience=audience,
        issuer=settings.text("sasl.oauthbearer.expected.issuer", NAME),
        refuses_repeated_scope=True,
    )
    return SignedValidator(lambda: source.keys, source.key_missed, rules)


def _number(settings: ListenerSettings, name: str) -> int:
    value = settings.value(name, NAME)
    assert isinstance(value, int)
    return value
