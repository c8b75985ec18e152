"""Where the broker listens, and the addresses that it gives to clients: `listeners`, `advertised.listeners`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from odradek.broker.configuration.settings import InvalidSetting

WILDCARD_HOSTS = frozenset({"", "0.0.0.0", "::"})


@dataclass(frozen=True, slots=True)
class Listener:
    """One `NAME://host:port`. An empty host means every interface, port 0 any free port."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


def parse_listeners(name: str, entries: Iterable[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """The listeners in the setting `name`. Raises InvalidSetting for one that cannot be read or is named twice."""
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
            raise InvalidSetting(f"{listener_name} appears twice; each listener needs a name of its own")
        if int(port) and any(port == str(other.port) for other in listeners.values()):
            raise InvalidSetting(f"port {port} appears twice in {name}")
        listeners[listener_name] = Listener(listener_name, host, int(port), protocols[listener_name])
    return tuple(listeners.values())


def parse_protocol_map(entries: Iterable[str]) -> dict[str, str]:
    """Listener name to security protocol. Raises InvalidSetting."""
    protocols = {}
    for entry in entries:
        name, separator, protocol = entry.partition(":")
        if not separator or protocol.upper() not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            raise InvalidSetting(f"{entry!r} is not of the form NAME:PROTOCOL")
        protocols[name.upper()] = protocol.upper()
    return protocols


def advertise(
    listeners: Iterable[Listener],
    advertised: Iterable[Listener] | None,
    bound_ports: Mapping[str, int],
    host_name: Callable[[], str],
) -> tuple[Listener, ...]:
    """What clients are told, given the ports that `listeners` really got.

    advertised  None where `advertised.listeners` is not set: then the listeners themselves
    host_name   asked only if a listener takes connections on every interface: a name lookup can be slow
    """
    shown = []
    for listener in listeners if advertised is None else advertised:
        host = host_name() if listener.host in WILDCARD_HOSTS else listener.host
        port = listener.port or bound_ports[listener.name]
        shown.append(replace(listener, host=host, port=port))
    return tuple(shown)
