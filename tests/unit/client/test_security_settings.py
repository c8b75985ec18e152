"""Tests the client's security settings: their valid combinations, and certificates in every accepted form."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from odradek.client import Producer
from odradek.client.security.settings import Security, SecuritySettings
from odradek.client.sync import Admin
from tests.support.certificates import Authority

SCRAM: SecuritySettings = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": "s3cret",
}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"security_protocol": "TLS"}, "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"ssl_cafile": "ca.pem"}, "does not use TLS"),
        ({"sasl_mechanism": "PLAIN"}, "does not use SASL"),
        ({"security_protocol": "SASL_SSL"}, "needs a sasl_mechanism"),
        ({**SCRAM, "sasl_mechanism": "GSSAPI"}, "Kerberos"),
        ({**SCRAM, "sasl_mechanism": "plain"}, "one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
        ({**SCRAM, "sasl_password": None}, "needs sasl_username and sasl_password"),
        ({**SCRAM, "sasl_extensions": {"a": "b,c"}}, "invalid name or value"),
        ({**SCRAM, "sasl_mechanism": "OAUTHBEARER"}, "needs sasl_token"),
        ({"security_protocol": "SSL", "ssl_keyfile": "key.pem"}, "needs an ssl_certfile"),
        ({"security_protocol": "SSL", "ssl_cafile": "a", "ssl_cadata": "b"}, "not both"),
        (
            {"security_protocol": "SSL", "ssl_cafile": "a", "ssl_context": ssl.create_default_context()},
            "replaces ssl_cafile",
        ),
    ],
)
def test_settings_that_contradict_one_another_are_refused(settings: SecuritySettings, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Security.of(settings)


def test_a_misspelt_setting_is_named_by_every_client() -> None:
    with pytest.raises(TypeError, match="no setting lingerms"):
        Producer(bootstrap_servers="localhost:1", lingerms=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no setting sasl_user"):
        Admin(bootstrap_servers="localhost:1", sasl_user="alice").start()  # type: ignore[call-arg]


def test_no_secret_is_printed() -> None:
    shown = repr(Security.of({**SCRAM, "sasl_extensions": {"a": "s3cret"}}))
    assert "s3cret" not in shown
    assert "alice" in shown


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.make("Test CA")


def test_certificates_are_accepted_as_pem_and_as_pkcs12_from_files_and_as_text(
    authority: Authority, tmp_path: Path
) -> None:
    own = authority.issue("kate")
    (tmp_path / "ca.pem").write_text(authority.pem)
    (tmp_path / "ca.p12").write_bytes(authority.as_pkcs12("trusted"))
    (tmp_path / "key.pem").write_bytes(own.key_pem("sesame"))
    (tmp_path / "own.pem").write_text(own.certificate_pem)
    (tmp_path / "own.p12").write_bytes(own.as_pkcs12("sesame"))
    trusting: list[SecuritySettings] = [
        {"ssl_cafile": tmp_path / "ca.pem"},
        {"ssl_cafile": tmp_path / "ca.p12", "ssl_capassword": "trusted"},
        {"ssl_cadata": authority.pem},
    ]
    identified: list[SecuritySettings] = [
        {"ssl_certfile": tmp_path / "own.pem", "ssl_keyfile": tmp_path / "key.pem", "ssl_password": "sesame"},
        {"ssl_certfile": str(tmp_path / "own.p12"), "ssl_password": "sesame"},
        {"ssl_certdata": own.certificate_pem + own.key_pem().decode()},
    ]
    for trust, identity in zip(trusting, identified, strict=True):
        context = Security.of({"security_protocol": "SSL", **trust, **identity}).tls_context
        assert context is not None
        assert ["Test CA" in str(each["subject"]) for each in context.get_ca_certs()] == [True]
        assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)


def test_a_host_name_is_not_checked_on_request_but_the_certificate_is() -> None:
    context = Security(security_protocol="SSL", ssl_check_hostname=False).tls_context
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)


def test_files_that_are_not_what_they_should_be_are_refused_with_the_reason(
    authority: Authority, tmp_path: Path
) -> None:
    own, other = authority.issue("kate"), authority.issue("karl")
    contents = {
        "ca.pem": b"junk",
        "store.jks": b"\xfe\xed\xfe\xed\0\0\0\2",
        "own.pem": own.certificate_pem.encode(),
        "other.key": other.key_pem(),
        "encrypted.key": own.key_pem("sesame"),
        "own.p12": own.as_pkcs12("sesame"),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    own_file = str(tmp_path / "own.pem")
    refused: list[tuple[SecuritySettings, str]] = [
        ({"ssl_cafile": tmp_path / "ca.pem"}, "ca.pem contains no certificates"),
        ({"ssl_cafile": tmp_path / "store.jks"}, "keytool -importkeystore .* -deststoretype PKCS12"),
        ({"ssl_certfile": own_file}, "does not contain a certificate and its key"),
        ({"ssl_certfile": own_file, "ssl_keyfile": tmp_path / "other.key"}, "does not belong to the certificate"),
        ({"ssl_certfile": own_file, "ssl_keyfile": tmp_path / "encrypted.key"}, "the key is encrypted"),
        (
            {"ssl_certfile": own_file, "ssl_keyfile": tmp_path / "encrypted.key", "ssl_password": "x"},
            "ssl_password is wrong",
        ),
        ({"ssl_certfile": tmp_path / "own.p12", "ssl_password": "x"}, "with this ssl_password"),
        ({"ssl_certfile": tmp_path / "own.p12"}, "with this ssl_password"),
    ]
    for settings, why in refused:
        with pytest.raises(ValueError, match=why):
            Producer(bootstrap_servers="localhost:1", security_protocol="SSL", **settings)  # type: ignore[misc]
    with pytest.raises(FileNotFoundError):
        Producer(bootstrap_servers="localhost:1", security_protocol="SSL", ssl_cafile=tmp_path / "none.pem")
