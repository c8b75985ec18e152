"""What the SASL listeners offer at present: by their settings at the start, and again where AlterConfigs changes them.

A change counts for exchanges that begin after it; open sessions go on until they are renewed. OAUTHBEARER stays as it
was at the start, since its keys would have to be waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from odradek.broker.configuration.broker_settings import HEEDED_SETTINGS
from odradek.broker.runtime.starting import CannotStart
from odradek.broker.security.sasl.oauthbearer import NAME as OAUTHBEARER
from odradek.broker.security.sasl.setup import BUILDERS, JAAS_CONFIG, MAX_REAUTH_MS, offers_of

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.security.sasl.mechanism import Offers
    from odradek.broker.security.sasl.setup import Accounts

log = logging.getLogger("odradek.sasl")

SETTINGS = (MAX_REAUTH_MS, *sorted(name for name in HEEDED_SETTINGS if name.startswith("sasl.")))
Texts: TypeAlias = tuple[str | None, ...]


class SaslListeners:
    def __init__(self, config: BrokerConfig, listeners: Iterable[str], accounts: Accounts) -> None:
        """Raises CannotStart."""
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
        """Settings may have changed. Those that cannot be served leave a listener as it was, with a warning."""
        for name, offers in self._offers.items():
            texts = self._texts_of(name)
            if texts == self._texts[name]:
                continue
            self._texts[name] = texts
            kept = {mechanism: offer for mechanism, offer in offers.items() if mechanism == OAUTHBEARER}
            try:
                self._offers[name] = offers_of(self._config.listener_settings(name), self._accounts, kept)
            except CannotStart as error:
                log.warning("listener %s goes on with its mechanisms as they were: %s", name, error)

    def _texts_of(self, listener: str) -> Texts:
        settings = self._config.listener_settings(listener)
        mechanisms = (None, *BUILDERS)
        jaas = (settings.current_text(settings.prefixed(JAAS_CONFIG, mechanism)) for mechanism in BUILDERS)
        return (*(settings.text(name, mechanism) for name in SETTINGS for mechanism in mechanisms), *jaas)
