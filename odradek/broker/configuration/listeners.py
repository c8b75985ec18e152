"""Parses and checks `listeners` and `advertised.listeners`. The broker listens on the addresses in `listeners`, and
gives clients the addresses in `advertised.listeners`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from odradek.broker.configuration.settings import InvalidSetting

WILDCARD_HOSTS = frozenset({"", "0.0.0.0", "::"})
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "::1"})


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener, written as `NAME://host:port`. An empty host means all interfaces, and port 0 means any free port."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


def is_loopback(host: str) -> bool:
    """Returns whether the host is a loopback address or a common name for one."""
    return host.startswith("127.") or host.lower() in LOCAL_NAMES


class PublishedAddress(NamedTuple):
    """A listener's address as seen by clients outside the container. If `port` is None, the listener's own port
    applies."""

    host: str
    port: int | None


def parse_listeners(name: str, entries: Iterable[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """Parses the listeners in the setting `name`. Raises InvalidSetting if an entry cannot be parsed or a name occurs
    twice."""
    listeners: dict[str, Listener] = {}
    for entry in entries:
        listener_name, separator, address = entry.partition("://")
        host, colon, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (separator and colon and port.isdecimal() and int(port) <= 65535 and listener_name):
            raise InvalidSetting(f"{entry!r} is not of the form NAME://host:port")
        listener_name = listener_name.upper()
        if listener_name not in protocols:
            raise InvalidSetting(f"{listener_name} has no entry in listener.security.protocol.map")
        if listener_name in listeners:
            raise InvalidSetting(f"{listener_name} appears twice; each listener needs a unique name")
        listeners[listener_name] = Listener(listener_name, host, int(port), protocols[listener_name])
    return tuple(listeners.values())


def check_bound_ports(listeners: Iterable[Listener]) -> None:
    """Checks that the broker can listen on all of `listeners`. Raises InvalidSetting.

    As in Kafka (KIP-797), two listeners may have the same port if one has an IPv4 address and the other an IPv6
    address. Advertised listeners may share ports freely, so they are not checked.
    """
    hosts: dict[int, list[str]] = {}
    for listener in listeners:
        if listener.port:
            hosts.setdefault(listener.port, []).append(listener.host)
    for port, found in hosts.items():
        if len(found) > 1 and sorted(_ip_version(host) for host in found) != [4, 6]:
            raise InvalidSetting(
                f"port {port} appears twice in listeners. Give each listener its own port; only an IPv4 address"
                " and an IPv6 address may share a port"
            )


def _ip_version(host: str) -> int:
    """Returns the IP version of the host, 4 or 6, or 0 if the host is empty or not an IP address."""
    from ipaddress import ip_address  # imported here because few brokers have two listeners on one port

    try:
        return ip_address(host).version
    except ValueError:
        return 0


def parse_protocol_map(entries: Iterable[str]) -> dict[str, str]:
    """Returns the security protocol of each listener by the listener's name. Raises InvalidSetting."""
    protocols = {}
    for entry in entries:
        name, separator, protocol = entry.partition(":")
        if not separator:
            raise InvalidSetting(f"{entry!r} is not of the form NAME:PROTOCOL")
        if protocol.upper() not in SECURITY_PROTOCOLS:
            raise InvalidSetting(
                f"{protocol!r} is not a security protocol; the protocols are {', '.join(SECURITY_PROTOCOLS)}"
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def check_advertised(serving: Iterable[Listener], advertised: Iterable[Listener]) -> None:
    """Checks that the advertised listeners exist, and that none of them has a wildcard address as its host. Raises
    InvalidSetting."""
    names = [listener.name for listener in serving]
    for listener in advertised:
        if listener.name not in names:
            raise InvalidSetting(f"each entry must name one of the listeners {', '.join(names)}")
        if listener.host in ("0.0.0.0", "::"):
            raise InvalidSetting(f"clients cannot connect to {listener.host}: give an address that they can reach")


def check_inter_broker(setting: str, given: Mapping[str, str], advertised: Iterable[Listener]) -> None:
    """Checks an inter-broker setting as Kafka does if the user has set it, even though this broker does not use it.
    Raises InvalidSetting.

    setting     security.inter.broker.protocol or inter.broker.listener.name
    advertised  the advertised listeners, or the listeners themselves if advertised.listeners is not set
    """
    if "inter.broker.listener.name" in given and "security.inter.broker.protocol" in given:
        raise InvalidSetting("inter.broker.listener.name and security.inter.broker.protocol cannot both be set")
    name = given.get(setting, "").upper()
    names = [listener.name for listener in advertised]
    if name and name not in names:
        raise InvalidSetting(f"must name one of the advertised listeners: {', '.join(names)}")


def advertise(
    listeners: Iterable[Listener],
    advertised: Iterable[Listener] | None,
    bound_ports: Mapping[str, int],
    host_name: Callable[[], str],
) -> tuple[Listener, ...]:
    """Returns the listeners with the addresses to give to clients. These depend on the ports that the listeners are
    bound to.

    advertised  the parsed `advertised.listeners`, or None if not set; the listeners themselves are then advertised
    host_name   called only if a listener accepts connections on all interfaces, because looking up the name can be slow
    """
    shown = []
    for listener in listeners if advertised is None else advertised:
        host = host_name() if listener.host in WILDCARD_HOSTS else listener.host
        port = listener.port or bound_ports[listener.name]
        shown.append(replace(listener, host=host, port=port))
    return tuple(shown)


def parse_published(entries: Iterable[str], serving: Iterable[Listener]) -> dict[str, PublishedAddress]:
    """Parses `odradek.advertise.published`. Returns the published address of each listener by the listener's name.

    An entry is `[NAME://]host[:port]`. An entry without a name applies to each listener that no other entry names.
    Raises InvalidSetting.
    """
    names = [listener.name for listener in serving]
    published: dict[str, PublishedAddress] = {}
    for_others: PublishedAddress | None = None
    for entry in entries:
        name, separator, address = entry.rpartition("://")
        name = name.upper()
        host, colon, port = address.rpartition(":") if not address.endswith("]") else (address, "", "")
        if not colon:
            host, port = address, ""
        if not host or (colon and not (port.isdecimal() and 0 < int(port) <= 65535)) or (separator and not name):
            raise InvalidSetting(f"{entry!r} is not of the form [NAME://]host[:port]")
        place = PublishedAddress(host.removeprefix("[").removesuffix("]"), int(port) if colon else None)
        if separator and name not in names:
            raise InvalidSetting(f"{name} is not one of the listeners {', '.join(names)}")
        if (name in published) if separator else for_others is not None:
            raise InvalidSetting(f"{entry!r} is a second entry for the same listener")
        if not separator and colon and len(names) > 1:
            raise InvalidSetting(
                f"{entry!r} does not say which listener has this port: write NAME://host:port ({', '.join(names)})"
            )
        if separator:
            published[name] = place
        else:
            for_others = place
    if for_others is not None:
        published = dict.fromkeys(names, for_others) | published
    return published
