"""Decides which of this broker's addresses to give to a client. Logs a warning if that address would make the client
connect to its own machine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.broker.configuration.listeners import PublishedAddress, is_loopback

if TYPE_CHECKING:
    from odradek.broker.api.context import Address, ConnectionInfo
    from odradek.broker.configuration.advertising import Networks
    from odradek.broker.configuration.config import BrokerConfig

log = logging.getLogger("odradek.connection")

ROUTES: Final = Path("/proc/net/route")
MAX_WARNINGS: Final = 20  # maximum number of client hosts to warn about, since one wrong setting can affect hundreds


class ClientAddresses:
    """Decides once for each connection which address of the broker is sent to its client. Not thread-safe: must be used
    on the event loop's thread."""

    def __init__(
        self, published: Mapping[str, PublishedAddress] | None, *, is_by_arrival: bool, networks: Callable[[], Networks]
    ) -> None:
        """Initialises the object. `published` is the setting odradek.advertise.published, by listener; None if it is
        not set."""
        self._published = published
        self._is_by_arrival = is_by_arrival
        self._networks = networks
        self._warned: set[str] = set()

    def address_for(self, registered: Address, connection: ConnectionInfo) -> Address:
        if connection.advertised_address is None:
            connection.advertised_address = self._decide(registered, connection)
        return connection.advertised_address

    def _decide(self, registered: Address, connection: ConnectionInfo) -> Address:
        if not self._is_by_arrival and (not is_loopback(registered[0]) or is_loopback(connection.client_host)):
            return registered
        from odradek.broker.configuration.advertising import (
            ConnectionAddresses,
            address_for_arrival,
            points_to_the_client_itself,
        )

        arrival = ConnectionAddresses(connection.listener, connection.local_address, connection.client_host)
        networks = self._networks()
        advertised = (
            address_for_arrival(arrival, self._published or {}, networks) if self._is_by_arrival else registered
        )
        if points_to_the_client_itself(advertised, arrival, networks, is_published=self._published is not None):
            self._warn(advertised, connection)
        return advertised

    def _warn(self, advertised: Address, connection: ConnectionInfo) -> None:
        client = connection.client_host
        if client in self._warned or len(self._warned) == MAX_WARNINGS:
            return
        self._warned.add(client)
        setting = "odradek.advertise.published" if self._is_by_arrival else "advertised.listeners"
        log.warning(
            "client %s (%s) is told to connect to %s:%d, which is the client's own machine, and not this broker:"
            " set %s to an address that the client can reach%s",
            client,
            connection.client_software_name,
            *advertised,
            setting,
            "" if self._is_by_arrival else ", or remove this setting and set odradek.advertise=arrival",
        )


def networks_of_this_host() -> Networks:
    """Reads this host's networks. The result is not cached, since a container can join a network while it is
    running."""
    from odradek.broker.configuration.advertising import Networks

    try:
        return Networks.of_routes(ROUTES.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return Networks()  # this system is not Linux


def client_addresses(config: BrokerConfig) -> ClientAddresses:
    return ClientAddresses(
        config.published, is_by_arrival=config.is_advertised_by_arrival, networks=networks_of_this_host
    )
