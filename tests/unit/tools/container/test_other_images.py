"""Compose files for bitnami/kafka, cp-kafka and confluent-local: their environments give the settings that they gave
there, and the log names the variables that have no effect."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from odradek.broker.configuration.config import configure
from odradek.seeds.short_forms import topics_of_environment
from odradek.serve import with_users
from odradek.tools.container.environment import Environment, complete, data_directory
from odradek.tools.container.other_images import (
    BITNAMI_DATA_DIRECTORY,
    InvalidVariable,
    MappedEnvironment,
    as_apache_kafka,
)

FILES = sorted(Path(__file__).with_name("environments").glob("*.yaml"))
SHAPES = [(file.stem, shape) for file in FILES for shape in yaml.safe_load(file.read_text())]
NOTHING: Mapping[str, str] = {}


def mapped(given: Mapping[str, str], in_file: Mapping[str, str] = NOTHING) -> MappedEnvironment:
    return as_apache_kafka(given, in_file, read_file=lambda path: f"in {path}\n")


def completed(found: MappedEnvironment) -> Environment:
    return complete(found.variables, {}, read_secret=lambda name: f"secret of {name}")


def test_there_are_ten_of_each_kind() -> None:
    kinds = [kind for kind, _ in SHAPES]
    assert {kind: kinds.count(kind) for kind in kinds} == {"bitnami-kafka": 10, "confluent-local": 10, "cp-kafka": 10}


@pytest.mark.parametrize(("kind", "shape"), SHAPES, ids=[f"{kind}: {shape['name']}" for kind, shape in SHAPES])
def test_an_environment_gives_the_settings_that_it_gave_there(kind: str, shape: dict[str, Any]) -> None:
    found = mapped(shape["environment"])
    config, warnings = configure({}, completed(found).variables, {})
    expected = shape["settings"]
    assert {name: config.given_settings.get(name) for name in expected} == expected
    idle = [f"settings without effect in this broker: {shape['idle']}"] if "idle" in shape else []
    assert list(warnings) == idle  # above all, no setting is unknown
    for text in shape.get("warnings", ()):
        assert any(text in line for line in found.warnings), found.warnings
    assert bool(found.warnings) == ("warnings" in shape)
    logins = [f"{login.user} {login.password} {login.mechanism}" for login in found.scram_logins]
    assert logins == shape.get("scram_logins", [])
    topics_of_environment(completed(found).variables)


def test_variables_of_apache_kafka_stay_as_they_are() -> None:
    given = {"KAFKA_NODE_ID": "1", "KAFKA_LISTENER_NAME_SASL__SSL_SCRAM___SHA___256_SASL_JAAS_CONFIG": "x", "PATH": "/"}
    assert mapped(given) == MappedEnvironment(given)


def test_the_volume_of_bitnami_is_used_unless_a_directory_is_named() -> None:
    bitnami = {"ALLOW_PLAINTEXT_LISTENER": "yes"}
    assert str(data_directory(mapped(bitnami).variables, {})) == BITNAMI_DATA_DIRECTORY
    named = {**bitnami, "KAFKA_CFG_LOG_DIRS": "/elsewhere"}
    assert str(data_directory(mapped(named).variables, {})) == "/elsewhere"
    in_file = {"log.dirs": "/in/the/file"}
    assert str(data_directory(mapped(bitnami, in_file).variables, in_file)) == "/in/the/file"


def test_a_name_of_sasl_is_not_split_in_a_setting_of_bitnami() -> None:
    found = mapped({"KAFKA_CFG_LISTENER_NAME_SASL_SSL_PLAIN_SASL_JAAS_CONFIG": "x"})
    config, _ = configure({}, completed(found).variables, {})
    assert config.given_settings["listener.name.sasl_ssl.plain.sasl.jaas.config"] == "x"


def test_variables_without_a_loss_are_noted_once() -> None:
    found = mapped({"ALLOW_PLAINTEXT_LISTENER": "yes", "KAFKA_ENABLE_KRAFT": "yes"})
    assert found.notes == ["accepted, but not needed here: ALLOW_PLAINTEXT_LISTENER, KAFKA_ENABLE_KRAFT"]


@pytest.mark.parametrize("passwords", [{}, {"KAFKA_CLIENT_PASSWORDS": "one"}])
def test_a_user_without_a_password_is_refused(passwords: dict[str, str]) -> None:
    with pytest.raises(InvalidVariable, match="KAFKA_CLIENT_USERS has 2 users and KAFKA_CLIENT_PASSWORDS has"):
        mapped({"KAFKA_CLIENT_USERS": "a,b", **passwords})


def test_users_with_scram_are_added_to_the_seed() -> None:
    plan = with_users(None, [("alice", "secret", "SCRAM-SHA-512")])
    (user,) = plan.users
    assert (user.name, user.password, user.mechanism.sasl_name) == ("alice", "secret", "SCRAM-SHA-512")
