"""Creates the validator for a listener's OAUTHBEARER tokens from its settings and loads the keys for signed tokens.

The keys are a JWKS in a file or at a URL. They are read at startup, and periodically in a thread. If reading fails, the
old keys remain in use. A token that names an unknown key triggers an early read, unless there has been a recent early
read. Error messages name the setting to correct and contain no secrets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from odradek.broker.runtime.clock import Scan
from odradek.broker.runtime.starting import CannotStart
from odradek.broker.security.sasl import tokens_signed
from odradek.broker.security.sasl.oauthbearer import (
    NAME,
    UNSECURED_HANDLER,
    ClaimRules,
    OAuthBearerExchange,
    UnsecuredValidator,
    Validator,
)
from odradek.broker.security.sasl.tokens_signed import InvalidKeySet, SignedValidator, VerificationKey, read_key_set
from odradek.protocol.kafka_rules import NEWEST, KafkaRules

if TYPE_CHECKING:
    from ssl import SSLContext

    from odradek.broker.configuration.listener_settings import ListenerSettings
    from odradek.broker.runtime.clock import TimerHandle, Timers
    from odradek.broker.runtime.workers import JobResult, Workers
    from odradek.broker.security.sasl.mechanism import Mechanism
    from odradek.protocol.java_properties import LoginModule

log = logging.getLogger("odradek.sasl")

CALLBACK_HANDLER = "sasl.server.callback.handler.class"
URL = "sasl.oauthbearer.jwks.endpoint.url"
OPTION = "unsecuredValidator"  # prefix of the login module's options for the validator


def oauthbearer(
    settings: ListenerSettings, module: LoginModule, workers: Workers, timers: Timers, rules: KafkaRules = NEWEST
) -> Callable[[], Mechanism]:
    """Returns a factory of exchanges. Blocks until the JWKS has been read, if one is configured. Raises CannotStart."""
    name = settings.prefixed(CALLBACK_HANDLER, NAME)
    handler = settings.current_text(name)
    url = settings.text(URL, NAME)
    validator: Validator
    if handler == tokens_signed.HANDLER:
        validator = _signed(settings, url, workers, timers, rules)
    elif handler in (None, UNSECURED_HANDLER):
        if url is not None:
            raise CannotStart(
                f"listener {settings.listener}: {settings.name(URL, NAME)} is set, but signatures are not checked:"
                f" set {name}={tokens_signed.HANDLER}"
            )
        validator = _unsecured(settings, module)
    else:
        raise CannotStart(
            f"{name} names a Java class, which cannot run here: set it to {tokens_signed.HANDLER} or"
            f" {UNSECURED_HANDLER}"
        )
    return lambda: OAuthBearerExchange(validator)


def _unsecured(settings: ListenerSettings, module: LoginModule) -> UnsecuredValidator:
    log.warning(
        "listener %s accepts OAUTHBEARER tokens without signatures, so clients can claim any name. This is for"
        " development only: set %s=%s to check signatures",
        settings.listener,
        settings.prefixed(CALLBACK_HANDLER, NAME),
        tokens_signed.HANDLER,
    )
    options = module.options
    skew_ms = options.get(f"{OPTION}AllowableClockSkewMs", "0")
    if not (skew_ms.isascii() and skew_ms.isdecimal()):
        raise CannotStart(f"{OPTION}AllowableClockSkewMs must be a number of milliseconds")
    return UnsecuredValidator(
        ClaimRules(
            name_claim=options.get(f"{OPTION}PrincipalClaimName", "sub"),
            scope_claim=options.get(f"{OPTION}ScopeClaimName", "scope"),
            skew_ms=int(skew_ms),
            required_scope=tuple(options.get(f"{OPTION}RequiredScope", "").split()),
        )
    )


def _require_claims(settings: ListenerSettings) -> None:
    """Checks that the configuration specifies the expected audience and issuer of tokens, or explicitly allows tokens
    with any audience or issuer. Raises CannotStart.

    Source: docs/spec/kafka-4.4.md#s5-6
    """
    for claim, example in (("audience", "the name of this cluster"), ("issuer", "the issuer's URL")):
        expected, waiver = f"sasl.oauthbearer.expected.{claim}", f"sasl.oauthbearer.allow.unverified.{claim}"
        if not settings.value(expected, NAME) and settings.value(waiver, NAME) is not True:
            raise CannotStart(
                f"listener {settings.listener} would accept tokens of any {claim}: set"
                f" {settings.prefixed(expected, NAME)} to {example}, or {settings.prefixed(waiver, NAME)}=true to allow"
                " it, as Kafka 4.3 did by default"
            )


def _signed(
    settings: ListenerSettings, url: str | None, workers: Workers, timers: Timers, rules: KafkaRules
) -> SignedValidator:
    if url is None:
        raise CannotStart(f"listener {settings.listener} checks signatures: set {settings.prefixed(URL, NAME)}")
    if rules >= KafkaRules.KAFKA_4_4:
        _require_claims(settings)
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
    claims = ClaimRules(
        name_claim=settings.text("sasl.oauthbearer.sub.claim.name", NAME) or "sub",
        scope_claim=settings.text("sasl.oauthbearer.scope.claim.name", NAME) or "scope",
        skew_ms=1000 * _number(settings, "sasl.oauthbearer.clock.skew.seconds"),
        needs_issued_at=True,
        checks_not_before=True,
        audience=audience,
        issuer=settings.text("sasl.oauthbearer.expected.issuer", NAME),
        refuses_repeated_scope=True,
    )
    return SignedValidator(lambda: source.keys, source.key_missed, claims)


def _number(settings: ListenerSettings, name: str) -> int:
    value = settings.value(name, NAME)
    assert isinstance(value, int)
    return value


B = TypeVar("B", bytes, bytearray)

log = logging.getLogger("odradek.sasl")

TIMEOUT_S = 10.0  # time limit for reading the complete JWKS
MAX_BYTES = 1 << 20
SCHEMES = ("file", "http", "https")


def reader_of(url: str, timeout_s: float = TIMEOUT_S) -> Callable[[], bytes]:
    """Returns a function that reads a URL's contents. That function may block, and may raise OSError. Raises ValueError
    if the URL's scheme is not supported."""
    scheme, _, path, *_ = urlsplit(url)
    if scheme not in SCHEMES:
        raise ValueError(f"the scheme of the URL is not one of {', '.join(SCHEMES)}")

    def read_file() -> bytes:
        with Path(unquote(path)).open("rb") as file:
            return _check_limit(file.read(MAX_BYTES + 1))

    def read_url() -> bytes:
        # asyncio.run needs a thread without a running event loop, and the first read blocks the broker's loop.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, _fetch(url, timeout_s)).result()

    return read_file if scheme == "file" else read_url


async def _fetch(url: str, timeout_s: float) -> bytes:
    """Fetches a URL. Raises OSError. The time limit applies to the whole response, so a server cannot extend it by
    sending slowly."""
    from aiohttp import ClientError, ClientSession, ClientTimeout

    trusted = _trusted_authorities() if url.startswith("https:") else True
    try:
        async with (
            ClientSession(timeout=ClientTimeout(total=timeout_s), trust_env=True) as session,
            session.get(url, ssl=trusted, raise_for_status=True) as response,
        ):
            found = bytearray()
            async for piece in response.content.iter_any():
                found += piece
                _check_limit(found)
            return bytes(found)
    except TimeoutError:
        raise OSError(f"no complete answer within {timeout_s:g} s") from None
    except ClientError as error:
        raise OSError(str(error)) from error


def _trusted_authorities() -> SSLContext:
    """Loads the system's trusted certificate authorities. They are loaded for each read, because they may change while
    the broker is running.

    In Python 3.13 and later, `create_default_context` rejects certificates that lack the key identifiers of RFC 5280,
    whereas Kafka accepts them.
    """
    from ssl import PROTOCOL_TLS_CLIENT, SSLContext

    context = SSLContext(PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    return context


def _check_limit(found: B) -> B:
    if len(found) > MAX_BYTES:
        raise OSError(f"the answer has more than {MAX_BYTES} bytes")
    return found


class KeySource:
    """Reads the keys periodically. `keys` contains the current keys. Only the loop thread may use this object.

    refresh_ms    time between reads
    retry_ms      delay after a failed read, doubled after each subsequent failure
    max_retry_ms  maximum of that delay, and minimum time between early reads
    """

    def __init__(
        self,
        read: Callable[[], bytes],
        workers: Workers,
        timers: Timers,
        *,
        refresh_ms: int,
        retry_ms: int,
        max_retry_ms: int,
    ) -> None:
        """Reads the keys for the first time, which blocks. Raises OSError or InvalidKeySet."""
        self.keys: tuple[VerificationKey, ...] = read_key_set(read())
        self._warn_about_missing()
        self._read = read
        self._workers = workers
        self._timers = timers
        self._refresh_ms = refresh_ms
        self._first_retry_ms = self._retry_ms = retry_ms
        self._max_retry_ms = max_retry_ms
        self._is_reading = False
        self._may_be_early = True
        self._timer = self._refresh_later(refresh_ms)

    def _refresh_later(self, delay_ms: int) -> TimerHandle:
        """Sets the timer for the next read. When a test moves its clock ahead, the read is skipped, because the keys do
        not depend on the clock."""
        return self._timers.after(delay_ms, Scan(self._refresh, delay_ms, lambda: None))

    def _warn_about_missing(self) -> None:
        if not self.keys:
            log.warning("the JWKS for OAUTHBEARER contains no RSA or EC key for signatures, so no token is accepted")

    def key_missed(self) -> None:
        if self._may_be_early and not self._is_reading:
            self._may_be_early = False
            self._timers.after(self._max_retry_ms, self._allow_early)
            self._timer.cancel()
            self._refresh()

    def _allow_early(self) -> None:
        self._may_be_early = True

    def _refresh(self) -> None:
        self._is_reading = True
        self._workers.run(lambda: read_key_set(self._read()), self._keys_read)

    def _keys_read(self, outcome: JobResult[tuple[VerificationKey, ...]]) -> None:
        self._is_reading = False
        try:
            self.keys = outcome.result()
        except (OSError, InvalidKeySet) as error:
            log.warning("the JWKS cannot be read, so the keys for OAUTHBEARER tokens are not changed: %s", error)
            self._timer = self._refresh_later(self._retry_ms)
            self._retry_ms = min(2 * self._retry_ms, self._max_retry_ms)
        else:
            self._warn_about_missing()
            self._retry_ms = self._first_retry_ms
            self._timer = self._refresh_later(self._refresh_ms)
