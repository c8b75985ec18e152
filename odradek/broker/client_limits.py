"""Applies client quotas and connection limits at startup and whenever they change."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from odradek.broker.network.listening import (
    address_of,
    addresses_of_hosts,
    connection_limits,
    names_hosts,
    of_listeners,
)
from odradek.broker.runtime.starting import CannotStart
from odradek.broker.runtime.workers import outcome_of
from odradek.broker.security.quotas.entities import IP

if TYPE_CHECKING:
    from odradek.broker.api.dispatch import Dispatcher
    from odradek.broker.broker import Broker
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.network.admission import Admissions, ConnectionLimits
    from odradek.broker.runtime.clock import Clock
    from odradek.broker.runtime.workers import JobResult
    from odradek.broker.security.quotas.connections import ConnectionRates
    from odradek.broker.security.quotas.metering import Metering, Windows

log = logging.getLogger("odradek.connection")

ANY_RATE = 2**31 - 1  # value of max.connection.creation.rate if it is not configured
CREATION_RATE = "max.connection.creation.rate"


class ClientLimits:
    """Applies the quotas and limits of the current configuration.

    `metering` measures client usage. It is None until a client quota is configured for the first time.
    """

    def __init__(self, broker: Broker, dispatcher: Dispatcher[HandlerBroker], admissions: Admissions) -> None:
        self.metering: Metering | None = None
        self._broker = broker
        self._dispatcher = dispatcher
        self.admissions = admissions
        self._rates: ConnectionRates | None = None
        broker.limits_changed = self.apply

    def apply(self) -> None:
        self._apply_client_quotas()
        self._apply_connection_limits()
        self._apply_creation_rates()

    def _apply_client_quotas(self) -> None:
        limits = self._broker.metadata.image.client_quotas.limits
        if all(entity[0][0] == IP for entity in limits):
            self._dispatcher.throttling = None
            return
        from odradek.broker.api.metered import Throttling  # imported here because most brokers have no quotas
        from odradek.broker.security.quotas.metering import Metering

        if self.metering is None:
            config = self._broker.config
            controller = _windows(config.controller_quota_window_num, config.controller_quota_window_size_seconds)
            self.metering = Metering(self._windows(), controller)
        self.metering.set_limits(limits)
        self._dispatcher.throttling = Throttling(self.metering)

    def _apply_connection_limits(self) -> None:
        config = self._broker.config

        def read(outcome: JobResult[ConnectionLimits]) -> None:
            # If the settings have changed while names were being resolved, another call applies the new settings.
            if config is not self._broker.config:
                return
            try:
                self.admissions.set_limits(outcome.result())
            except CannotStart as error:  # cannot happen at startup, when these settings have already been checked
                log.warning("the limits on connections were not changed: %s", error)

        if names_hosts(config):
            self._broker.workers.run(lambda: connection_limits(config), read)
        else:
            read(outcome_of(lambda: connection_limits(config)))

    def _apply_creation_rates(self) -> None:
        limits = self._broker.metadata.image.client_quotas.limits
        named = {name for entity in limits for kind, name in entity if kind == IP and name is not None}
        cached = self._broker.host_addresses
        cached.update((name, (address,)) for name in named if (address := address_of(name)) is not None)
        self._set_creation_rates()
        hosts = named - cached.keys()
        if not hosts:
            return

        def found(outcome: JobResult[dict[str, tuple[str, ...]]]) -> None:
            addresses = outcome.result()
            cached.update(addresses)
            self._set_creation_rates()
            if len(addresses) < len(hosts):
                unknown = ", ".join(sorted(hosts - addresses.keys()))
                log.warning("the connection quotas of %s have no effect: these names cannot be resolved", unknown)

        self._broker.workers.run(lambda: addresses_of_hosts(hosts), found)

    def _set_creation_rates(self) -> None:
        config = self._broker.config
        of_broker = config.max_connection_creation_rate
        of_listener = of_listeners(config, CREATION_RATE)
        limits = self._broker.metadata.image.client_quotas.limits
        if self._rates is None:
            if of_broker == ANY_RATE and not of_listener and not any(entity[0][0] == IP for entity in limits):
                return
            from odradek.broker.security.quotas.connections import ConnectionRates

            self._rates = ConnectionRates(self._windows())
        self._rates.set_limits(
            limits,
            self._broker.host_addresses,
            of_broker=None if of_broker == ANY_RATE else of_broker,
            of_listener=of_listener,
        )
        clocked = ClockedRates(self._rates, self._broker.clock)
        self.admissions.rates = clocked if self._rates.is_limited else None

    def _windows(self) -> Windows:
        config = self._broker.config
        return _windows(config.quota_window_num, config.quota_window_size_seconds)


class ClockedRates:
    """A `ConnectionRates` that reads the time from a clock."""

    def __init__(self, rates: ConnectionRates, clock: Clock) -> None:
        self._rates = rates
        self._clock = clock

    def held_ms(self, address: str) -> int:
        return self._rates.held_ms(address, self._clock.now_ms())

    def waits_ms(self, listener: str) -> int:
        return self._rates.waits_ms(listener, self._clock.now_ms())


def _windows(number: int, size_s: int) -> Windows:
    from odradek.broker.security.quotas.metering import Windows

    return Windows(number, size_s * 1000)
