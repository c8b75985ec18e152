"""Tests that the properties of Kafka's clients and of librdkafka become settings of this client."""

from __future__ import annotations

import json
import pickle
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from odradek.client.security.properties import TokenEndpoint, UnsecuredTokens, security_settings
from odradek.client.security.settings import Security, SecuritySettings
from odradek.protocol.java_properties import parse_properties
from tests.support.token_server import token_server

JAAS = "org.apache.kafka.common.security."

CASES: list[tuple[str, SecuritySettings]] = [
    ("", {"security_protocol": "PLAINTEXT"}),
    ("request.timeout.ms=1", {"security_protocol": "PLAINTEXT"}),
    (
        f"""
        security.protocol=SASL_SSL
        sasl.mechanism=SCRAM-SHA-512
        sasl.jaas.config={JAAS}scram.ScramLoginModule required username="alice" \\
            password="p=w";
        ssl.truststore.type=PEM
        ssl.truststore.location=/etc/ca.pem
        """,
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": "alice",
            "sasl_password": "p=w",
            "ssl_cafile": "/etc/ca.pem",
            "ssl_check_hostname": True,
        },
    ),
    (
        f"""
        security.protocol=sasl_plaintext
        sasl.mechanism=SCRAM-SHA-256
        sasl.jaas.config={JAAS}scram.ScramLoginModule required username=id password=hmac tokenauth=true;
        """,
        {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_username": "id",
            "sasl_password": "hmac",
            "sasl_extensions": {"tokenauth": "true"},
        },
    ),
    (
        """
        security.protocol=SSL
        ssl.truststore.type=PKCS12
        ssl.truststore.location=trust.p12
        ssl.truststore.password=a
        ssl.keystore.type=PKCS12
        ssl.keystore.location=own.p12
        ssl.keystore.password=b
        ssl.endpoint.identification.algorithm=
        """,
        {
            "security_protocol": "SSL",
            "ssl_cafile": "trust.p12",
            "ssl_capassword": "a",
            "ssl_certfile": "own.p12",
            "ssl_password": "b",
            "ssl_check_hostname": False,
        },
    ),
    (
        r"""
        security.protocol=SSL
        ssl.keystore.type=PEM
        ssl.keystore.key=KEY\nEND
        ssl.keystore.certificate.chain=CHAIN
        ssl.truststore.certificates=CA
        """,
        {
            "security_protocol": "SSL",
            "ssl_certdata": "KEY\nEND\nCHAIN",
            "ssl_cadata": "CA",
            "ssl_check_hostname": True,
        },
    ),
    (
        """
        security.protocol=SASL_SSL
        sasl.mechanisms=PLAIN
        sasl.username=alice
        sasl.password=pw
        ssl.ca.location=ca.pem
        ssl.certificate.location=own.pem
        ssl.key.location=own.key
        ssl.key.password=sesame
        ssl.endpoint.identification.algorithm=none
        """,
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "alice",
            "sasl_password": "pw",
            "ssl_cafile": "ca.pem",
            "ssl_certfile": "own.pem",
            "ssl_keyfile": "own.key",
            "ssl_password": "sesame",
            "ssl_check_hostname": False,
        },
    ),
]


@pytest.mark.parametrize(("text", "settings"), CASES)
def test_properties_become_settings(text: str, settings: SecuritySettings) -> None:
    assert security_settings(parse_properties(text)) == settings


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"ssl.trustore.location": "x"}, "ssl.trustore.location is not supported; the supported security settings are"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "JKS"}, "keytool"),
        ({"security.protocol": "SSL", "ssl.keystore.type": "BKS"}, "PEM or PKCS12, not 'BKS'"),
        ({"security.protocol": "SSL", "ssl.keystore.key": "x"}, "must be set together"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "x"}, "https, or empty"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is missing"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "needs sasl.jaas.config"),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": "Krb5Module required;",
            },
            "not Krb5Module",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "x required a=s3cret"},
            "semicolon",
        ),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "token.endpoint.url"),
    ],
)
def test_an_unknown_property_is_refused_by_name_and_without_secrets(given: Mapping[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        security_settings(given)
    assert "s3cret" not in str(refused.value)


def bearer(**more: str) -> SecuritySettings:
    return security_settings({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", **more})


def test_unsecured_tokens_carry_the_claims_of_the_login_module() -> None:
    jaas = f'{JAAS}oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice" extension_a="b";'
    settings = bearer(**{"sasl.jaas.config": jaas})
    assert settings["sasl_extensions"] == {"a": "b"}
    make = pickle.loads(pickle.dumps(settings["sasl_token"]))
    assert isinstance(make, UnsecuredTokens)
    header, claims, signature = make().split(".")
    assert (json.loads(urlsafe_b64decode(header + "==")), signature) == ({"alg": "none"}, "")
    assert json.loads(urlsafe_b64decode(claims + "=="))["sub"] == "alice"
    Security.of(settings)


def test_a_token_endpoint_is_asked_with_the_credentials_and_may_be_a_file(tmp_path: Path) -> None:
    with token_server({"access_token": "a.b.c"}) as server:
        properties = {
            "sasl.oauthbearer.token.endpoint.url": server.url,
            "sasl.oauthbearer.client.credentials.client.id": "odradek",
            "sasl.oauthbearer.client.credentials.client.secret": "s3cret",
            "sasl.oauthbearer.scope": "kafka",
        }
        ask = bearer(**properties)["sasl_token"]
        assert isinstance(ask, TokenEndpoint)
        assert "s3cret" not in repr(ask)
        assert ask() == "a.b.c"
        assert parse_qs(server.body) == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
        assert server.authorization == "Basic b2RyYWRlazpzM2NyZXQ="
    (tmp_path / "token").write_text("d.e.f\n")
    assert TokenEndpoint((tmp_path / "token").as_uri())() == "d.e.f"


def test_the_error_of_a_token_endpoint_does_not_contain_the_secret() -> None:
    with token_server({"error": "invalid_client"}, status=401) as server, pytest.raises(OSError, match="401"):
        TokenEndpoint(server.url, "odradek", "s3cret")()
    with token_server({"token": "x"}) as server, pytest.raises(ValueError, match="without an access_token"):
        TokenEndpoint(server.url)()
    with pytest.raises(ValueError, match="not 'ftp'"):
        TokenEndpoint("ftp://localhost/token")()
