"""What the Kafka modules of Testcontainers do with an image, step by step: org.testcontainers:kafka 1.21 and 2
(`org.testcontainers.kafka.KafkaContainer`) and testcontainers-python 4 (`KafkaContainer`).

Both start a shell that waits for a script, learn on which port of the host the container is published, write that port
into the script, and wait for a line in the log.
"""

import re
import time

import pytest

from tests.image.clients import consume, produce
from tests.image.conftest import Run
from tests.image.machine import Container
from tests.support.reserved_port import ReservedPort

JAVA_SCRIPT, JAVA_FLAG = "/tmp/testcontainers_start.sh", "/tmp/testcontainers_start.ready"
JAVA_ENVIRONMENT = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_LISTENERS": "PLAINTEXT://:9092,BROKER://:9093,CONTROLLER://:9094",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_NODE_ID": "1",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": str(2**63 - 1),
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
PYTHON_SCRIPT = "/tc-start.sh"
PYTHON_ENVIRONMENT = {
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_BROKER_ID": "1",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "10000000",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
KRAFT_ENVIRONMENT = {
    **PYTHON_ENVIRONMENT,
    "CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qk",
    "KAFKA_NODE_ID": "1",
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092,CONTROLLER://0.0.0.0:9094",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
}
WITH_ZOOKEEPER = """\
echo 'clientPort=2181' > zookeeper.properties
echo 'dataDir=/var/lib/zookeeper/data' >> zookeeper.properties
echo 'dataLogDir=/var/lib/zookeeper/log' >> zookeeper.properties
zookeeper-server-start zookeeper.properties &
export KAFKA_ZOOKEEPER_CONNECT='localhost:2181'
"""
WITH_KRAFT = """\
sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure
echo 'kafka-storage format --ignore-formatted -t X -c /etc/kafka/kafka.properties' >> /etc/confluent/docker/configure
"""


def wait_for_log(container: Container, awaited: str) -> None:
    deadline = time.monotonic() + 60
    while not re.search(awaited, container.log):
        assert time.monotonic() < deadline, container.log
        time.sleep(0.02)


def wait_until_inside(container: Container) -> None:
    """Until a file can be copied in: the engine's API waits for that too."""
    deadline = time.monotonic() + 60
    while container.execute("true").returncode != 0:
        assert time.monotonic() < deadline, container.log
        time.sleep(0.02)


@pytest.mark.parametrize("waits_for_flag", [False, True], ids=["1.20", "2"])
def test_the_java_module_starts_it_in_place_of_apache_kafka(start: Run, waits_for_flag: bool) -> None:
    awaited = JAVA_FLAG if waits_for_flag else JAVA_SCRIPT
    loop = f"while [ ! -f {awaited} ]; do sleep 0.1; done; {JAVA_SCRIPT}"
    host = ReservedPort()
    kafka = start("sh", "-c", loop, name="d34db33f", environment=JAVA_ENVIRONMENT, ports=((host.number, 9092),))
    wait_until_inside(kafka)
    told = f"PLAINTEXT://localhost:{host.number},BROKER://d34db33f:9093"
    script = f"#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS={told}\n/etc/kafka/docker/run \n"
    kafka.copy_in(script, JAVA_SCRIPT, mode=0o777)
    kafka.copy_in("", JAVA_FLAG)
    wait_for_log(kafka, r".*Transitioning from RECOVERY to RUNNING.*")
    produce(f"localhost:{host.number}", "orders", ["1"])
    assert consume(f"localhost:{host.number}", "orders", 1) == ["1"]


@pytest.mark.parametrize(
    ("environment", "boot", "awaited"),
    [
        (PYTHON_ENVIRONMENT, WITH_ZOOKEEPER, r".*\[KafkaServer id=\d+\] started.*"),
        (KRAFT_ENVIRONMENT, WITH_KRAFT, r".*Kafka Server started.*"),
    ],
    ids=["zookeeper", "kraft"],
)
def test_the_python_module_starts_it(start: Run, environment: dict[str, str], boot: str, awaited: str) -> None:
    loop = f"while [ ! -f {PYTHON_SCRIPT} ]; do sleep 0.1; done; sh {PYTHON_SCRIPT}"
    host = ReservedPort()
    kafka = start("sh", "-c", loop, name="d34db33f", environment=environment, ports=((host.number, 9093),))
    wait_until_inside(kafka)
    script = (
        f"#!/bin/bash\n{boot}"
        f"export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:{host.number},BROKER://$(hostname -i):9092\n"
        ". /etc/confluent/docker/bash-config\n/etc/confluent/docker/configure\n/etc/confluent/docker/launch"
    )
    kafka.copy_in(script, PYTHON_SCRIPT, mode=0o644)
    wait_for_log(kafka, awaited)
    produce(f"localhost:{host.number}", "orders", ["1"])
    assert consume(f"localhost:{host.number}", "orders", 1) == ["1"]
