"""Tests which broker address a client receives, depending on the addresses of both ends of its connection."""

from ipaddress import IPv4Address, IPv4Network

import pytest

from odradek.broker.configuration.advertising import (
    ConnectionAddresses,
    Networks,
    address_for_arrival,
    points_to_the_client_itself,
)
from odradek.broker.configuration.config import BrokerConfig, ConfigError
from odradek.broker.configuration.listeners import PublishedAddress

# The routes of a container on two Docker networks, as the container sees them.
ROUTES = """\
Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010012AC	0003	0	0	0	00000000	0	0	0
eth0	000012AC	00000000	0001	0	0	0	0000FFFF	0	0	0
eth1	000013AC	00000000	0001	0	0	0	0000FFFF	0	0	0
"""
NETWORKS = Networks.of_routes(ROUTES)
HERE = ("172.18.0.2", 9092)
LOCALHOST = {"PLAINTEXT": PublishedAddress("localhost", None)}
OTHER_PORT = {"PLAINTEXT": PublishedAddress("broker.example", 29092)}


def test_networks_and_gateways_are_read_from_the_routes() -> None:
    networks = Networks.of_routes(ROUTES)
    assert networks == Networks(
        (IPv4Network("172.18.0.0/16"), IPv4Network("172.19.0.0/16")), frozenset({IPv4Address("172.18.0.1")})
    )


@pytest.mark.parametrize(
    ("client", "published", "expected"),
    [
        # another container, on either network
        ("172.18.0.3", LOCALHOST, HERE),
        ("172.19.0.3", LOCALHOST, HERE),
        # the host; through a published port, its address appears as the network's gateway, or as Docker Desktop's
        ("172.18.0.1", LOCALHOST, ("localhost", 9092)),
        ("172.18.0.1", OTHER_PORT, ("broker.example", 29092)),
        ("192.168.65.1", LOCALHOST, ("localhost", 9092)),
        # another machine
        ("10.1.2.3", OTHER_PORT, ("broker.example", 29092)),
        ("2001:db8::7", OTHER_PORT, ("broker.example", 29092)),
        # the same container
        ("172.18.0.2", LOCALHOST, HERE),
        # no published ports are configured
        ("172.18.0.1", {}, HERE),
        ("10.1.2.3", {}, HERE),
        ("unknown", {}, HERE),
    ],
)
def test_by_arrival_a_client_gets_an_address_that_it_can_connect_to(
    client: str, published: dict[str, PublishedAddress], expected: tuple[str, int]
) -> None:
    assert address_for_arrival(ConnectionAddresses("PLAINTEXT", HERE, client), published, NETWORKS) == expected


def test_by_arrival_a_client_on_loopback_stays_there() -> None:
    for address in ("127.0.0.1", "127.0.0.2", "::1"):
        arrival = ConnectionAddresses("PLAINTEXT", (address, 9092), address)
        assert address_for_arrival(arrival, OTHER_PORT, NETWORKS) == (address, 9092)


def test_by_arrival_each_listener_has_its_own_published_port() -> None:
    published = {"A": PublishedAddress("localhost", 1), "B": PublishedAddress("localhost", 2)}
    assert address_for_arrival(ConnectionAddresses("B", HERE, "172.18.0.1"), published, NETWORKS) == ("localhost", 2)


@pytest.mark.parametrize(
    ("host", "client", "is_published", "is_astray"),
    [
        ("localhost", "172.18.0.3", True, True),  # another container would connect to itself
        ("127.0.0.1", "172.18.0.3", True, True),
        ("localhost", "10.1.2.3", True, True),  # another machine would connect to itself
        ("localhost", "2001:db8::7", True, True),
        ("localhost", "172.18.0.1", True, False),  # the host, where the port is published
        ("localhost", "192.168.65.1", True, False),
        ("localhost", "172.18.0.1", False, True),  # outside a container, this address is the router's
        ("localhost", "127.0.0.1", True, False),
        ("localhost", "::1", True, False),
        ("localhost", "172.18.0.2", True, False),  # this machine, at another of its addresses
        ("172.18.0.2", "172.18.0.3", True, False),
        ("broker", "172.18.0.3", True, False),
    ],
)
def test_a_client_goes_astray_if_localhost_is_not_where_the_broker_is(
    host: str, client: str, is_published: bool, is_astray: bool
) -> None:
    arrival = ConnectionAddresses("PLAINTEXT", HERE, client)
    assert points_to_the_client_itself((host, 9092), arrival, NETWORKS, is_published=is_published) is is_astray


TWO = {"listeners": "IN://:19092,OUT://:9092", "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT"}


@pytest.mark.parametrize(
    ("settings", "published"),
    [
        ({"odradek.advertise.published": "localhost"}, {"PLAINTEXT": PublishedAddress("localhost", None)}),
        ({"odradek.advertise.published": "localhost:29092"}, {"PLAINTEXT": PublishedAddress("localhost", 29092)}),
        ({"odradek.advertise.published": "[::1]:29092"}, {"PLAINTEXT": PublishedAddress("::1", 29092)}),
        ({"odradek.advertise.published": "[::1]"}, {"PLAINTEXT": PublishedAddress("::1", None)}),
        (
            TWO | {"odradek.advertise.published": "h"},
            {"IN": PublishedAddress("h", None), "OUT": PublishedAddress("h", None)},
        ),
        (
            TWO | {"odradek.advertise.published": "out://h:1,localhost"},
            {"IN": PublishedAddress("localhost", None), "OUT": PublishedAddress("h", 1)},
        ),
        (TWO | {"odradek.advertise.published": "OUT://h:1"}, {"OUT": PublishedAddress("h", 1)}),
        ({"odradek.advertise.published": ""}, None),
        ({}, None),
    ],
)
def test_published_addresses_are_read_by_listener(
    settings: dict[str, str], published: dict[str, PublishedAddress] | None
) -> None:
    assert BrokerConfig(settings).published == published


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ("localhost:0", "is not of the form [NAME://]host[:port]"),
        ("localhost:x", "is not of the form [NAME://]host[:port]"),
        ("://localhost", "is not of the form [NAME://]host[:port]"),
        ("IN://:29092", "is not of the form [NAME://]host[:port]"),
        ("CONTROLLER://h:1", "CONTROLLER is not one of the listeners IN, OUT"),
        ("h:1", "does not say which listener has this port: write NAME://host:port (IN, OUT)"),
        ("OUT://h:1,OUT://h:2", "is a second entry for the same listener"),
        ("a,b", "is a second entry for the same listener"),
    ],
)
def test_an_invalid_published_address_is_refused(entries: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(TWO | {"odradek.advertise.published": entries})
    assert words in str(refused.value)


def test_advertised_listeners_win_over_the_arrival() -> None:
    assert BrokerConfig({"odradek.advertise": "arrival"}).is_advertised_by_arrival
    explicit = {"odradek.advertise": "arrival", "advertised.listeners": "PLAINTEXT://broker:9092"}
    assert not BrokerConfig(explicit).is_advertised_by_arrival
    assert not BrokerConfig({}).is_advertised_by_arrival
