"""Tests that Odradek derives settings from environment variables as the program in the apache/kafka 4.3.1 image
does."""

import os
import subprocess
from pathlib import Path

from odradek.broker.configuration.environment import settings_of_environment
from odradek.protocol.java_properties import parse_properties
from tests.support.oracle import needs_kafka, run_kafka

pytestmark = needs_kafka

VARIABLES = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LOG_RETENTION_MS": "-1",
    "KAFKA_A__B": "one underscore",
    "KAFKA_A___B": "one hyphen",
    "KAFKA_A____B": "four",
    "KAFKA_A_____B": "five",
    "KAFKA_A__B_C___D": "all of them",
    "KAFKA_": "no name",
    "KAFKA_KAFKA_X": "twice",
    "KAFKA_lower_Case": "any case",
    "KAFKA_EMPTY": "",
    "KAFKA_EQUALS": "a=b,c=d",
    "KAFKA_JMX_PORT": "9101",
    "NOT_KAFKA_X": "x",
    "kafka_x": "x",
    **dict.fromkeys(
        (
            *("KAFKA_VERSION", "KAFKA_HEAP_OPTS", "KAFKA_LOG4J_OPTS", "KAFKA_OPTS", "KAFKA_JMX_OPTS"),
            *("KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_GC_LOG_OPTS", "KAFKA_JMX_HOSTNAME"),
        ),
        "excluded",
    ),
    "KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN",
    "KAFKA_LOG4J_LOGGERS": "kafka=WARN",
    "KAFKA_TOOLS_LOG4J_LOGLEVEL": "WARN",
}


def settings_of_kafka(variables: dict[str, str], mounted: str | None, folder: Path) -> dict[str, str]:
    """Returns the settings in the server.properties that Kafka's image would use."""
    for name in ("default", "mounted", "final"):
        (folder / name).mkdir()
        for file in ("log4j2.yaml", "tools-log4j2.yaml"):
            text = "Configuration:\n  Loggers:\n    Root:\n      level: INFO\n    Logger: []\n"
            (folder / name / file).write_text(text)
    (folder / "default/server.properties").write_text("from=default\n")
    (folder / "final/server.properties").write_text("")
    if mounted is not None:
        (folder / "mounted/server.properties").write_text(mounted)
    words = ["java", "-cp", run_kafka("classpath").strip(), "kafka.docker.KafkaDockerWrapper", "setup"]
    # The program then tries to format a directory and fails because there is no cluster id. The test ignores this.
    done = subprocess.run(
        [*words, *(f"--{name}-configs-dir={folder / name}" for name in ("default", "mounted", "final"))],
        env={**{name: value for name, value in os.environ.items() if "KAFKA" not in name.upper()}, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    text = (folder / "final/server.properties").read_text()
    assert text, done.stderr
    return parse_properties(text)


def test_variables_become_the_same_settings(tmp_path: Path) -> None:
    assert settings_of_environment(VARIABLES) == settings_of_kafka(VARIABLES, None, tmp_path)


def test_a_variable_replaces_a_setting_of_the_mounted_file(tmp_path: Path) -> None:
    variables = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_A___B": "x"}
    mounted = "num.partitions=7\nlog.dirs=/mounted"
    found = settings_of_kafka(variables, mounted, tmp_path)
    assert {**parse_properties(mounted), **settings_of_environment(variables)} == found
