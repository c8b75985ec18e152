"""Tests the addresses that clients receive, and the warnings about addresses at which a client would only reach
itself."""

import logging

import pytest

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.configuration.advertising import Networks
from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.network.addresses import MAX_WARNINGS, ClientAddresses, client_addresses, networks_of_this_host

ROUTES = """\
Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010012AC	0003	0	0	0	00000000	0	0	0
eth0	000012AC	00000000	0001	0	0	0	0000FFFF	0	0	0
"""
LOCALHOST = ("localhost", 9092)


def addresses(**settings: str) -> ClientAddresses:
    config = BrokerConfig({name.replace("_", "."): text for name, text in settings.items()})
    by_arrival = config.is_advertised_by_arrival
    return ClientAddresses(config.published, is_by_arrival=by_arrival, networks=lambda: Networks.of_routes(ROUTES))


def client(host: str) -> ConnectionInfo:
    return ConnectionInfo(1, host, 50_000, local_address=("172.18.0.2", 9092), client_software_name="librdkafka")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_client_that_is_sent_to_its_own_localhost_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    advertised = addresses(advertised_listeners="PLAINTEXT://localhost:9092")
    for host in ("172.18.0.3", "172.18.0.3", "127.0.0.1"):
        assert advertised.address_for(LOCALHOST, client(host)) == LOCALHOST
    assert warnings(caplog) == [
        (
            "client 172.18.0.3 (librdkafka) is told to connect to localhost:9092, which is the"
            " client's own machine, and not this broker: set advertised.listeners to an address that the client can"
            " reach, or remove this setting and set odradek.advertise=arrival"
        )
    ]


def test_by_arrival_only_clients_from_other_machines_can_be_misled(caplog: pytest.LogCaptureFixture) -> None:
    by_arrival = addresses(odradek_advertise="arrival", odradek_advertise_published="localhost")
    assert by_arrival.address_for(LOCALHOST, client("172.18.0.3")) == ("172.18.0.2", 9092)
    assert by_arrival.address_for(LOCALHOST, client("172.18.0.1")) == LOCALHOST
    assert warnings(caplog) == []
    assert by_arrival.address_for(LOCALHOST, client("10.1.2.3")) == LOCALHOST
    assert warnings(caplog) == [
        (
            "client 10.1.2.3 (librdkafka) is told to connect to localhost:9092, which is the"
            " client's own machine, and not this broker: set odradek.advertise.published to an address that"
            " the client can reach"
        )
    ]


def test_a_broker_that_misleads_everybody_does_not_fill_its_log(caplog: pytest.LogCaptureFixture) -> None:
    advertised = addresses()
    for number in range(MAX_WARNINGS + 10):
        advertised.address_for(LOCALHOST, client(f"10.0.0.{number}"))
    assert len(warnings(caplog)) == MAX_WARNINGS


def test_a_client_gets_the_same_address_while_it_is_connected() -> None:
    routes = [ROUTES, ""]
    by_arrival = ClientAddresses({}, is_by_arrival=True, networks=lambda: Networks.of_routes(routes.pop(0)))
    connection = client("172.18.0.3")
    assert by_arrival.address_for(LOCALHOST, connection) == by_arrival.address_for(LOCALHOST, connection)
    assert routes == [""]  # the routes were read only once


def test_the_routes_of_this_host_can_be_read() -> None:
    networks_of_this_host()
    assert isinstance(client_addresses(BrokerConfig({})), ClientAddresses)
