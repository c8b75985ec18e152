"""Tests the settings that a broker with a SASL listener needs in order to start (docs/spec/security.md#s1-1)."""

from dataclasses import replace

import pytest

from odradek.broker.configuration.config import configure
from odradek.broker.metadata.config_rules import check_broker_change
from odradek.broker.runtime.starting import CannotStart
from odradek.broker.security.sasl.credentials import ScramCredentials
from odradek.broker.security.sasl.mechanism import Challenge, Offers, TokenAccepted
from odradek.broker.security.sasl.setup import Accounts, SaslListeners, offers_of
from odradek.broker.security.tokens.image import DelegationTokens
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.kafka_rules import KafkaRules
from tests.support.clock import ManualTimers
from tests.support.manual_loop import ManualWorkers

SECRET = "correct horse"
PLAIN_LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{SECRET}";'
JAAS = "listener.name.secure.plain.sasl.jaas.config"


ACCOUNTS = Accounts(
    ScramCredentials, DelegationTokens, None, lambda: b"secret of this broker", ManualWorkers(), ManualTimers()
)


def offers(**settings: str) -> Offers:
    """Returns the mechanisms that the listener offers with the given settings. In a setting's name, `__` represents a
    dot."""
    given = {name.replace("__", "."): text for name, text in settings.items()}
    return offers_of(configure(given, {}, {})[0].listener_settings("SECURE"), ACCOUNTS)


def refusal(given: dict[str, str]) -> str:
    with pytest.raises(CannotStart) as refused:
        offers_of(configure(given, {}, {})[0].listener_settings("SECURE"), ACCOUNTS)
    assert SECRET not in str(refused.value)
    return str(refused.value)


def test_scenario_002_a_mechanism_without_its_login_module_is_refused_with_the_setting_to_add() -> None:
    words = refusal({"sasl.enabled.mechanisms": "PLAIN"})
    assert f"{JAAS}=org.apache.kafka.common.security.plain.PlainLoginModule required" in words


def test_scenario_002_a_login_module_without_the_prefix_of_listener_and_mechanism_is_ignored() -> None:
    assert JAAS in refusal({"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": PLAIN_LOGIN})
    given = {"sasl.enabled.mechanisms": "PLAIN", "listener.name.secure.sasl.jaas.config": PLAIN_LOGIN}
    assert JAAS in refusal(given)


@pytest.mark.parametrize("mechanisms", [None, "GSSAPI", "PLAIN,GSSAPI"])
def test_scenario_002_kerberos_is_refused_with_the_setting_to_change(mechanisms: str | None) -> None:
    given = {JAAS: PLAIN_LOGIN} | ({"sasl.enabled.mechanisms": mechanisms} if mechanisms else {})
    words = refusal(given)
    assert "GSSAPI (Kerberos), which is not supported" in words
    assert "listener.name.secure.sasl.enabled.mechanisms" in words


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sasl.enabled.mechanisms": "plain"}, "the mechanism plain, which is not supported"),
        ({"sasl.enabled.mechanisms": ""}, "has no SASL mechanism"),
        ({"sasl.enabled.mechanisms": "PLAIN", JAAS: f"a.Module required user_a='{SECRET}';"}, "must name org.apache"),
        ({"sasl.enabled.mechanisms": "PLAIN", JAAS: f"a.Module user_a='{SECRET}';"}, "control flag"),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                JAAS: PLAIN_LOGIN,
                "listener.name.secure.plain.sasl.server.callback.handler.class": "com.example.Ldap",
            },
            "names a Java class",
        ),
    ],
)
def test_other_settings_that_cannot_be_served_are_refused(given: dict[str, str], words: str) -> None:
    assert words in refusal(given)


def test_the_accounts_of_a_listener_can_log_in() -> None:
    found = offers(sasl__enabled__mechanisms="PLAIN", listener__name__secure__plain__sasl__jaas__config=PLAIN_LOGIN)
    exchange = found["PLAIN"].begin()
    assert exchange.judge(f"\0alice\0{SECRET}".encode(), 0) == TokenAccepted("alice")
    assert found["PLAIN"].max_reauth_ms is None


def test_the_life_of_a_session_can_differ_by_mechanism() -> None:
    found = offers(
        sasl__enabled__mechanisms="PLAIN",
        listener__name__secure__plain__sasl__jaas__config=PLAIN_LOGIN,
        connections__max__reauth__ms="5000",
        listener__name__secure__plain__connections__max__reauth__ms="3000",
    )
    assert found["PLAIN"].max_reauth_ms == 3000


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scenario_002_scram_needs_its_login_module_too(mechanism: str) -> None:
    name = f"listener.name.secure.{mechanism.lower()}.sasl.jaas.config"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    assert f"{name}={module}" in refusal({"sasl.enabled.mechanisms": mechanism})
    config, _ = configure({"sasl.enabled.mechanisms": mechanism, name: f"{module};"}, {}, {})
    first = offers_of(config.listener_settings("SECURE"), ACCOUNTS)[mechanism].begin().judge(b"n,,n=u,r=abc", 0)
    assert isinstance(first, Challenge)


BEARER = "listener.name.secure.oauthbearer."
SIGNED_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
BEARER_LOGIN = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    f"{BEARER}sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
}


def test_tokens_without_signatures_are_accepted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    config, _ = configure(BEARER_LOGIN, {}, {})
    assert "OAUTHBEARER" in offers_of(config.listener_settings("SECURE"), ACCOUNTS)
    assert "clients can claim any name" in caplog.text


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///keys"}, "signatures are not checked"),
        ({"sasl.server.callback.handler.class": "com.example.Handler"}, "names a Java class"),
        (
            {"sasl.server.callback.handler.class": SIGNED_HANDLER},
            "checks signatures: set listener.name.secure.oauthbearer.sasl",
        ),
        (
            {
                "sasl.server.callback.handler.class": SIGNED_HANDLER,
                "sasl.oauthbearer.jwks.endpoint.url": "file:///no/such/file",
                "sasl.oauthbearer.allow.unverified.audience": "true",
                "sasl.oauthbearer.allow.unverified.issuer": "true",
            },
            "the keys at file:///no/such/file cannot be read",
        ),
    ],
)
def test_settings_of_tokens_that_would_let_anybody_in_or_nobody_are_refused(
    settings: dict[str, str], words: str
) -> None:
    assert words in refusal(BEARER_LOGIN | {f"{BEARER}{name}": text for name, text in settings.items()})


SIGNED = {
    "sasl.server.callback.handler.class": SIGNED_HANDLER,
    "sasl.oauthbearer.jwks.endpoint.url": "file:///no/such/file",
}
AUDIENCE, ISSUER = {"sasl.oauthbearer.expected.audience": "a"}, {"sasl.oauthbearer.expected.issuer": "i"}
ANY_AUDIENCE = {"sasl.oauthbearer.allow.unverified.audience": "true"}
ANY_ISSUER = {"sasl.oauthbearer.allow.unverified.issuer": "true"}
# The broker reads the keys only after accepting the claim settings, so this error shows that they have been accepted.
NO_KEYS = "the keys at file:///no/such/file cannot be read"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "would accept tokens of any audience"),
        (ISSUER, "would accept tokens of any audience"),
        (AUDIENCE, "would accept tokens of any issuer"),
        (ANY_AUDIENCE, "would accept tokens of any issuer"),
        (AUDIENCE | ISSUER, NO_KEYS),
        (ANY_AUDIENCE | ISSUER, NO_KEYS),
        (ANY_AUDIENCE | ANY_ISSUER, NO_KEYS),
    ],
)
def test_since_kafka_4_4_tokens_of_any_audience_or_issuer_have_to_be_allowed(
    settings: dict[str, str], words: str
) -> None:
    """The broker refuses to start and names the missing setting. Source: docs/spec/kafka-4.4.md#s5-6."""
    given = BEARER_LOGIN | {f"{BEARER}{name}": text for name, text in (SIGNED | settings).items()}
    assert words in refusal(given)
    config, _ = configure(given, {}, {})
    with pytest.raises(CannotStart, match=NO_KEYS):
        offers_of(config.listener_settings("SECURE"), replace(ACCOUNTS, rules=KafkaRules.KAFKA_4_3))


@pytest.mark.parametrize("text", [f"x {SECRET};", "", f'a.Module required user_a="{SECRET}"'])
def test_a_login_module_that_cannot_be_read_is_refused_when_it_is_altered_too(text: str) -> None:
    config, _ = configure({"sasl.enabled.mechanisms": "PLAIN", JAAS: PLAIN_LOGIN}, {}, {})
    check_broker_change(
        config, {JAAS: "org.apache.kafka.common.security.scram.ScramLoginModule required;"}, is_default=False
    )
    with pytest.raises(KafkaError) as refused:
        check_broker_change(config, {JAAS: text}, is_default=False)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("option", ["user_alice", "password"])
def test_passwords_of_plain_are_not_altered_since_they_would_lie_in_the_metadata_log(option: str) -> None:
    config, _ = configure({"sasl.enabled.mechanisms": "PLAIN", JAAS: PLAIN_LOGIN}, {}, {})
    with pytest.raises(KafkaError, match="SCRAM") as refused:
        check_broker_change(config, {JAAS: f'a.Module required {option}="{SECRET}";'}, is_default=False)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert SECRET not in str(refused.value)


def login(listeners: SaslListeners, user: str, password: str) -> bool:
    exchange = listeners.offers("SECURE")["PLAIN"].begin()
    return isinstance(exchange.judge(f"\0{user}\0{password}".encode(), 0), TokenAccepted)


def plain_login(user: str, password: str) -> str:
    return f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";'


def test_accounts_that_are_altered_count_for_the_next_login(caplog: pytest.LogCaptureFixture) -> None:
    config, _ = configure({"sasl.enabled.mechanisms": "PLAIN", JAAS: PLAIN_LOGIN}, {}, {})
    listeners = SaslListeners(config, ["SECURE"], ACCOUNTS)
    config.set_dynamic({}, {JAAS: plain_login("bob", "new")})
    assert login(listeners, "alice", SECRET)
    listeners.refresh()
    assert login(listeners, "bob", "new")
    assert not login(listeners, "alice", SECRET)
    config.set_dynamic({}, {JAAS: f'other.Module required user_eve="{SECRET}";'})
    listeners.refresh()
    assert login(listeners, "bob", "new")
    assert "keeps its mechanisms" in caplog.text
    assert SECRET not in caplog.text
    config.set_dynamic({}, {})
    listeners.refresh()
    assert login(listeners, "alice", SECRET)


def test_unchanged_login_settings_are_not_rebuilt() -> None:
    config, _ = configure({"sasl.enabled.mechanisms": "PLAIN", JAAS: PLAIN_LOGIN}, {}, {})
    listeners = SaslListeners(config, ["SECURE"], ACCOUNTS)
    before = listeners.offers("SECURE")
    config.set_dynamic({"log.retention.ms": "1000"}, {})
    listeners.refresh()
    assert listeners.offers("SECURE") is before
