"""Tests the address that a broker returns to clients if its machine has several addresses."""

import socket

import pytest

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.fetch.request import EndpointForm, node_endpoints
from odradek.broker.metadata.image import MetadataImage
from odradek.protocol.messages import fetch_response, share_fetch_response
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_cluster_response import DescribeClusterResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.messages.register_broker_record import BrokerEndpoint, RegisterBrokerRecord
from tests.clients.conftest import StartBroker
from tests.support.broker_process import IS_KAFKA
from tests.support.wire import Wire

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="odradek.advertise is a setting of Odradek")

EVERYWHERE = {"listeners": "PLAINTEXT://0.0.0.0:0"}
ARRIVAL = {**EVERYWHERE, "odradek.advertise": "arrival"}


def reported_addresses(host: str, port: int) -> set[tuple[str, int]]:
    """Connects to `host` and returns all broker addresses in the responses."""
    with Wire(f"{host}:{port}") as wire:
        brokers = wire.ask(MetadataRequest(topics=[]), 12, MetadataResponse).brokers
        described = wire.ask(DescribeClusterRequest(), 1, DescribeClusterResponse).brokers
        found = wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4, FindCoordinatorResponse)
    return (
        {(broker.host, broker.port) for broker in brokers}
        | {(broker.host, broker.port) for broker in described}
        | {(coordinator.host, coordinator.port) for coordinator in found.coordinators}
    )


def address_of_this_host() -> str:
    """Returns this machine's address for outgoing connections. Skips the test if the machine has only a loopback
    address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # Connecting a datagram socket sends nothing.
        except OSError:
            pytest.skip("this machine has no address but loopback")
        host: str = probe.getsockname()[0]
    return host


def test_by_arrival_every_response_has_the_address_to_which_the_client_connected(start_broker: StartBroker) -> None:
    port = start_broker(ARRIVAL).port
    for host in ("127.0.0.1", "127.0.0.2", address_of_this_host()):
        assert reported_addresses(host, port) == {(host, port)}


def test_addresses_by_arrival_work_on_ipv6_and_ipv4_at_once(start_broker: StartBroker) -> None:
    port = start_broker({**ARRIVAL, "listeners": "PLAINTEXT://:0"}).port
    assert reported_addresses("127.0.0.1", port) == {("127.0.0.1", port)}
    try:
        assert reported_addresses("::1", port) == {("::1", port)}
    except OSError:
        pytest.skip("this machine has no IPv6")


def test_every_client_gets_the_address_of_advertised_listeners(start_broker: StartBroker) -> None:
    port = start_broker({**ARRIVAL, "advertised.listeners": "PLAINTEXT://broker.example:29092"}).port
    assert reported_addresses("127.0.0.1", port) == reported_addresses("127.0.0.2", port) == {("broker.example", 29092)}


def test_without_arrival_clients_get_the_host_name_of_the_listener(start_broker: StartBroker) -> None:
    assert reported_addresses("127.0.0.2", (port := start_broker(EVERYWHERE).port)) == {("localhost", port)}


@pytest.mark.parametrize("form", [fetch_response.NodeEndpoint, share_fetch_response.NodeEndpoint])
def test_endpoints_beside_a_leadership_error_are_those_of_the_metadata(
    form: EndpointForm[fetch_response.NodeEndpoint | share_fetch_response.NodeEndpoint],
) -> None:
    class ArrivalAddresses:
        def address_for(self, registered: tuple[str, int], connection: ConnectionInfo) -> tuple[str, int]:
            return connection.local_address

    image = MetadataImage()
    endpoint = BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092)
    image.replay(RegisterBrokerRecord(broker_id=1, fenced=False, end_points=[endpoint]))
    connection = ConnectionInfo(
        1, "172.18.0.3", 50_000, local_address=("172.18.0.2", 9092), addresses=ArrivalAddresses()
    )
    (found,) = node_endpoints(form, image, {1}, connection)
    assert (found.host, found.port) == ("172.18.0.2", 9092)
