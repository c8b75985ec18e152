"""Tests keys and certificates from files and settings, and their replacement in a running broker
(docs/spec/security.md#s1-4)."""

import asyncio
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from odradek.broker.configuration.config import BrokerConfig, configure
from odradek.broker.runtime.controlled_time import ControlledTime
from odradek.broker.security.tls.certificates import ListenerCertificates
from odradek.broker.security.tls.settings import UnusableTls
from tests.support.certs_directory import PASSWORD, another_authority, certificates, ssl_settings
from tests.support.clock import ManualTimers
from tests.support.workers_here import WorkersHere

YEAR_MS = 366 * 24 * 3600 * 1000

LOCATION = "listener.name.ssl.ssl.keystore.location"


def config_with(directory: Path, **more: str) -> BrokerConfig:
    settings = {name: str(value) for name, value in ssl_settings(directory, **more).items()}
    return configure({}, {}, settings)[0]


def loaded(directory: Path, **more: str) -> bytes:
    """Returns the certificate, in DER, served by a listener with these settings."""
    return ListenerCertificates(config_with(directory, **more)).tls_of("SSL").certificate


def refusal(directory: Path, **more: str) -> str:
    with pytest.raises(UnusableTls) as refused:
        loaded(directory, **more)
    return str(refused.value)


def pem_parts(directory: Path) -> tuple[str, str]:
    """Returns the key and the certificate chain in server.pem."""
    text = (directory / "server.pem").read_text()
    end = text.index("-----BEGIN CERTIFICATE")
    return text[:end], text[end:]


@pytest.fixture
def own() -> Path:
    """Returns a directory of certificates that the test can change."""
    return another_authority()


def test_pem_and_the_names_in_it_are_read_where_cryptography_is_missing() -> None:
    settings = {name: str(value) for name, value in ssl_settings(certificates("kate")).items()}
    code = (
        "import sys\n"
        "sys.modules['cryptography'] = None\n"
        "from odradek.broker.configuration.config import configure\n"
        "from odradek.broker.security.tls.certificates import ListenerCertificates\n"
        "from odradek.broker.security.tls.principals import alternative_names\n"
        f"certificate = ListenerCertificates(configure({{}}, {{}}, {settings!r})[0]).tls_of('SSL').certificate\n"
        "print('DNS:localhost' in alternative_names(certificate))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


def test_a_pem_file_a_pkcs12_file_and_settings_hold_the_same_certificate() -> None:
    directory = certificates("kate")
    key, chain = pem_parts(directory)
    inline = {
        "listeners": "SSL://localhost:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key.replace("\n", "\\n"),
        "ssl.keystore.certificate.chain": chain,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": (directory / "ca.pem").read_text(),
    }
    from_settings = ListenerCertificates(configure({}, {}, inline)[0]).tls_of("SSL").certificate
    p12 = {"ssl_keystore_type": "PKCS12", "ssl_keystore_location": str(directory / "server.p12")}
    assert loaded(directory) == from_settings == loaded(directory, **p12, ssl_keystore_password=PASSWORD)


def test_a_pkcs12_file_that_is_called_jks_is_read_as_java_reads_it() -> None:
    directory = certificates("kate")
    stores = {
        "ssl_keystore_type": "JKS",
        "ssl_keystore_location": str(directory / "server.p12"),
        "ssl_keystore_password": PASSWORD,
        "ssl_truststore_type": "JKS",
        "ssl_truststore_location": str(directory / "truststore.p12"),
        "ssl_truststore_password": PASSWORD,
    }
    assert loaded(directory, **stores) == loaded(directory)


@pytest.mark.parametrize("encryption", [("-v2", "aes-256-cbc"), ("-v1", "PBE-SHA1-3DES")])
def test_scenario_005_encrypted_keys_are_read_whichever_way_they_are_encrypted(
    own: Path, encryption: tuple[str, str]
) -> None:
    before = loaded(own)
    key, chain = pem_parts(own)
    (own / "key.pem").write_text(key)
    command = ["openssl", "pkcs8", "-topk8", *encryption, "-in", str(own / "key.pem"), "-passout", "pass:swordfish"]
    encrypted = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (own / "server.pem").write_text(encrypted + chain)
    assert loaded(own, ssl_key_password="swordfish") == before
    assert "ssl.key.password is wrong" in refusal(own, ssl_key_password="perch")
    assert "its private key is encrypted: set ssl.key.password" in refusal(own)


def test_scenario_004_a_store_that_cannot_be_used_is_refused_at_the_start(own: Path) -> None:
    p12 = {"ssl_keystore_type": "PKCS12", "ssl_keystore_location": str(own / "server.p12")}
    assert "the password is wrong" in refusal(own, **p12, ssl_keystore_password="perch")
    assert "cannot be read: No such file" in refusal(own, ssl_keystore_location=str(own / "none.pem"))
    assert "has no private key in PEM" in refusal(own, ssl_keystore_location=str(own / "ca.pem"))
    assert "has no certificate in PEM" in refusal(own, ssl_truststore_location=str(own / "ca-key.pem"))


def test_a_jks_store_is_refused_with_the_way_out(own: Path) -> None:
    (own / "store.jks").write_bytes(bytes.fromhex("feedfeed0000000200000000"))
    jks = {"ssl_keystore_type": "JKS", "ssl_keystore_location": str(own / "store.jks")}
    assert "-deststoretype PKCS12" in refusal(own, **jks, ssl_keystore_password="x")


def test_scenario_027_an_unusable_certificate_is_refused_and_the_old_one_stays(own: Path) -> None:
    config = config_with(own)
    live = ListenerCertificates(config)
    (own / "junk.pem").write_text("junk")
    for changed in (
        {LOCATION: str(own / "none.pem")},
        {LOCATION: str(own / "junk.pem")},
        {LOCATION: str(own / "ca.pem")},
        {"listener.name.ssl.ssl.keystore.password": "x"},
        {"listener.name.ssl.ssl.keystore.type": "PKCS12", "listener.name.ssl.ssl.keystore.password": "x"},
    ):
        with pytest.raises(UnusableTls):
            live.check(changed)


def test_a_key_that_does_not_belong_to_the_certificate_is_refused(own: Path) -> None:
    """Checks that a key for another certificate is refused. Kafka accepts such a key, and then every handshake fails
    (scenario 27a)."""
    _, chain = pem_parts(own)
    key, _ = pem_parts(certificates("kate"))
    (own / "mixed.pem").write_text(key + chain)
    live = ListenerCertificates(config_with(own))
    with pytest.raises(UnusableTls, match="its private key does not belong to its first certificate"):
        live.check({LOCATION: str(own / "mixed.pem")})


def test_scenario_025_a_certificate_of_the_same_name_is_exchanged(own: Path) -> None:
    config = config_with(own)
    live = ListenerCertificates(config)
    before = live.tls_of("SSL").certificate
    wider = another_authority(hosts=("localhost", "127.0.0.1", "broker.example"))
    change = {LOCATION: str(wider / "server.pem")}
    live.check(change)
    config.set_dynamic({}, change)
    live.refresh()
    assert live.tls_of("SSL").certificate == loaded(wider) != before


def test_scenario_026_a_certificate_for_another_name_is_refused_unless_that_is_permitted(own: Path) -> None:
    other = {LOCATION: str(another_authority(hosts=("elsewhere", "localhost", "127.0.0.1")) / "server.pem")}
    fewer = {LOCATION: str(another_authority(hosts=("localhost",)) / "server.pem")}
    live = ListenerCertificates(config_with(own))
    with pytest.raises(UnusableTls, match="the new certificate is for CN=elsewhere"):
        live.check(other)
    with pytest.raises(UnusableTls, match="lacks the subject alternative names IPAddress:127"):
        live.check(fewer)
    ListenerCertificates(config_with(own, ssl_allow_dn_changes="true")).check(other)
    ListenerCertificates(config_with(own, ssl_allow_san_changes="true")).check(fewer)


def test_scenario_031_whether_clients_need_a_certificate_stays_as_it_was_at_the_start(own: Path) -> None:
    config = config_with(own)
    live = ListenerCertificates(config)
    config.set_dynamic({}, {"listener.name.ssl.ssl.client.auth": "required"})
    live.refresh()
    assert live.tls_of("SSL").settings.client_auth.value == "none"


def test_scenario_032_a_file_that_changes_is_read_anew_and_junk_in_it_is_passed_over(
    own: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live = ListenerCertificates(config_with(own))
    timers = ManualTimers()
    live.watch(timers, WorkersHere(), 2000)
    before = live.tls_of("SSL")
    (own / "server.pem").write_text("junk")
    timers.advance(6000)
    assert live.tls_of("SSL") is before
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
    shutil.copy(another_authority() / "server.pem", own / "server.pem")
    timers.advance(2000)
    assert live.tls_of("SSL").certificate == loaded(own) != before.certificate
    live.stop()
    assert timers.armed() == []


async def test_a_year_that_a_clock_is_moved_ahead_reads_no_file(own: Path) -> None:
    live = ListenerCertificates(config_with(own))
    time = ControlledTime(asyncio.get_running_loop(), 1000, is_frozen=True)
    live.watch(time, WorkersHere(), 2000)
    await time.advance(YEAR_MS, partial(asyncio.sleep, 0))
    await time.advance(2000, partial(asyncio.sleep, 0))
    assert time.actions_run <= 2
    live.stop()


def test_a_setting_that_is_removed_gives_way_to_what_was_given_at_the_start(own: Path) -> None:
    config = config_with(own)
    live = ListenerCertificates(config)
    other = {LOCATION: str(another_authority() / "server.pem")}
    config.set_dynamic({}, other)
    live.refresh()
    assert live.tls_of("SSL").certificate != loaded(own)
    live.check({LOCATION: None})
    config.set_dynamic({}, {})
    live.refresh()
    assert live.tls_of("SSL").certificate == loaded(own)
