"""Tests that a setting with a listener's prefix takes precedence over the same setting without a prefix. The tests also
cover valid names, descriptions, and contradictions between listeners."""

import pytest

from odradek.broker.configuration.config import BrokerConfig, ConfigError, configure
from odradek.broker.configuration.config_description import ConfigSource, DescribedConfig, Synonym, describe_broker
from odradek.broker.configuration.listener_settings import listener_of, setting_named

JAAS = "sasl.jaas.config"


def given(settings: dict[str, str]) -> BrokerConfig:
    config, warnings = configure({}, {}, settings)
    assert not any("unknown" in warning for warning in warnings)
    return config


def refusal(settings: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as refused:
        configure({}, {}, settings)
    return str(refused.value)


def described(config: BrokerConfig, name: str) -> DescribedConfig:
    return next(one for one in describe_broker(config) if one.name == name)


def test_a_value_for_the_listener_overrides_the_value_for_all_listeners() -> None:
    config = given({"ssl.client.auth": "requested", "listener.name.out.ssl.client.auth": "required"})
    assert config.listener_settings("OUT").value("ssl.client.auth") == "required"
    assert config.listener_settings("IN").value("ssl.client.auth") == "requested"
    assert config.listener_settings("IN").value("ssl.enabled.protocols") == ("TLSv1.2", "TLSv1.3")


def test_a_value_for_the_mechanism_overrides_the_value_for_the_listener() -> None:
    settings = given(
        {
            "listener.name.out.scram-sha-256.sasl.jaas.config": "of the mechanism",
            "listener.name.out.sasl.jaas.config": "of the listener",
            "sasl.jaas.config": "of all",
        }
    ).listener_settings("OUT")
    assert settings.text(JAAS, "SCRAM-SHA-256") == "of the mechanism"
    assert settings.text(JAAS, "PLAIN") == "of the listener"
    assert settings.name(JAAS, "SCRAM-SHA-256") == "listener.name.out.scram-sha-256.sasl.jaas.config"


def test_a_value_without_a_prefix_is_not_the_listeners_own_value() -> None:
    settings = given({"sasl.jaas.config": "of all"}).listener_settings("OUT")
    assert settings.text(JAAS) == "of all"
    assert settings.own_text(JAAS, "PLAIN") is None
    assert settings.prefixed(JAAS, "PLAIN") == "listener.name.out.plain.sasl.jaas.config"


def test_a_dynamic_value_overrides_a_prefixed_value_only_with_the_same_prefix() -> None:
    config = given({"listener.name.out.ssl.keystore.location": "first"})
    config.set_dynamic({}, {"listener.name.out.ssl.keystore.location": "second"})
    assert config.listener_settings("OUT").text("ssl.keystore.location") == "second"
    config.set_dynamic({}, {"ssl.keystore.location": "of all"})
    assert config.listener_settings("OUT").text("ssl.keystore.location") == "first"


def test_values_with_a_prefix_are_checked_like_those_without() -> None:
    assert "listener.name.out.ssl.client.auth=maybe" in refusal({"listener.name.out.ssl.client.auth": "maybe"})


@pytest.mark.parametrize("name", ["listener.name.out.no.such", "listener.name.out", "listener.name.", "no.such"])
def test_a_name_without_a_setting_is_unknown(name: str) -> None:
    assert setting_named(name) is None
    assert configure({}, {}, {name: "1"})[1] == (f"these settings are unknown, and are ignored: {name}",)


def test_the_listener_of_a_setting_is_read_from_its_prefix() -> None:
    assert listener_of("listener.name.out.plain.sasl.jaas.config") == "out"
    assert listener_of("sasl.jaas.config") is None


def test_a_location_is_shown_and_a_password_is_not() -> None:
    config = given(
        {
            "listener.name.out.ssl.keystore.location": "/there",
            "ssl.keystore.location": "/here",
            "listener.name.out.ssl.keystore.password": "swordfish",
            "listener.name.out.plain.sasl.jaas.config": "swordfish",
        }
    )
    location = described(config, "listener.name.out.ssl.keystore.location")
    assert (location.value, location.is_sensitive, location.is_read_only) == ("/there", False, True)
    assert location.synonyms == (
        Synonym("listener.name.out.ssl.keystore.location", "/there", ConfigSource.GIVEN),
        Synonym("ssl.keystore.location", "/here", ConfigSource.GIVEN),
    )
    for name in ("listener.name.out.ssl.keystore.password", "listener.name.out.plain.sasl.jaas.config"):
        secret = described(config, name)
        assert (secret.value, secret.is_sensitive) == (None, True)
    assert "swordfish" not in repr(describe_broker(config))


# If two listeners' settings contradict each other, the broker's error names the setting (docs/spec/security.md#s1-1).


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"listeners": "X://:1"}, "listeners=X://:1: X has no entry in listener.security.protocol.map"),
        ({"listener.security.protocol.map": "X:TLS"}, "listener.security.protocol.map=X:TLS: 'TLS' is not a security"),
        ({"listeners": "PLAINTEXT://:1,SSL://:1"}, "port 1 appears twice in listeners"),
        ({"listeners": "PLAINTEXT://127.0.0.1:1,SSL://127.0.0.2:1"}, "only an IPv4 address and an IPv6 address may"),
        ({"listeners": "PLAINTEXT://localhost:1,SSL://[::1]:1"}, "port 1 appears twice in listeners"),
        (
            {"listeners": "PLAINTEXT://127.0.0.1:1,SSL://[::1]:1,SASL_SSL://:1"},
            "port 1 appears twice in listeners",
        ),
        ({"advertised.listeners": "PLAINTEXT://a:1,PLAINTEXT://c:1"}, "PLAINTEXT appears twice"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "clients cannot connect to 0.0.0.0"),
        (
            {"advertised.listeners": "SSL://a:1"},
            "advertised.listeners=SSL://a:1: each entry must name one of the listeners",
        ),
        (
            {"inter.broker.listener.name": "IN"},
            "inter.broker.listener.name=IN: must name one of the advertised listeners",
        ),
        (
            {"security.inter.broker.protocol": "SSL"},
            "security.inter.broker.protocol=SSL: must name one of the advertised",
        ),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "cannot both be set",
        ),
    ],
)
def test_scenarios_001_and_007_listeners_that_contradict_one_another_are_refused(
    settings: dict[str, str], words: str
) -> None:
    assert words in refusal(settings)


def test_advertised_listeners_may_share_a_port_and_a_host() -> None:
    listeners = {"listeners": "A://:1,B://:2", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    for advertised in ("A://broker:9092,B://localhost:9092", "A://broker:9092,B://broker:9092"):
        shown = given({**listeners, "advertised.listeners": advertised}).advertise_listeners(
            {"A": 1, "B": 2}, lambda: "host"
        )
        assert ",".join(f"{one.name}://{one.host}:{one.port}" for one in shown) == advertised


def test_an_ipv4_and_an_ipv6_listener_may_share_a_port() -> None:
    config = given({"listeners": "PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092"})
    assert [(one.host, one.port) for one in config.serving] == [("127.0.0.1", 9092), ("::1", 9092)]
