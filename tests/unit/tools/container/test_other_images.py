"""Tests compose files for bitnami/kafka, cp-kafka and confluent-local. Their variables result in the same settings as
in those images, and the log names the variables that have no effect."""

import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from odradek.broker.configuration.config import configure
from odradek.registry.schemas import SchemaText
from odradek.seeds.plan import SeedPlan, SeedSchema
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
REPOSITORY = Path(__file__).resolve().parents[4]
NOTHING: Mapping[str, str] = {}


def mapped(
    given: Mapping[str, str], in_file: Mapping[str, str] = NOTHING, files: Collection[str] = ()
) -> MappedEnvironment:
    return as_apache_kafka(given, in_file, read_file=lambda path: f"in {path}\n", is_file=lambda path: path in files)


def completed(found: MappedEnvironment) -> Environment:
    return complete(found.variables, {}, read_secret=lambda name: f"secret of {name}")


def test_there_are_ten_environments_of_each_image() -> None:
    kinds = [kind for kind, _ in SHAPES]
    assert {kind: kinds.count(kind) for kind in kinds} == {"bitnami-kafka": 10, "confluent-local": 10, "cp-kafka": 10}


@pytest.mark.parametrize(("kind", "shape"), SHAPES, ids=[f"{kind}: {shape['name']}" for kind, shape in SHAPES])
def test_an_environment_produces_the_same_settings_as_in_its_own_image(kind: str, shape: dict[str, Any]) -> None:
    found = mapped(shape["environment"], files=shape.get("files", ()))
    config, warnings = configure({}, completed(found).variables, {})
    expected = shape["settings"]
    assert {name: config.given_settings.get(name) for name in expected} == expected
    idle = [f"these settings have no effect in this broker: {shape['idle']}"] if "idle" in shape else []
    assert list(warnings) == idle  # in particular, no setting is unknown
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
    assert found.notes == [
        "these variables are not needed here, and are ignored: ALLOW_PLAINTEXT_LISTENER, KAFKA_ENABLE_KRAFT"
    ]


@pytest.mark.parametrize("passwords", [{}, {"KAFKA_CLIENT_PASSWORDS": "one"}])
def test_a_user_without_a_password_is_refused(passwords: dict[str, str]) -> None:
    with pytest.raises(InvalidVariable, match="KAFKA_CLIENT_USERS has 2 users but KAFKA_CLIENT_PASSWORDS has"):
        mapped({"KAFKA_CLIENT_USERS": "a,b", **passwords})


TLS = {"KAFKA_CFG_LISTENERS": "SSL://:9092,CONTROLLER://:9093", "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER"}
MOUNTED = "/bitnami/kafka/config/certs"


def stores(found: MappedEnvironment) -> dict[str, str]:
    return {name: value for name, value in found.variables.items() if name.startswith("KAFKA_SSL_")}


def test_certificates_of_bitnami_in_pem_are_found_where_users_mount_them() -> None:
    files = [f"{MOUNTED}/{name}" for name in ("kafka.keystore.key", "kafka.keystore.pem", "kafka.truststore.pem")]
    given = {**TLS, "KAFKA_TLS_TYPE": "PEM", "KAFKA_CERTIFICATE_PASSWORD": "secret"}
    assert stores(mapped(given, files=files)) == {
        "KAFKA_SSL_CLIENT_AUTH": "required",
        "KAFKA_SSL_KEYSTORE_TYPE": "PEM",
        "KAFKA_SSL_KEYSTORE_KEY": f"in {files[0]}\n",
        "KAFKA_SSL_KEYSTORE_CERTIFICATE_CHAIN": f"in {files[1]}\n",
        "KAFKA_SSL_KEY_PASSWORD": "secret",
        "KAFKA_SSL_TRUSTSTORE_TYPE": "PEM",
        "KAFKA_SSL_TRUSTSTORE_LOCATION": files[2],
    }


def test_a_trust_store_of_bitnami_may_be_anywhere() -> None:
    given = {**TLS, "KAFKA_TLS_TRUSTSTORE_FILE": "/ca.jks"}
    found = stores(mapped(given, files=[f"{MOUNTED}/kafka.keystore.jks"]))
    assert found["KAFKA_SSL_TRUSTSTORE_LOCATION"] == "/ca.jks"
    assert found["KAFKA_SSL_KEYSTORE_LOCATION"] == f"{MOUNTED}/kafka.keystore.jks"
    assert "KAFKA_SSL_KEYSTORE_PASSWORD" not in found


def test_a_store_of_bitnami_that_is_not_mounted_is_named() -> None:
    with pytest.raises(InvalidVariable, match=rf"with KAFKA_TLS_TYPE=JKS, but the file {MOUNTED}/kafka\.trust"):
        mapped(TLS)
    with pytest.raises(InvalidVariable, match="KAFKA_TLS_TYPE must be JKS or PEM, not PKCS12"):
        mapped({**TLS, "KAFKA_TLS_TYPE": "pkcs12"})


@pytest.mark.parametrize(
    ("given", "in_file"),
    [
        ({**TLS, "KAFKA_CFG_SSL_KEYSTORE_LOCATION": "/own.p12"}, {}),
        (TLS, {"listener.name.ssl.ssl.keystore.location": "/own.p12"}),
        ({"KAFKA_CFG_LISTENERS": "PLAINTEXT://:9092", "KAFKA_TLS_TYPE": "JKS"}, {}),
        (
            {
                "KAFKA_CFG_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
                "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
                "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
            },
            {},
        ),
    ],
    ids=["a setting", "the file", "no TLS", "TLS of controllers"],
)
def test_certificates_of_bitnami_are_not_needed(given: dict[str, str], in_file: dict[str, str]) -> None:
    assert "KAFKA_SSL_KEYSTORE_TYPE" not in mapped(given, in_file).variables


SECURE = {
    "KAFKA_LISTENERS": "SECURE://0.0.0.0:9096,PLAINTEXT://0.0.0.0:9093",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
}


def test_users_of_kafka_storage_can_log_in_to_listeners_with_sasl() -> None:
    added = "SCRAM-SHA-512=[name=alice,password=one]\nSCRAM-SHA-256=[name=bob, password=t=wo]"
    found = mapped({**SECURE, "ODRADEK_ADD_SCRAM": added})
    assert [(each.user, each.password, each.mechanism) for each in found.scram_logins] == [
        ("alice", "one", "SCRAM-SHA-512"),
        ("bob", "t=wo", "SCRAM-SHA-256"),
    ]
    config, warnings = configure({}, completed(found).variables, {})
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    assert config.given_settings["listener.name.secure.scram-sha-512.sasl.jaas.config"] == module
    assert config.given_settings["listener.name.secure.scram-sha-256.sasl.jaas.config"] == module
    assert list(warnings) == []


def test_the_login_module_of_testcontainers_is_kept_if_the_shell_does_not_drop_it() -> None:
    name = "KAFKA_LISTENER_NAME_SECURE_SCRAM-SHA-512_SASL_JAAS_CONFIG"
    added = "SCRAM-SHA-512=[name=alice,password=one]"
    found = mapped({**SECURE, name: "module required;", "ODRADEK_ADD_SCRAM": added})
    assert {each for each in found.variables if "JAAS" in each} == {name}


@pytest.mark.parametrize("added", ["PLAIN=[name=a,password=b]", "SCRAM-SHA-512=[name=a,password=b,salt=c]", "x"])
def test_another_form_of_add_scram_is_refused(added: str) -> None:
    with pytest.raises(InvalidVariable, match="kafka-storage --add-scram supports only SCRAM-SHA-512="):
        mapped({"ODRADEK_ADD_SCRAM": added})


def test_kafka_storage_hands_users_to_the_broker(tmp_path: Path) -> None:
    """Checks that `kafka-storage` in `configure` passes users to the broker. The `run` script of Confluent's images
    sources `configure`, and Testcontainers appends such lines to it."""
    configure_script = tmp_path / "configure"
    configure_script.write_text(
        (REPOSITORY / "docker/rootfs/etc/confluent/docker/configure").read_text()
        + "kafka-storage format --ignore-formatted -t X -c /etc/kafka/kafka.properties"
        ' --add-scram "SCRAM-SHA-512=[name=alice,password=one]" --add-scram "SCRAM-SHA-256=[name=bob,password=two]"\n'
    )
    done = subprocess.run(
        ["bash", "-c", f". {configure_script} && exec env"], capture_output=True, text=True, check=True
    )
    assert (
        "ODRADEK_ADD_SCRAM=SCRAM-SHA-512=[name=alice,password=one]\nSCRAM-SHA-256=[name=bob,password=two]\n"
        in done.stdout
    )


def test_users_with_scram_are_added_to_the_seed() -> None:
    schemas = SeedPlan(schemas=(SeedSchema("orders-value", SchemaText("AVRO", "{}")),))
    plan = with_users(schemas, [("alice", "secret", "SCRAM-SHA-512")])
    assert plan.schemas == schemas.schemas
    (user,) = plan.users
    assert (user.name, user.password, user.mechanism.sasl_name) == ("alice", "secret", "SCRAM-SHA-512")
