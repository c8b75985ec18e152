"""Tests which cluster a command uses, depending on its options, the environment, and the profiles file."""

from argparse import Namespace
from pathlib import Path

import pytest

from odradek.tools.commands.options import security
from odradek.tools.commands.similar_names import did_you_mean
from odradek.tools.commands.target import choose, parse_profiles
from odradek.tools.commands.typed_names import as_typed, option_of_file, with_connection

PROFILES = """
# Lines before the first section are ignored.
[default]
bootstrap.servers=usual:9092

[staging]
bootstrap.servers = staging:9093
security.protocol = SSL
ssl.ca.location = /etc/ssl/staging.pem

[login]
security.protocol=SASL_PLAINTEXT
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Returns an environment in which a profiles file exists."""
    (tmp_path / "odradek").mkdir()
    (tmp_path / "odradek/profiles").write_text(PROFILES)
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def typed(**given: object) -> Namespace:
    return Namespace(**{"bootstrap_server": None, "profile": None, "command_config": None, "properties": []} | given)


@pytest.mark.parametrize(
    ("given", "variables", "bootstrap", "has_tls"),
    [
        ({}, {}, "usual:9092", False),
        ({"bootstrap_server": "typed:1"}, {"ODRADEK_BOOTSTRAP": "own:1"}, "typed:1", False),
        ({}, {"ODRADEK_BOOTSTRAP": "own:1", "KAFKA_BOOTSTRAP_SERVERS": "kafka:1"}, "own:1", False),
        ({}, {"KAFKA_BOOTSTRAP_SERVERS": "kafka:1", "ODRADEK_PROFILE": "staging"}, "kafka:1", False),
        ({}, {"ODRADEK_PROFILE": "staging"}, "staging:9093", True),
        ({"profile": "staging"}, {"ODRADEK_BOOTSTRAP": "own:1"}, "staging:9093", True),
        ({"profile": "staging", "bootstrap_server": "typed:1"}, {}, "typed:1", True),
        ({"bootstrap_server": "typed:1"}, {"ODRADEK_PROFILE": "staging"}, "typed:1", False),
        ({"profile": "login"}, {}, "localhost:9092", False),
        ({"profile": "login"}, {"ODRADEK_BOOTSTRAP": "own:1"}, "own:1", False),
    ],
)
def test_the_cluster_comes_from_the_first_source_that_names_one(
    home: dict[str, str], given: dict[str, object], variables: dict[str, str], bootstrap: str, has_tls: bool
) -> None:
    options = typed(**given)
    choose(options, home | variables)
    assert options.bootstrap_server == bootstrap
    assert options.is_default_bootstrap is (bootstrap == "localhost:9092")
    assert (options.profile_properties.get("security.protocol") == "SSL") is has_tls


def test_without_a_file_and_without_variables_it_is_localhost(tmp_path: Path) -> None:
    options = typed()
    choose(options, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert options.bootstrap_server == "localhost:9092"


def test_a_profile_that_does_not_exist_is_named_with_the_one_that_was_probably_meant(
    home: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(
        ValueError, match=r"no profile 'stagin' in .*Did you mean 'staging'\? The file has the profiles default,"
    ):
        choose(typed(profile="stagin"), home)
    with pytest.raises(ValueError, match=r"no profile 'ghost' in .*profiles\. The file has the profiles"):
        choose(typed(), home | {"ODRADEK_PROFILE": "ghost"})
    with pytest.raises(ValueError, match="does not exist or has no"):
        choose(typed(profile="staging"), {"XDG_CONFIG_HOME": str(tmp_path / "nowhere")})


def test_the_lines_of_a_profile_are_those_of_a_properties_file() -> None:
    assert parse_profiles(" [ a ]\nx = 1\ny: 2\n[b]\n") == {"a": {"x": "1", "y": "2"}, "b": {}}


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ([("ssl.ca.locatoin", "x")], "-X ssl.ca.locatoin: there is no such setting. Did you mean 'ssl.ca.location'?"),
        ([("group.id", "x")], "-X group.id: commands accept only settings for TLS and SASL"),
        ([("ssl.ca.location", "x")], "-X ssl.ca.location has no effect, because security.protocol is PLAINTEXT"),
        ([("sasl.username", "x"), ("security.protocol", "SSL")], "-X sasl.username has no effect"),
    ],
)
def test_a_property_that_does_nothing_is_refused(properties: list[tuple[str, str]], complaint: str) -> None:
    with pytest.raises(ValueError, match=r"^-X") as refused:
        security(typed(properties=properties, profile_properties={}))
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("given", "text", "expected"),
    [
        ([("ssl.ca.location", "a")], "ssl_cafile a is no PEM", "-X ssl.ca.location a is no PEM"),
        ([("ssl.truststore.location", "a")], "ssl_cafile a is no PEM", "-X ssl.truststore.location a is no PEM"),
        ([], "it may require ssl_certfile", "it may require -X ssl.certificate.location"),
        ([], "security_protocol takes SSL", "-X security.protocol takes SSL"),
        ([], "set ssl_check_hostname=False", "set -X ssl.endpoint.identification.algorithm=none"),
    ],
)
def test_an_error_names_settings_as_they_were_typed(given: list[tuple[str, str]], text: str, expected: str) -> None:
    assert as_typed(text, typed(properties=given, profile_properties={})) == expected


def test_an_error_names_settings_of_files_as_they_stand_there(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("ssl.keystore.location=k.p12\n")
    options = typed(
        command_config=str(tmp_path / "client.properties"), profile_properties={"ssl.truststore.location": "t.p12"}
    )
    assert as_typed("ssl_certfile and ssl_cafile", options) == "ssl.keystore.location and ssl.truststore.location"
    assert option_of_file("t.p12", options) == "ssl.truststore.location="
    assert option_of_file("other", options) == ""


def test_a_hint_repeats_how_the_cluster_was_chosen() -> None:
    hint = "`odradek topics list` shows all topics"
    assert with_connection(hint, ["-b", "a:1", "--profile", "my own"]) == (
        "`odradek topics list -b a:1 --profile 'my own'` shows all topics"
    )
    assert with_connection(hint, []) == hint


@pytest.mark.parametrize(("name", "meant"), [("ordrs", " Did you mean 'Orders'?"), ("zzz", ""), ("Orders", "")])
def test_a_similar_name_is_suggested_and_no_other(name: str, meant: str) -> None:
    assert did_you_mean(name, ["payments", "Orders"]) == meant
