"""The listeners and users chosen by a test for its cluster, and the broker settings that configure them.

If the test provides no certificates, the cluster creates its own certificate authority (CA), which issues the
certificates. Each cluster has a separate CA, so a client that trusts one cluster does not trust any other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from odradek.broker.configuration.listener_settings import PREFIX, SASL_PROTOCOLS, SSL_PROTOCOLS
from odradek.broker.configuration.listeners import SECURITY_PROTOCOLS
from odradek.broker.control.problems import Problem, check_known_fields, invalid_field, mapping, text, whole_number
from odradek.broker.metadata.records import Decision
from odradek.broker.security.sasl.credential_changes import CredentialUpsertion, alter_credentials
from odradek.protocol.scram import MIN_ITERATIONS, SCRAM_MECHANISMS, salted_password

if TYPE_CHECKING:
    from odradek.broker.metadata.image import MetadataImage
    from odradek.broker.runtime.slices import Steps

MAX_LISTENERS = 8
MAX_USERS = 100
MAX_PEM_LENGTH = 1_000_000  # maximum number of characters in a PEM text
PLAIN = "PLAIN"
MECHANISMS = (PLAIN, *SCRAM_MECHANISMS)
CLIENT_AUTH = ("none", "requested", "required")
HOST = "localhost"
CERTIFIED = (HOST, "127.0.0.1", "::1")  # the broker's names and addresses in the certificates that this module issues
CERTIFIED_DAYS = 365
SALT_BYTES = 16
LISTENER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
USER_NAME = re.compile(r"[^\s\"'\\=;/,\x00-\x1f]+")
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@dataclass(frozen=True, slots=True)
class KeyAndChain:
    """A private key and its certificate chain, both in PEM. The chain begins with the key's certificate."""

    key: str = field(repr=False)
    chain: str


@dataclass(frozen=True, slots=True)
class ChosenListener:
    """A listener requested by a test.

    ports        one port per node, in the order of the nodes; 0 means any free port. If empty, each node gets any free
                 port
    certificate  provided by the test; None if the cluster issues one, or if the listener has no TLS
    client_ca    certificates of the CAs that may issue client certificates, in PEM; None for the cluster's own CA
    """

    name: str
    protocol: str = "PLAINTEXT"
    ports: tuple[int, ...] = ()
    mechanisms: tuple[str, ...] = ()
    client_auth: str = "none"
    certificate: KeyAndChain | None = None
    client_ca: str | None = None

    @property
    def has_tls(self) -> bool:
        return self.protocol in SSL_PROTOCOLS


@dataclass(frozen=True, slots=True)
class IssuedCertificates:
    """Certificates issued by the cluster's own CA, in PEM.

    ca       the certificate of the CA, for the clients' trust stores
    server   the private key and certificate chain of the broker
    clients  one string per user, with the private key, the user's certificate and the CA's certificate
    """

    ca: str
    server: KeyAndChain
    clients: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ListenersAndUsers:
    """The listeners and users of one cluster. A user's password is valid for every SASL mechanism on every listener."""

    listeners: tuple[ChosenListener, ...] = (ChosenListener("PLAINTEXT"),)
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    issued: IssuedCertificates | None = None

    def forked(self) -> ListenersAndUsers:
        """Returns the listeners and users for a fork of the cluster. The listeners get free ports, because the original
        cluster's ports are in use."""
        free = tuple(
            ChosenListener(one.name, one.protocol, (), one.mechanisms, one.client_auth, one.certificate, one.client_ca)
            for one in self.listeners
        )
        return ListenersAndUsers(free, self.users, self.issued)

    def ports(self, node_ids: Sequence[int]) -> dict[tuple[int, str], int]:
        """Returns the chosen ports, by node and listener name."""
        return {
            (node, one.name): port for one in self.listeners for node, port in zip(node_ids, one.ports, strict=False)
        }

    def settings(self, node: int, ports: Mapping[tuple[int, str], int]) -> dict[str, str]:
        """Returns the settings that configure these listeners in the broker.

        node   id of the cluster's first node
        ports  ports by node and listener name; a listener that is not included gets any free port
        """
        names = [(one, ports.get((node, one.name), 0)) for one in self.listeners]
        found = {
            "listeners": ",".join(f"{one.name}://{HOST}:{port}" for one, port in names),
        }
        if any(one.name != one.protocol for one in self.listeners):
            protocols = (f"{one.name}:{one.protocol}" for one in self.listeners)
            found["listener.security.protocol.map"] = ",".join(protocols)
        for one in self.listeners:
            prefix = f"{PREFIX}{one.name.lower()}."
            found |= {prefix + name: value for name, value in self._settings_of(one)}
        return found

    def _settings_of(self, one: ChosenListener) -> Iterator[tuple[str, str]]:
        certificate = one.certificate or (self.issued.server if self.issued is not None and one.has_tls else None)
        if certificate is not None:
            yield "ssl.keystore.type", "PEM"
            yield "ssl.keystore.key", certificate.key
            yield "ssl.keystore.certificate.chain", certificate.chain
            yield "ssl.client.auth", one.client_auth
        trusted = one.client_ca or (self.issued.ca if self.issued is not None and one.has_tls else None)
        if trusted is not None:
            yield "ssl.truststore.type", "PEM"
            yield "ssl.truststore.certificates", trusted
        if one.mechanisms:
            yield "sasl.enabled.mechanisms", ",".join(one.mechanisms)
        for mechanism in one.mechanisms:
            users = "".join(f" user_{name}={_quoted(password)}" for name, password in self.users.items())
            module = f"{PLAIN_MODULE}{users};" if mechanism == PLAIN else SCRAM_MODULE
            yield f"{mechanism.lower()}.sasl.jaas.config", module

    def scram_decision(self, image: MetadataImage) -> Steps[Decision[None]]:
        """Creates the metadata records that store the users' passwords for each SCRAM mechanism that a listener
        offers."""
        offered = {mechanism for one in self.listeners for mechanism in one.mechanisms} & SCRAM_MECHANISMS.keys()
        records = []
        for name in sorted(offered):
            mechanism = SCRAM_MECHANISMS[name]
            changes = []
            for user, password in self.users.items():
                yield
                salt = os.urandom(SALT_BYTES)
                salted = salted_password(mechanism, password.encode(), salt, MIN_ITERATIONS)
                changes.append(CredentialUpsertion(user, mechanism.value, MIN_ITERATIONS, salt, salted))
            _, made = yield from alter_credentials(image.scram_credentials, changes)
            records += made
        return Decision(None, tuple(records))


def _quoted(password: str) -> str:
    return '"' + password.replace("\\", "\\\\").replace('"', '\\"') + '"'


def parse_listeners_and_users(
    value: object, users: object, nodes: int, source: ListenersAndUsers | None = None
) -> ListenersAndUsers:
    """Parses the `listeners` and `users` fields of a request to create a cluster. Raises Problem.

    nodes   the cluster's number of nodes
    source  listeners and users of the cluster to fork; used for fields that the request leaves out
    """
    inherited = ListenersAndUsers() if source is None else source.forked()
    named = {**inherited.users, **_users(users)}
    listeners = inherited.listeners
    if value is not None:
        listeners = _listeners(value, nodes)
    if users is not None and not any(one.mechanisms or one.client_auth != "none" for one in listeners):
        raise Problem(
            400, "users need a listener at which they can log in: add one with SASL or client_auth", field="users"
        )
    issued = inherited.issued
    if any(one.has_tls and one.certificate is None for one in listeners) and (issued is None or users is not None):
        issued = issue(named if any(one.client_auth != "none" for one in listeners) else ())
    return ListenersAndUsers(listeners, named, issued)


def issue(clients: Sequence[str] | Mapping[str, str]) -> IssuedCertificates:
    """Creates a CA and issues certificates to the broker and to the clients."""
    # Imported here because most clusters do not use TLS.
    from odradek.protocol.certificates import new_authority, new_client, new_server

    now = datetime.now(UTC)  # not from the cluster's clock, since clients check the validity period by their own clocks
    authority = new_authority(now, CERTIFIED_DAYS)
    ca = authority.certificate_pem.decode()
    server = new_server(authority, CERTIFIED, now, CERTIFIED_DAYS)
    issued = {name: new_client(authority, name, now, CERTIFIED_DAYS) for name in clients}
    return IssuedCertificates(
        ca,
        KeyAndChain(server.key_pem.decode(), server.certificate_pem.decode() + ca),
        {name: (each.key_pem + each.certificate_pem).decode() + ca for name, each in issued.items()},
    )


def _users(value: object) -> dict[str, str]:
    found = {}
    for name, password in mapping({} if value is None else value, "users").items():
        if not USER_NAME.fullmatch(name):
            raise Problem(
                400,
                "the name of a user cannot contain spaces, quotes, commas, = ; / or backslashes",
                field=f"users.{name}",
            )
        found[name] = text(password, f"users.{name}")
        if any(not each.isprintable() for each in found[name]):
            raise invalid_field(f"users.{name}", "a string of printable characters")
    if len(found) > MAX_USERS:
        raise Problem(400, f"a cluster has at most {MAX_USERS} users", field="users")
    return found


def _listeners(value: object, nodes: int) -> tuple[ChosenListener, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_LISTENERS:
        raise invalid_field("listeners", f"a list of 1 to {MAX_LISTENERS} listeners")
    found: list[ChosenListener] = []
    for index, each in enumerate(value):
        one = _listener(each, f"listeners[{index}]", nodes)
        if any(one.name == other.name for other in found):
            raise Problem(400, f"two listeners are named {one.name}", field=f"listeners[{index}].name")
        found.append(one)
    ports = [port for one in found for port in one.ports if port]
    if twice := next((port for port in ports if ports.count(port) > 1), None):
        raise Problem(400, f"port {twice} is given twice", field="listeners")
    return tuple(found)


def _listener(value: object, field: str, nodes: int) -> ChosenListener:
    found = mapping(value, field)
    check_known_fields(
        found, ("name", "protocol", "port", "ports", "mechanisms", "client_auth", "certificate", "client_ca"), field
    )
    protocol = _one_of(found.get("protocol", "PLAINTEXT"), f"{field}.protocol", SECURITY_PROTOCOLS)
    name = text(found.get("name", protocol), f"{field}.name")
    if not LISTENER_NAME.fullmatch(name):
        raise invalid_field(f"{field}.name", "a letter, followed by letters, digits or _")
    has_tls, has_sasl = protocol in SSL_PROTOCOLS, protocol in SASL_PROTOCOLS
    for needed, allows, what in (
        ("mechanisms", has_sasl, "SASL_PLAINTEXT or SASL_SSL"),
        ("client_auth", has_tls, "SSL or SASL_SSL"),
        ("certificate", has_tls, "SSL or SASL_SSL"),
        ("client_ca", has_tls, "SSL or SASL_SSL"),
    ):
        if found.get(needed) is not None and not allows:
            raise Problem(400, f"{needed} needs the protocol {what}", field=f"{field}.{needed}")
    return ChosenListener(
        name.upper(),
        protocol,
        _ports(found, field, nodes),
        _mechanisms(found.get("mechanisms"), f"{field}.mechanisms") if has_sasl else (),
        _one_of(found.get("client_auth") or "none", f"{field}.client_auth", CLIENT_AUTH),
        _certificate(found.get("certificate"), f"{field}.certificate"),
        None if found.get("client_ca") is None else _pem(found["client_ca"], f"{field}.client_ca"),
    )


def _ports(found: Mapping[str, object], field: str, nodes: int) -> tuple[int, ...]:
    if found.get("port") is not None and found.get("ports") is not None:
        raise Problem(
            400, "give either port, for a cluster of one node, or ports, for several nodes", field=f"{field}.ports"
        )
    if found.get("port") is not None:
        if nodes > 1:
            raise Problem(
                400,
                "port is only for a cluster of one node: give ports, a list with one port for each of the"
                f" {nodes} nodes",
                field=f"{field}.port",
            )
        return (whole_number(found["port"], f"{field}.port", 0, 65535),)
    value = found.get("ports")
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) != nodes:
        raise invalid_field(f"{field}.ports", f"a list of {nodes} ports, one for each node")
    return tuple(whole_number(port, f"{field}.ports[{index}]", 0, 65535) for index, port in enumerate(value))


def _mechanisms(value: object, field: str) -> tuple[str, ...]:
    if value is None:
        return MECHANISMS
    if not isinstance(value, list) or not value:
        raise invalid_field(field, f"a list with some of {', '.join(MECHANISMS)}")
    return tuple(dict.fromkeys(_one_of(each, f"{field}[{index}]", MECHANISMS) for index, each in enumerate(value)))


def _certificate(value: object, field: str) -> KeyAndChain | None:
    if value is None:
        return None
    found = mapping(value, field)
    check_known_fields(found, ("key", "chain"), field)
    return KeyAndChain(_pem(found.get("key"), f"{field}.key"), _pem(found.get("chain"), f"{field}.chain"))


def _pem(value: object, field: str) -> str:
    found = text(value, field)
    if "-----BEGIN " not in found or len(found) > MAX_PEM_LENGTH:
        raise invalid_field(field, "text in PEM format, not the path of a file")
    return found


def _one_of(value: object, field: str, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise invalid_field(field, f"one of {', '.join(allowed)}")
    assert isinstance(value, str)
    return value
