"""Tests the image's environment: the variables of apache/kafka, and the image's own defaults."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.broker.configuration.config import configure
from odradek.broker.configuration.environment import settings_of_environment
from odradek.tools.container.environment import (
    DATA_DIRECTORY,
    DEFAULTS,
    Environment,
    SecretMissing,
    complete,
    data_directory,
)

NOTHING: Mapping[str, str] = {}


def no_secrets(name: str) -> str:
    raise SecretMissing(name)


def completed(given: Mapping[str, str], in_file: Mapping[str, str] = NOTHING, **known: str) -> Environment:
    return complete(given, in_file, read_secret=no_secrets, formatted_cluster_id=known.get("formatted_cluster_id"))


def settings(given: Mapping[str, str], in_file: Mapping[str, str] = NOTHING) -> dict[str, str]:
    """Returns the broker's settings for an image with these environment variables and this properties file."""
    config, _ = configure(in_file, completed(given, in_file).variables, {})
    return config.given_settings


def test_without_settings_the_image_has_its_own_defaults() -> None:
    found = settings({})
    assert found["listeners"] == "PLAINTEXT://:9092"
    assert found["log.dirs"] == DATA_DIRECTORY
    assert found["odradek.advertise"] == "arrival"
    assert found["odradek.advertise.published"] == "localhost"
    assert found["odradek.http.host"] == ""


@pytest.mark.parametrize("variable", DEFAULTS)
def test_the_environment_and_the_file_override_defaults_of_the_image(variable: str) -> None:
    setting = next(iter(settings_of_environment({variable: ""})))
    value = {"KAFKA_LISTENERS": "PLAINTEXT://:1", "KAFKA_ODRADEK_ADVERTISE": "listeners"}.get(variable, "given")
    assert settings({variable: value})[setting] == value
    assert settings({}, {setting: value})[setting] == value
    assert settings({variable: value}, {setting: "PLAINTEXT://:2"})[setting] == value  # a variable overrides the file


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"KAFKA_LOG_RETENTION_MS": "1"}, {"log.retention.ms": "1"}),
        ({"KAFKA_SSL_KEY__X": "1"}, {"ssl.key_x": "1"}),
        ({"KAFKA_A___B": "1"}, {"a-b": "1"}),
        ({"KAFKA_A__B_C___D": "1"}, {"a_b.c-d": "1"}),
        ({"kafka_num_partitions": "1", "NUM_PARTITIONS": "1", "XKAFKA_A": "1"}, {}),
        ({"CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw"}, {"odradek.cluster.id": "4L6g3nShT-eMCtK--X86sw"}),
        ({"KAFKA_NUM_PARTITIONS": ""}, {"num.partitions": ""}),
        (
            dict.fromkeys(
                (
                    "KAFKA_VERSION",
                    "KAFKA_HEAP_OPTS",
                    "KAFKA_LOG4J_OPTS",
                    "KAFKA_OPTS",
                    "KAFKA_JMX_OPTS",
                    "KAFKA_JMX_PORT",
                    "KAFKA_JVM_PERFORMANCE_OPTS",
                    "KAFKA_GC_LOG_OPTS",
                    "KAFKA_LOG4J_ROOT_LOGLEVEL",
                    "KAFKA_LOG4J_LOGGERS",
                    "KAFKA_TOOLS_LOG4J_LOGLEVEL",
                    "KAFKA_JMX_HOSTNAME",
                ),
                "x",
            ),
            {},
        ),
    ],
)
def test_variables_are_mapped_as_apache_kafka_does(variables: dict[str, str], expected: dict[str, str]) -> None:
    own = settings_of_environment(DEFAULTS)
    found = settings_of_environment(completed(variables).variables)
    assert {name: value for name, value in found.items() if name not in own} == expected


@pytest.mark.parametrize(
    ("advertised", "listeners"),
    [
        ("PLAINTEXT://localhost:9092", "PLAINTEXT://:9092"),
        ("IN://broker:19092, OUT://localhost:9092", "IN://:19092,OUT://:9092"),
        ("PLAINTEXT://[2001:db8::1]:9092", "PLAINTEXT://:9092"),
    ],
)
def test_listeners_follow_from_advertised_listeners(advertised: str, listeners: str) -> None:
    assert completed({"KAFKA_ADVERTISED_LISTENERS": advertised}).variables["KAFKA_LISTENERS"] == listeners
    assert completed({}, {"advertised.listeners": advertised}).variables["KAFKA_LISTENERS"] == listeners
    # A compose file can set a variable to the empty string. The variable then counts as unset.
    given = {"KAFKA_ADVERTISED_LISTENERS": advertised, "KAFKA_LISTENERS": ""}
    assert completed(given).variables["KAFKA_LISTENERS"] == listeners
    assert "KAFKA_LISTENERS" not in completed({"KAFKA_ADVERTISED_LISTENERS": advertised}, {"listeners": "x"}).variables


def test_a_comma_at_the_end_of_listeners_is_dropped() -> None:
    found = settings({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:1,"})
    assert (found["advertised.listeners"], found["listeners"]) == ("PLAINTEXT://localhost:1", "PLAINTEXT://:1")


@pytest.mark.parametrize("given", [{"KAFKA_LOG_DIR": "/logs"}, {"KAFKA_LOG_DIRS": "/logs"}])
def test_a_directory_that_is_given_replaces_the_default_under_either_name(given: dict[str, str]) -> None:
    config, _ = configure({}, completed(given).variables, {})
    assert str(config.data_directory) == "/logs"


def test_the_data_directory_is_found_before_the_broker_starts() -> None:
    assert data_directory({}, {}) == Path(DATA_DIRECTORY)
    assert data_directory({"KAFKA_LOG_DIR": "/a"}, {}) == Path("/a")
    assert data_directory({"KAFKA_LOG_DIR": "/a"}, {"log.dirs": "/b", "log.dir": "/c"}) == Path("/b")
    assert data_directory({"KAFKA_LOG_DIRS": "/a"}, {"log.dirs": "/b"}) == Path("/a")


def test_the_cluster_id_is_for_a_new_directory() -> None:
    assert completed({"CLUSTER_ID": "a"}).variables["CLUSTER_ID"] == "a"
    assert completed({"CLUSTER_ID": "a"}, formatted_cluster_id="a").notes == ()
    other = completed({"CLUSTER_ID": "a"}, formatted_cluster_id="b")
    assert "CLUSTER_ID" not in other.variables
    assert other.notes == ("CLUSTER_ID=a is ignored: this data directory belongs to b",)


def test_settings_of_a_quorum_are_accepted_and_noted_once() -> None:
    given = {
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
        "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
        "KAFKA_NUM_PARTITIONS": "3",
    }
    environment = completed(given)
    config, warnings = configure({}, environment.variables, {})
    assert (config.num_partitions, warnings) == (3, ())
    assert environment.notes == (
        (
            "these settings have no effect on a single broker, and are ignored: controller.quorum.voters,"
            " inter.broker.listener.name, process.roles, zookeeper.connect"
        ),
    )


def test_options_of_a_java_vm_are_accepted_and_noted_once() -> None:
    environment = completed({"KAFKA_HEAP_OPTS": "-Xmx1G", "KAFKA_JMX_PORT": "9101"})
    assert environment.notes == (
        "these variables are ignored, because this image has no Java VM: KAFKA_HEAP_OPTS, KAFKA_JMX_PORT",
    )


def test_stores_and_their_passwords_come_from_the_folder_of_secrets() -> None:
    given = {
        "KAFKA_SSL_KEYSTORE_FILENAME": "broker.jks",
        "KAFKA_SSL_KEYSTORE_CREDENTIALS": "keystore_creds",
        "KAFKA_SSL_KEY_CREDENTIALS": "key_creds",
    }
    variables = complete(given, {}, read_secret={"keystore_creds": "one\n", "key_creds": "two"}.__getitem__).variables
    found = settings_of_environment(variables)
    assert found["ssl.keystore.location"] == "/etc/kafka/secrets/broker.jks"
    assert (found["ssl.keystore.password"], found["ssl.key.password"]) == ("one", "two")
    assert not [name for name in found if name.endswith(("filename", "credentials"))]
    with pytest.raises(SecretMissing):
        completed(given)
