"""Chooses the broker address that a client receives, based on how the client connected.

This module has no side effects and is imported only when a client first needs it. With `odradek.advertise=arrival`, a
client receives the address that it connected to, because it can evidently reach that address. This does not work for a
client that connected through a container's published port: the broker sees the container's own address, which the
client may not be able to reach. The broker assumes a published port if the client is on another network, or if its
connection appears to come from the gateway of one of the container's networks. The client then receives the address in
`odradek.advertise.published` instead.

    address of the client                         address that the client receives
    loopback, or on one of this host's networks   the address that it connected to
    gateway of a network (the container's host)   odradek.advertise.published if set, else the address it connected to
    any other address                             odradek.advertise.published if set, else the address it connected to
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, ip_address

from odradek.broker.configuration.listeners import PublishedAddress, is_loopback

Address = tuple[str, int]
# With Docker Desktop, connections from the host appear to come from these addresses.
DOCKER_DESKTOP = IPv4Network("192.168.65.0/24")


@dataclass(frozen=True, slots=True)
class Networks:
    """This host's IPv4 networks and their gateways."""

    networks: tuple[IPv4Network, ...] = ()
    gateways: frozenset[IPv4Address] = frozenset()

    @classmethod
    def of_routes(cls, text: str) -> "Networks":
        """Parses the contents of Linux's /proc/net/route. The addresses in this file are hexadecimal, in little-endian
        byte order."""
        networks, gateways = [], set()
        for line in text.splitlines()[1:]:
            _, destination, gateway, _, _, _, _, mask = line.split()[:8]
            if int(gateway, 16):
                gateways.add(_address(gateway))
            else:
                networks.append(IPv4Network((int(_address(destination)), _address(mask).compressed)))
        return cls(tuple(networks), frozenset(gateways))

    def is_gateway(self, address: str) -> bool:
        return _ip(address) in self.gateways

    def is_neighbour(self, address: str) -> bool:
        """Returns whether the address is on one of the networks and is not the gateway."""
        ip = _ip(address)
        return ip not in self.gateways and isinstance(ip, IPv4Address) and any(ip in one for one in self.networks)


def _address(hexadecimal: str) -> IPv4Address:
    return IPv4Address(int.from_bytes(bytes.fromhex(hexadecimal), "little"))


def _ip(address: str) -> object:
    try:
        return ip_address(address.partition("%")[0])
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class ConnectionAddresses:
    """The listener and local address of a client's connection, and the client's host."""

    listener: str
    local: Address
    client_host: str


def address_for_arrival(
    arrival: ConnectionAddresses, published: Mapping[str, PublishedAddress], networks: Networks
) -> Address:
    """Returns the address for this client, according to the table in the module's docstring."""
    mapped = published.get(arrival.listener)
    client = arrival.client_host
    if mapped is None or is_loopback(client) or client == arrival.local[0] or networks.is_neighbour(client):
        return arrival.local
    host, port = mapped
    return host, port or arrival.local[1]


def points_to_the_client_itself(
    advertised: Address, arrival: ConnectionAddresses, networks: Networks, *, is_published: bool
) -> bool:
    """Returns whether `advertised` would send the client to its own machine even though this broker runs elsewhere.

    is_published: whether clients on the container's host connect through published ports; if so, `localhost` is correct
    for them
    """
    client = arrival.client_host
    if not is_loopback(advertised[0]) or is_loopback(client) or client == arrival.local[0]:
        return False
    ip = _ip(client)
    is_host = networks.is_gateway(client) or (isinstance(ip, IPv4Address) and ip in DOCKER_DESKTOP)
    return not (is_host and is_published)
