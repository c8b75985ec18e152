"""Tests that Kafka's tool sets client quotas on our broker, and that a directory with quotas moves to Kafka and
back."""

from pathlib import Path

from tests.conformance.tools import Tools
from tests.support.broker_process import Broker, BrokerProcess, KafkaProcess
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

ANN, APP, HOME = ("--entity-type", "users"), ("--entity-type", "clients"), ("--entity-type", "ips")
QUOTAS = {
    (*ANN, "--entity-name", "ann"): "producer_byte_rate=1024,request_percentage=12.5",
    (*ANN, "--entity-name", "ann", *APP, "--entity-name", "app"): "consumer_byte_rate=2048",
    (*ANN, "--entity-default", *APP, "--entity-default"): "controller_mutation_rate=0.5",
    (*APP, "--entity-default"): "consumer_byte_rate=4096",
    (*HOME, "--entity-name", "127.0.0.1"): "connection_creation_rate=1000",
    (*HOME, "--entity-default"): "connection_creation_rate=2000",
}
DESCRIBED = {
    "Quota configs for user-principal 'ann' are producer_byte_rate=1024.0, request_percentage=12.5",
    "Quota configs for user-principal 'ann', client-id 'app' are consumer_byte_rate=2048.0",
    "Quota configs for the default user-principal, the default client-id are controller_mutation_rate=0.5",
    "Quota configs for the default client-id are consumer_byte_rate=4096.0",
    "Quota configs for ip '127.0.0.1' are connection_creation_rate=1000.0",
    "Quota configs for the default ip are connection_creation_rate=2000.0",
}


def configs(tools: Tools, broker: Broker, *words: str, status: int = 0) -> str:
    ran = tools.run("configs", "--bootstrap-server", broker.bootstrap, *words, status=status)
    return ran.stdout + ran.stderr


def described(tools: Tools, broker: Broker) -> set[str]:
    """Returns one line for each entity, with its limits sorted by name."""
    lines = set()
    for entity in (ANN, APP, (*ANN, *APP), HOME):
        for line in configs(tools, broker, "--describe", *entity).splitlines():
            if " are " in line:
                whom, _, limits = line.partition(" are ")
                lines.add(f"{whom} are {', '.join(sorted(limits.split(', ')))}")
    return lines


def test_kafkas_tool_sets_describes_and_removes_quotas_and_directories_go_to_kafka_and_back(
    tools: Tools, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        for entity, limits in QUOTAS.items():
            assert "Completed updating" in configs(tools, broker, "--alter", *entity, "--add-config", limits)
        assert described(tools, broker) == DESCRIBED
        refused = configs(
            tools, broker, "--alter", *ANN, "--entity-name", "bob", "--add-config", "producer_byte_rate=-1", status=1
        )
        assert "producer_byte_rate" in refused
        port = broker.port
    with KafkaProcess(tmp_path / "data", port=port) as kafka:
        assert described(tools, kafka) == DESCRIBED
        configs(tools, kafka, "--alter", *APP, "--entity-default", "--delete-config", "consumer_byte_rate")
        configs(tools, kafka, "--alter", *ANN, "--entity-default", "--add-config", "consumer_byte_rate=8192")
    by_kafka = {each for each in DESCRIBED if "4096" not in each} | {
        "Quota configs for the default user-principal are consumer_byte_rate=8192.0"
    }
    with BrokerProcess(tmp_path / "data") as broker:
        assert described(tools, broker) == by_kafka
        configs(tools, broker, "--alter", *ANN, "--entity-default", "--delete-config", "consumer_byte_rate")
        assert described(tools, broker) == {each for each in by_kafka if "8192" not in each}
