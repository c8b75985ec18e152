"""Tests that the image works with the Kafka modules of Testcontainers. Each test repeats the steps of one module:
org.testcontainers:kafka 1.21 and 2, and the modules for Python (4), Node (12.2), Go (0.40), .NET (4) and Rust (0.13).

All modules start a shell that waits for a script. They look up the host port on which the container is published, write
this port into the script, and wait for a line in the log.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

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
    """Waits until files can be copied into the container, as an engine's API does."""
    deadline = time.monotonic() + 60
    while container.execute("true").returncode != 0:
        assert time.monotonic() < deadline, container.log
        time.sleep(0.02)


@pytest.mark.parametrize("waits_for_flag", [False, True], ids=["1.20", "2"])
def test_the_java_module_starts_the_image_in_place_of_apache_kafka(start: Run, waits_for_flag: bool) -> None:
    awaited = JAVA_FLAG if waits_for_flag else JAVA_SCRIPT
    loop = f"while [ ! -f {awaited} ]; do sleep 0.1; done; {JAVA_SCRIPT}"
    host = ReservedPort()
    kafka = start("sh", "-c", loop, name="d34db33f", environment=JAVA_ENVIRONMENT, ports=((host.number, 9092),))
    wait_until_inside(kafka)
    advertised = f"PLAINTEXT://localhost:{host.number},BROKER://d34db33f:9093"
    script = f"#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS={advertised}\n/etc/kafka/docker/run \n"
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
def test_the_python_module_starts_the_image(start: Run, environment: dict[str, str], boot: str, awaited: str) -> None:
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


@dataclass(frozen=True, slots=True)
class Module:
    """A module that calls a start script of Confluent's or Apache's image.

    waits    the container's command, which waits for `script`
    text     content of the script; `{published}` is replaced with the host's address
    awaited  pattern that the module searches the log for
    """

    environment: Mapping[str, str]
    waits: str
    script: str
    text: str
    awaited: str
    port: int
    mode: int = 0o755


ONE_OF_ALL = {
    "KAFKA_BROKER_ID": "1",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
KRAFT = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092,CONTROLLER://0.0.0.0:9094",
}
RUN = "/etc/confluent/docker/run"
STARTED = r"\[KafkaServer id=\d+\] started"
RUNNING = r"Transitioning from RECOVERY to RUNNING"
MODULES: Mapping[str, Module] = {
    "java-confluent": Module(
        {**ONE_OF_ALL, **KRAFT, "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw"},
        f"while [ ! -f {JAVA_SCRIPT} ]; do sleep 0.1; done; {JAVA_SCRIPT}",
        JAVA_SCRIPT,
        f"#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS={{published}},BROKER://d34db33f:9092\n{RUN} \n",
        RUNNING,
        9093,
    ),
    "node": Module(
        {
            **ONE_OF_ALL,
            **KRAFT,
            "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
            "KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE": "false",
        },
        f"echo 'Waiting for script...'; while [ ! -f {JAVA_SCRIPT} ]; do sleep 0.1; done; {JAVA_SCRIPT}",
        JAVA_SCRIPT,
        f"#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS=BROKER://d34db33f:9092,{{published}}\n{RUN} \n",
        STARTED,
        9093,
    ),
    "node-zookeeper": Module(
        {
            **ONE_OF_ALL,
            "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092",
            "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181",
        },
        f"while [ ! -f {JAVA_SCRIPT} ]; do sleep 0.1; done; {JAVA_SCRIPT}",
        JAVA_SCRIPT,
        "#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS=BROKER://d34db33f:9092,{published}\n"
        "echo '' > /etc/confluent/docker/ensure \necho 'clientPort=2181' > zookeeper.properties\n"
        f"zookeeper-server-start zookeeper.properties &\n{RUN} \n",
        STARTED,
        9093,
    ),
    "go": Module(
        {
            **ONE_OF_ALL,
            **KRAFT,
            "KAFKA_REST_BOOTSTRAP_SERVERS": "PLAINTEXT://0.0.0.0:9093",
            "CLUSTER_ID": "test-cluster",
        },
        "while [ ! -f /usr/sbin/testcontainers_start.sh ]; do sleep 0.1; done; bash /usr/sbin/testcontainers_start.sh",
        "/usr/sbin/testcontainers_start.sh",
        "#!/bin/bash\nsource /etc/confluent/docker/bash-config\n"
        "export KAFKA_ADVERTISED_LISTENERS={published},BROKER://d34db33f:9092\n"
        "sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure\n"
        "echo 'kafka-storage format --ignore-formatted -t \"$(kafka-storage random-uuid)\" -c /etc/kafka/x.properties'"
        " >> /etc/confluent/docker/configure\n"
        "echo '' > /etc/confluent/docker/ensure\n/etc/confluent/docker/configure\n/etc/confluent/docker/launch",
        RUNNING,
        9093,
    ),
    "dotnet": Module(
        {
            **ONE_OF_ALL,
            "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181",
        },
        "while [ ! -f /testcontainers.sh ]; do sleep 0.1; done; /testcontainers.sh",
        "/testcontainers.sh",
        # The list of listeners ends with a comma because the user adds no listener. The first line starts with a space,
        # so it is not a shebang.
        " #!/bin/bash\n echo 'clientPort=2181' > zookeeper.properties\n"
        " zookeeper-server-start zookeeper.properties &\n"
        " export KAFKA_ADVERTISED_LISTENERS={published},BROKER://172.31.0.2:9093,\n"
        f" echo '' > /etc/confluent/docker/ensure\n exec {RUN}\n",
        STARTED,
        9092,
    ),
    "rust": Module(
        {
            **ONE_OF_ALL,
            "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093,CONTROLLER://0.0.0.0:9094",
            "CLUSTER_ID": "5L6g3nShT-eMCtK--X86sw",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
        },
        "while [ ! -f /opt/kafka/testcontainers_start.sh  ]; do sleep 0.1; done;"
        " chmod 755 /opt/kafka/testcontainers_start.sh && /opt/kafka/testcontainers_start.sh",
        "/opt/kafka/testcontainers_start.sh",
        "#!/usr/bin/env bash\nexport KAFKA_ADVERTISED_LISTENERS={published},BROKER://localhost:9093\n"
        "/etc/kafka/docker/run \n",
        "Kafka Server started",
        9092,
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_the_module_of_each_language_starts_the_image(start: Run, name: str) -> None:
    module = MODULES[name]
    host = ReservedPort()
    kafka = start(
        "sh", "-c", module.waits, name="d34db33f", environment=module.environment, ports=((host.number, module.port),)
    )
    wait_until_inside(kafka)
    text = module.text.replace("{published}", f"PLAINTEXT://localhost:{host.number}")
    if name == "rust":  # This module makes a program in the container write the script as the container's user.
        written = kafka.execute("sh", "-c", f"printf '%s' '{text}' > {module.script}")
        assert written.returncode == 0, written.stderr
    else:
        kafka.copy_in(text, module.script, mode=module.mode)
    wait_for_log(kafka, module.awaited)
    produce(f"localhost:{host.number}", "orders", ["1"])
    assert consume(f"localhost:{host.number}", "orders", 1) == ["1"]
