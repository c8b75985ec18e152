"""Tests that AlterConfigs replaces certificates while clients stay connected (docs/spec/security.md#s1-4)."""

from __future__ import annotations

import ssl
import struct
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from odradek.broker.configuration.resources import ConfigResourceType
from odradek.protocol.codec import decode
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from odradek.tools.certs import fill
from tests.clients.tls_peers import TIMEOUT_S, alert_of, client_context, is_served, librdkafka, secured
from tests.support.broker_process import IS_KAFKA, BrokerProcess
from tests.support.certs_directory import HOSTS, PASSWORD, another_authority, certificates, ssl_settings

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="the settings are those of this broker's tests")


def alter(
    broker: BrokerProcess, directory: Path, *, prefix: str = "listener.name.ssl.", **settings: str
) -> KafkaError | None:
    """Alters the SSL listener's settings. Returns the broker's error message, or None."""
    admin = AdminClient(librdkafka(broker, "SSL", directory))
    resource = ConfigResource(
        ConfigResource.Type.BROKER,
        "1",
        incremental_configs=[
            ConfigEntry(f"{prefix}{setting.replace('_', '.')}", value, incremental_operation=AlterConfigOpType.SET)
            for setting, value in settings.items()
        ],
    )
    try:
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    except Exception as error:
        found = error.args[0]
        assert isinstance(found, KafkaError)
        return found
    return None


def serial_number(broker: BrokerProcess, context: ssl.SSLContext) -> object:
    with secured(broker, "SSL", context) as client:
        certificate = client.getpeercert()
        assert certificate is not None
        return certificate["serialNumber"]


def test_scenarios_025_and_027_certificates_are_exchanged_by_alter_configs(tmp_path: Path) -> None:
    directory = another_authority("kate")
    with BrokerProcess(tmp_path / "data", ssl_settings(directory)) as broker:
        assert isinstance(broker, BrokerProcess)
        context = client_context(directory)
        with secured(broker, "SSL", context) as staying:
            assert is_served(staying)
            before = serial_number(broker, context)
            (tmp_path / "mixed.pem").write_text(key_of(directory / "ca-key.pem") + chain_of(directory / "server.pem"))
            for wrong in ("none.pem", "mixed.pem"):
                refused = alter(broker, directory, ssl_keystore_location=str(tmp_path / wrong))
                assert refused is not None
                assert refused.code() == KafkaError.INVALID_REQUEST
            assert serial_number(broker, context) == before
            (directory / "server.pem").unlink()
            (directory / "server.p12").unlink()
            renewed = another_server(directory)
            assert alter(broker, directory, ssl_keystore_location=str(renewed)) is None
            assert serial_number(broker, context) != before
            assert is_served(staying)
        broker.restart()
        assert serial_number(broker, context) != before


def key_of(file: Path) -> str:
    return file.read_text().partition("-----BEGIN CERTIFICATE")[0]


def chain_of(file: Path) -> str:
    return "".join(file.read_text().partition("-----BEGIN CERTIFICATE")[1:])


def another_server(directory: Path) -> Path:
    """Writes another certificate for the same hosts, from the same CA, to a new file."""
    fill(directory, hosts=HOSTS, clients=(), password=PASSWORD, now=datetime.now(UTC), days=30)
    return (directory / "server.pem").rename(directory / "renewed.pem")


def test_scenarios_028_and_029_stores_are_exchanged_for_a_listener_of_a_broker_only(tmp_path: Path) -> None:
    directory = another_authority()
    location = str(directory / "server.pem")
    with BrokerProcess(tmp_path / "data", ssl_settings(directory)) as broker:
        assert isinstance(broker, BrokerProcess)
        refused = alter(broker, directory, prefix="", ssl_keystore_location=location)
        assert refused is not None
        assert refused.code() == KafkaError.INVALID_REQUEST
        assert "only per-listener" in refused.str()
        with secured(broker, "SSL", client_context(directory)) as client:
            request = alteration_of_all_brokers("listener.name.ssl.ssl.keystore.location", location)
            client.sendall(request_bytes(request, 1, 1, None))
            (size,) = struct.unpack(">i", client.recv(4))
            answer = b""
            while len(answer) < size:
                answer += client.recv(size - len(answer))
        (result,) = decode(IncrementalAlterConfigsResponse, 1, answer, 5).responses
        assert result.error_code == KafkaError.INVALID_REQUEST
        assert "broker id must be specified" in (result.error_message or "")


@pytest.mark.parametrize("prefix", ["", "listener.name.ssl."])
def test_a_setting_that_would_prevent_the_next_start_is_refused(tmp_path: Path, prefix: str) -> None:
    directory = another_authority()
    with BrokerProcess(tmp_path / "data", ssl_settings(directory)) as broker:
        assert isinstance(broker, BrokerProcess)
        refused = alter(broker, directory, prefix=prefix, ssl_enabled_protocols="TLSv1.1")
        assert refused is not None
        assert refused.code() == KafkaError.INVALID_REQUEST
        assert alter(broker, directory, prefix=prefix, ssl_enabled_protocols="TLSv1.3") is None
        broker.restart()
        with secured(broker, "SSL", client_context(directory)) as client:
            assert client.version() == "TLSv1.3"
            assert is_served(client)


def alteration_of_all_brokers(name: str, value: str) -> IncrementalAlterConfigsRequest:
    """Returns an IncrementalAlterConfigs request for the defaults of all brokers, which librdkafka cannot express."""
    setting = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=ConfigResourceType.BROKER.value, resource_name="", configs=[setting])
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def test_scenario_030_clients_of_an_authority_that_is_no_longer_trusted_are_refused_at_once(tmp_path: Path) -> None:
    directory = another_authority("kate")
    settings = ssl_settings(directory, ssl_client_auth="requested")
    with BrokerProcess(tmp_path / "data", settings) as broker:
        assert isinstance(broker, BrokerProcess)
        context = client_context(directory, "kate")
        with secured(broker, "SSL", context) as client:
            assert is_served(client)
        elsewhere = certificates("kate", "mallory")
        assert alter(broker, directory, ssl_truststore_location=str(elsewhere / "ca.pem")) is None
        assert alert_of(broker, "SSL", context) == "TLSV1_ALERT_UNKNOWN_CA"
