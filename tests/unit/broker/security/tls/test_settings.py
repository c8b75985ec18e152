"""Tests the settings of a TLS listener, and the settings that the broker refuses when it starts
(docs/spec/security.md#s1-2)."""

import pytest

from odradek.broker.configuration.config import configure
from odradek.broker.security.tls.settings import (
    ClientAuth,
    Store,
    TlsSettings,
    UnusableTls,
    before_tls_1_3,
    tls_settings,
)

PEM_FILE = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/k.pem"}
INLINE = {"ssl.keystore.type": "PEM", "ssl.keystore.key": "KEY", "ssl.keystore.certificate.chain": "CHAIN"}


def read(settings: dict[str, str]) -> TlsSettings:
    return tls_settings(configure({}, {}, settings)[0].listener_settings("OUT"))


def refusal(settings: dict[str, str]) -> str:
    with pytest.raises(UnusableTls) as refused:
        read(settings)
    return str(refused.value)


def test_a_file_is_all_that_is_needed() -> None:
    settings = read(PEM_FILE)
    assert settings.keystore == Store("PEM", "ssl.keystore.location", "/k.pem", None, None, None)
    assert (settings.truststore, settings.client_auth) == (None, ClientAuth.NONE)
    assert (settings.versions, settings.ciphers) == (("TLSv1.2", "TLSv1.3"), None)


def test_the_settings_of_a_listener_take_precedence() -> None:
    settings = read(
        PEM_FILE
        | {"listener.name.out.ssl.keystore.location": "/own.pem", "listener.name.out.ssl.client.auth": "required"}
    )
    assert (settings.keystore.location, settings.client_auth) == ("/own.pem", ClientAuth.REQUIRED)


def test_key_and_chain_can_stand_in_the_settings() -> None:
    assert read(INLINE).keystore.inline == "KEY\nCHAIN"


def test_no_secret_shows_in_what_could_be_logged() -> None:
    settings = read(INLINE | {"ssl.key.password": "swordfish"})
    assert "swordfish" not in repr(settings)
    assert "KEY" not in repr(settings)


def test_scenario_004_a_listener_without_a_keystore_is_refused() -> None:
    assert refusal({}).startswith("listener.name.out.ssl.keystore.location: listener OUT needs a certificate")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (PEM_FILE | {"ssl.keystore.password": "x"}, "ssl.keystore.password: a PEM store has no password"),
        (INLINE | {"ssl.keystore.password": "x"}, "ssl.keystore.password: a PEM store has no password"),
        (INLINE | {"ssl.keystore.location": "/k"}, "ssl.keystore.key: ssl.keystore.location is also set"),
        (
            INLINE | {"ssl.keystore.type": "PKCS12"},
            "ssl.keystore.key: keys and certificates that are given in a setting are PEM",
        ),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.key": "K"}, "ssl.keystore.certificate.chain is missing"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "C"}, "ssl.keystore.key is missing"),
        ({"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/k"}, "the PKCS12 store /k needs one"),
        (PEM_FILE | {"ssl.keystore.type": "BCFKS"}, "ssl.keystore.type: BCFKS is not supported; use PEM or PKCS12"),
        (PEM_FILE | {"ssl.truststore.type": "PEM", "ssl.truststore.password": "x"}, "ssl.truststore.password"),
        (
            PEM_FILE | {"ssl.truststore.certificates": "C"},
            "ssl.truststore.certificates: keys and certificates that are given in a setting are PEM",
        ),
        (PEM_FILE | {"ssl.enabled.protocols": "TLSv1.1"}, "only TLSv1.2 and TLSv1.3 are supported"),
        (PEM_FILE | {"ssl.principal.mapping.rules": "rule:a/b/"}, "ssl.principal.mapping.rules: 'rule:a/b/'"),
    ],
)
def test_settings_that_contradict_one_another_are_refused(settings: dict[str, str], words: str) -> None:
    assert words in refusal(settings)


@pytest.mark.parametrize(
    ("protocols", "suites", "versions", "ciphers"),
    [
        ("TLSv1.3,TLSv1.2,TLSv1.1", "", ("TLSv1.2", "TLSv1.3"), None),
        ("TLSv1.2", "", ("TLSv1.2",), None),
        ("TLSv1.2,TLSv1.3", "TLS_AES_256_GCM_SHA384", ("TLSv1.3",), None),
        ("TLSv1.2,TLSv1.3", "ECDHE-RSA-AES256-GCM-SHA384", ("TLSv1.2",), "ECDHE-RSA-AES256-GCM-SHA384"),
        (
            "TLSv1.2,TLSv1.3",
            "TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            ("TLSv1.2", "TLSv1.3"),
            "ECDHE-RSA-AES128-GCM-SHA256",
        ),
    ],
)
def test_versions_without_a_suite_are_not_spoken(
    protocols: str, suites: str, versions: tuple[str, ...], ciphers: str | None
) -> None:
    settings = read(PEM_FILE | {"ssl.enabled.protocols": protocols, "ssl.cipher.suites": suites})
    assert (settings.versions, settings.ciphers) == (versions, ciphers)


def test_suites_have_the_names_that_java_has_for_them() -> None:
    assert before_tls_1_3(
        [
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256",
            "TLS_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_AES_128_GCM_SHA256",
        ]
    ) == [
        "ECDHE-RSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "DHE-RSA-AES128-SHA256",
        "AES128-GCM-SHA256",
    ]
