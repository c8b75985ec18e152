"""Tests that `odradek certs` creates certificates that are missing or expire soon and leaves all others unchanged."""

import os
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

from odradek.tools.certs import CannotIssue, CertificateNames, fill
from odradek.tools.commands.tree import run

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOSTS = ("localhost", "127.0.0.1")


def filled(directory: Path, *clients: str, now: datetime = NOW, hosts: tuple[str, ...] = HOSTS) -> CertificateNames:
    return fill(directory, hosts=hosts, clients=clients, password="changeit", now=now, days=100)


def contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


def certificate(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificates(file.read_bytes())[0]


def test_filling_a_directory_twice_changes_nothing(tmp_path: Path) -> None:
    assert filled(tmp_path, "kate") == CertificateNames(new=("ca", "server", "client-kate"), kept=())
    before = contents(tmp_path)
    assert filled(tmp_path, "kate") == CertificateNames(new=(), kept=("ca", "server", "client-kate"))
    assert contents(tmp_path) == before
    assert before.keys() == {
        "ca.pem",
        "ca-key.pem",
        "truststore.p12",
        "server.pem",
        "server.p12",
        "client-kate.pem",
        "client-kate.p12",
    }


def test_a_client_more_is_added_and_another_host_makes_the_server_anew(tmp_path: Path) -> None:
    filled(tmp_path, "kate")
    assert filled(tmp_path, "kate", "bob").new == ("client-bob",)
    assert filled(tmp_path, hosts=(*HOSTS, "broker")).new == ("server",)
    names = certificate(tmp_path / "server.pem").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "broker"]


def test_a_certificate_that_expires_soon_is_renewed(tmp_path: Path) -> None:
    filled(tmp_path, "kate")
    assert filled(tmp_path, "kate", now=NOW + timedelta(days=74)).new == ()
    assert filled(tmp_path, "kate", now=NOW + timedelta(days=76)).new == ("server", "client-kate")


def test_lost_or_damaged_files_are_issued_again(tmp_path: Path) -> None:
    filled(tmp_path, "kate", "bob")
    (tmp_path / "server.pem").write_text("junk")
    (tmp_path / "client-kate.p12").unlink()
    assert filled(tmp_path, "kate", "bob").new == ("server", "client-kate")


def test_certificates_of_an_authority_that_is_gone_are_replaced(tmp_path: Path) -> None:
    filled(tmp_path)
    for name in ("ca.pem", "ca-key.pem"):
        (tmp_path / name).unlink()
    assert filled(tmp_path).new == ("ca", "server")


def test_an_authority_that_cannot_be_used_is_not_overwritten(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "ca-key.pem").unlink()
    before = contents(tmp_path)
    with pytest.raises(CannotIssue, match="contains a certificate authority that cannot be used"):
        filled(tmp_path)
    assert contents(tmp_path) == before


def test_an_expired_authority_is_reported(tmp_path: Path) -> None:
    filled(tmp_path)
    with pytest.raises(CannotIssue, match="has expired"):
        filled(tmp_path, now=NOW + timedelta(days=4000))


def test_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    filled(tmp_path, "kate")
    for file in tmp_path.iterdir():
        is_public = file.name in ("ca.pem", "truststore.p12")
        assert stat.S_IMODE(file.stat().st_mode) == (0o644 if is_public else 0o600)


def test_pem_and_pkcs12_hold_the_same_and_openssl_takes_them(tmp_path: Path) -> None:
    filled(tmp_path, "kate")
    for name in ("server", "client-kate"):
        store = load_pkcs12((tmp_path / f"{name}.p12").read_bytes(), b"changeit")
        assert store.cert is not None
        assert store.cert.certificate == certificate(tmp_path / f"{name}.pem")
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / f"{name}.pem")
    assert len(load_pkcs12((tmp_path / "truststore.p12").read_bytes(), b"changeit").additional_certs) == 1
    assert certificate(tmp_path / "client-kate.pem").subject.rfc4514_string().startswith("CN=kate,")


def test_the_command_says_what_to_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certs", str(tmp_path / "certs"), "--client", "kate"]) == 0
    said = capsys.readouterr().out
    assert "made in" in said
    assert f"ssl.keystore.location={tmp_path / 'certs' / 'server.pem'}" in said
    assert f"ssl.key.location={tmp_path / 'certs' / 'client-kate.pem'}" in said


@pytest.mark.parametrize("words", [["--client", "../kate"], ["--client", ""], ["--days", "0"]])
def test_invalid_options_are_refused_and_write_nothing(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["certs", str(tmp_path), *words]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_key_is_written_into_no_file_that_somebody_laid_in_its_way(tmp_path: Path) -> None:
    readable, linked = tmp_path / f".ca-key.pem.{os.getpid()}", tmp_path / "elsewhere"
    readable.touch(0o644)
    reader = readable.open("rb")
    (tmp_path / f".server.pem.{os.getpid()}").symlink_to(linked)
    filled(tmp_path)
    with reader:
        assert reader.read() == b""
    assert not linked.exists()
    for name in ("ca-key.pem", "server.pem", "server.p12"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
