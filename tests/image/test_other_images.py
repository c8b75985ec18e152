"""Tests that the image can replace bitnami/kafka and Confluent's images, and supports their environment variables,
volume and scripts."""

from pathlib import Path

import pytest

from tests.image.clients import consume, produce
from tests.image.conftest import Run

BITNAMI = {
    "KAFKA_CFG_NODE_ID": "0",
    "KAFKA_CFG_PROCESS_ROLES": "controller,broker",
    "KAFKA_CFG_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "KAFKA_CFG_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
    "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_CFG_CONTROLLER_QUORUM_VOTERS": "0@kafka:9093",
    "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "ALLOW_PLAINTEXT_LISTENER": "yes",
}


def test_a_volume_of_bitnami_is_used(start: Run, tmp_path: Path) -> None:
    volume = tmp_path / "kafka"
    volume.mkdir()
    volume.chmod(0o777)
    broker = start(environment=BITNAMI, mounts={"/bitnami/kafka": volume}, volume=tmp_path / "anonymous")
    broker.wait_for("accepts Kafka clients")
    produce("localhost:9092", "orders", ["1"])
    assert consume("localhost:9092", "orders", 1) == ["1"]
    assert (volume / "data" / "orders-0").is_dir()


def test_a_volume_is_not_needed(start: Run) -> None:
    broker = start("/opt/bitnami/scripts/kafka/run.sh", environment=BITNAMI)
    broker.wait_for("accepts Kafka clients")
    broker.wait_until_healthy()


@pytest.mark.parametrize(
    "script",
    [
        "kafka-topics",
        "kafka-topics.sh",
        "/usr/bin/kafka-topics",
        "/opt/kafka/bin/kafka-topics.sh",
        "/opt/bitnami/kafka/bin/kafka-topics.sh",
    ],
)
def test_scripts_have_the_names_of_all_images(start: Run, script: str) -> None:
    broker = start(environment=BITNAMI)
    broker.wait_for("accepts Kafka clients")
    ready = broker.execute("cub", "kafka-ready", "-b", "localhost:9092", "1", "20")
    assert ready.returncode == 0, ready.stderr
    connection = "--bootstrap-server localhost:9092"
    made = broker.execute("sh", "-c", f"{script} {connection} --create --if-not-exists --topic orders --partitions 2")
    assert made.returncode == 0, made.stderr
    assert broker.execute("sh", "-c", f"{script} {connection} --list --topic 'ord.*'").stdout == "orders\n"
