"""Loads the keys and certificates of all TLS listeners at startup and replaces them while the broker is running.

They are replaced when AlterConfigs changes a setting or when a file changes. An unusable change by AlterConfigs is
refused, and an unusable file is logged; in either case the listener keeps its certificates. Open connections are not
affected.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from odradek.broker.configuration.broker_settings import EFFECTIVE_SETTINGS
from odradek.broker.configuration.listener_settings import (
    HTTP_LISTENER,
    SSL_PROTOCOLS,
    ListenerSettings,
    listener_of,
    setting_named,
)
from odradek.broker.runtime.clock import Scan
from odradek.broker.security.tls.context import LoadedTls, digest_of, load
from odradek.broker.security.tls.principals import refusal_of_another_identity
from odradek.broker.security.tls.settings import UnusableTls, tls_settings

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.runtime.clock import TimerHandle, Timers
    from odradek.broker.runtime.workers import JobResult, Workers

log = logging.getLogger("odradek.tls")

Attempt: TypeAlias = "LoadedTls | UnusableTls | None"
STORES = "ssl.keystore.", "ssl.truststore.", "ssl.key.password"


class ListenerCertificates:
    """The certificates of all listeners. Only the loop thread may use this object. Watched files are read in a
    thread."""

    def __init__(self, config: BrokerConfig) -> None:
        """Reads all stores. Raises UnusableTls."""
        self._config = config
        self._loaded: dict[str, LoadedTls] = {}
        self._complaints: dict[str, str] = {}  # the last error of each listener, so that it is logged only once
        self._timer: TimerHandle | None = None
        for name in listeners_with_tls(config):
            self._loaded[name] = load(tls_settings(config.listener_settings(name)))

    def tls_of(self, listener: str) -> LoadedTls:
        """Returns the listener's current certificates, for use in a new handshake."""
        return self._loaded[listener]

    def check(self, changed: Mapping[str, str | None]) -> None:
        """Checks a change to this broker's settings. A value of None removes a setting.

        Raises UnusableTls if the new stores cannot be used, or if a new certificate was issued for a different name.
        Settings that take effect at the next start are also tried, to make sure that the broker will be able to start.
        """
        for listener, loaded in self._loaded.items():
            settings = ListenerSettings(listener, lambda name: self._config.current_text(name, changed))
            if any(is_of_store(name) and listener_of(name) == listener.lower() for name in changed):
                self._replacement(loaded, settings)
            if any(takes_effect_at_restart(name, listener) for name in changed):
                load(tls_settings(settings))

    def refresh(self) -> None:
        """Applies changed settings."""
        for listener, loaded in list(self._loaded.items()):
            self._use_attempt(listener, loaded, self._attempt(loaded))

    def watch(self, timers: Timers, workers: Workers, interval_ms: int) -> None:
        """Checks the files periodically until `stop` is called."""

        def look() -> None:
            before = dict(self._loaded)

            def done(outcome: JobResult[dict[str, Attempt]]) -> None:
                for listener, attempt in outcome.result().items():
                    self._use_attempt(listener, before[listener], attempt)
                self._timer = timers.after(interval_ms, scan)

            workers.run(lambda: {listener: self._attempt(loaded) for listener, loaded in before.items()}, done)

        # When a test moves its clock ahead, the checks are skipped, because moving the clock does not change files.
        scan = Scan(look, interval_ms, lambda: None)
        self._timer = timers.after(interval_ms, scan)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _attempt(self, loaded: LoadedTls) -> Attempt:
        """Reads the stores. Returns None if they have not changed, the new certificates if they can be used, and
        otherwise the error."""
        try:
            return self._replacement(loaded, self._config.listener_settings(loaded.settings.listener))
        except UnusableTls as error:
            return error

    def _replacement(self, loaded: LoadedTls, now: ListenerSettings) -> LoadedTls | None:
        """Returns the new certificates, or None if nothing has changed. Raises UnusableTls."""
        current = tls_settings(now)
        # As in Kafka, only the stores can be replaced. Other settings keep the values that they had at startup.
        settings = replace(loaded.settings, keystore=current.keystore, truststore=current.truststore)
        if digest_of(settings) == loaded.digest:
            return None
        found = load(settings)
        why = refusal_of_another_identity(
            loaded.certificate,
            found.certificate,
            may_change_name=now.value("ssl.allow.dn.changes") is True,
            may_lose_alternative_names=now.value("ssl.allow.san.changes") is True,
        )
        if why is not None:
            raise UnusableTls(settings.keystore.setting, why)
        return found

    def _use_attempt(self, listener: str, before: LoadedTls, attempt: Attempt) -> None:
        if self._loaded[listener] is not before:
            return  # replaced in the meantime; the next check examines the new certificates
        if isinstance(attempt, UnusableTls):
            if self._complaints.get(listener) != str(attempt):
                self._complaints[listener] = str(attempt)
                log.error(
                    "listener %s keeps its keys and certificates, because the new ones cannot be used: %s",
                    listener,
                    attempt,
                )
            return
        self._complaints.pop(listener, None)
        if attempt is not None:
            self._loaded[listener] = attempt
            log.info("listener %s now uses new keys or certificates; open connections continue", listener)


def listeners_with_tls(config: BrokerConfig) -> tuple[str, ...]:
    """Returns the names of the TLS listeners, including the pseudo-listener of the HTTP port."""
    names = [listener.name for listener in config.serving if listener.security_protocol in SSL_PROTOCOLS]
    return (*names, HTTP_LISTENER) if config.odradek_http_security_protocol in SSL_PROTOCOLS else tuple(names)


def takes_effect_at_restart(name: str, listener: str) -> bool:
    """Returns whether `name` is a TLS setting of this listener or of the broker that takes effect at the next start."""
    setting = setting_named(name)
    if setting is None or listener_of(name) not in (None, listener.lower()):
        return False
    return setting.name in EFFECTIVE_SETTINGS and setting.name.startswith("ssl.") and not is_of_store(name)


def is_of_store(name: str) -> bool:
    setting = setting_named(name)
    return setting is not None and setting.name.startswith(STORES)
