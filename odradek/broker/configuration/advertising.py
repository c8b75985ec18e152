"""The address of this broker that a client gets if the configuration lets it depend on the client's connection.

This module has no side effects, and is not imported before a client needs it. With `odradek.advertise=arrival` a client
gets the address that it connected to, since it can reach that address again. But if it connected through a published
port of a container, the container sees its own address there, which the client may not be able to reach. Such clients
are on another network, or appear with the address of the gateway of one of the container's networks; they get
`odradek.advertise.published`.

    address of the client                       address that it gets, by arrival
    loopback, or on a network of this broker    the address that it connected to
    the gateway of one: the container's host    odradek.advertise.published if set, else the address it connected to
    any other                                   the same
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, ip_address

from odradek.broker.configuration.listeners import PublishedAddress, is_loopback

Address = tuple[str, int]
# Connections from the host of Docker Desktop's virtual machine appear with these addresses.
DOCKER_DESKTOP = IPv4Network("192.168.65.0/24")


@dataclass(frozen=True, slots=True)
class Networks:
    """The IPv4 networks that this host belongs to, and their gateways."""

    networks: tuple[IPv4Network, ...] = ()
    gateways: frozenset[IPv4Address] = frozenset()

    @classmethod
    def of_routes(cls, text: str) -> "Networks":
        """Parses the text of Linux' /proc/net/route, in which addresses are hexadecimal, with the bytes of a
        little-endian machine."""
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
        """Returns whether the address belongs to one of the networks and is not its gateway."""
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
    """A connection: its listener and the addresses of both ends."""

    listener: str
    local: Address
    client_host: str


def address_for_arrival(
    arrival: ConnectionAddresses, published: Mapping[str, PublishedAddress], networks: Networks
) -> Address:
    """Decides by the table at the head of this file."""
    mapped = published.get(arrival.listener)
    client = arrival.client_host
    if mapped is None or is_loopback(client) or client == arrival.local[0] or networks.is_neighbour(client):
        return arrival.local
    host, port = mapped
    return host, port or arrival.local[1]


def leads_astray(told: Address, arrival: ConnectionAddresses, networks: Networks, *, is_published: bool) -> bool:
    """Returns whether `told` would lead the client to its own machine, although this broker is not there.

    is_published: clients on the container's host are expected to use published ports, so `localhost` is right for them
    """
    client = arrival.client_host
    if not is_loopback(told[0]) or is_loopback(client) or client == arrival.local[0]:
        return False
    ip = _ip(client)
    is_host = networks.is_gateway(client) or (isinstance(ip, IPv4Address) and ip in DOCKER_DESKTOP)
    return not (is_host and is_published)
