"""Tests that clients on the host and in the containers' network reach the broker, and that the log names a client to
which the broker advertises the wrong address."""

from typing import Any

from tests.image.clients import advertised_address, consume, produce
from tests.image.conftest import Run
from tests.support.reserved_port import ReservedPort

NEIGHBOUR: dict[str, Any] = {"address": "172.31.0.3", "ports": ()}


def test_the_host_and_other_containers_both_connect(start: Run) -> None:
    broker = start()
    broker.wait_until_healthy()
    assert advertised_address("localhost:9092") == ("localhost", 9092)
    produce("localhost:9092", "orders", ["from the host"])
    words = ("consume", "-t", "orders", "-o", "beginning", "-c", "1", "-b", "broker:9092")
    neighbour = start(*words, name="consumer", **NEIGHBOUR, knows={"broker": "172.31.0.2"})
    assert neighbour.wait() == 0
    assert neighbour.log == "from the host\n"
    assert "is told to connect to" not in broker.log


def test_clients_get_another_host_port_if_it_is_declared(start: Run) -> None:
    host = ReservedPort()
    address = f"localhost:{host.number}"
    broker = start(environment={"KAFKA_ODRADEK_ADVERTISE_PUBLISHED": address}, ports=((host.number, 9092),))
    broker.wait_until_healthy()
    assert advertised_address(address) == ("localhost", host.number)
    produce(address, "orders", ["1"])
    assert consume(address, "orders", 1) == ["1"]


def test_a_container_that_is_sent_to_itself_is_named_in_the_log(start: Run) -> None:
    broker = start(environment={"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092"})
    broker.wait_until_healthy()
    for _ in range(2):
        producer = "echo 1 | odradek produce -t orders --timeout 3 -b 172.31.0.2:9092"
        neighbour = start("sh", "-c", producer, name="astray", **NEIGHBOUR)
        assert neighbour.wait() != 0
        neighbour.remove()
    assert broker.log.count("client 172.31.0.3") == 1
    assert (
        "is told to connect to localhost:9092, which is the client's own machine, and not this broker: set advertised"
        in broker.log
    )
