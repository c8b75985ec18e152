"""The address of this broker that a client is told, where the configuration leaves it to the connection.

Pure; not imported before a client needs it. With `odradek.advertise=arrival` a client is told the address that its
connection came in by: what it has connected to once, it can connect to again. A container sees connections through its
published ports at its own address, which clients on the other side may not be able to reach. They come from another
network, or from the gateway of one of its own, and are told `odradek.advertise.published`.

    address of the client                       told, by arrival
    loopback, or on a network of this broker    the address that it connected to
    the gateway of one: the container's host    odradek.advertise.published if set, else the address it connected to
    any other                                   the same
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, ip_address

from odradek.broker.configuration.listeners import Published, is_loopback

Address = tuple[str, int]
DOCKER_DESKTOP = IPv4Network("192.168.65.0/24")  # as which connections from the host of its virtual machine are seen


@dataclass(frozen=True, slots=True)
class Networks:
    """The IPv4 networks that this host belongs to, and their gateways."""

    networks: tuple[IPv4Network, ...] = ()
    gateways: frozenset[IPv4Address] = frozenset()

    @classmethod
    def of_routes(cls, text: str) -> "Networks":
        """text: as in Linux' /proc/net/route, addresses in hexadecimal with the bytes of a little-endian machine."""
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
        """Whether the address is on one of the networks, and not its gateway."""
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
class Arrival:
    """A connection: the listener, the addresses of both ends."""

    listener: str
    here: Address
    client_host: str


def by_arrival(arrival: Arrival, published: Mapping[str, Published], networks: Networks) -> Address:
    """The table at the head of this file."""
    mapped = published.get(arrival.listener)
    client = arrival.client_host
    if mapped is None or is_loopback(client) or client == arrival.here[0] or networks.is_neighbour(client):
        return arrival.here
    host, port = mapped
    return host, port or arrival.here[1]


def leads_astray(told: Address, arrival: Arrival, networks: Networks, *, is_published: bool) -> bool:
    """Whether `told` is the client's own machine, which this broker is not on.

    is_published: clients of the host are expected to come through published ports, for which `localhost` is right
    """
    client = arrival.client_host
    if not is_loopback(told[0]) or is_loopback(client) or client == arrival.here[0]:
        return False
    ip = _ip(client)
    is_host = networks.is_gateway(client) or (isinstance(ip, IPv4Address) and ip in DOCKER_DESKTOP)
    return not (is_host and is_published)
