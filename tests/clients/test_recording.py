"""Tests that `odradek serve --record` records the exchanges of a real client, that the recording survives when the
broker is killed, and that it contains no passwords."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from odradek.protocol.recording import Kind, Recording, RecordingEntry
from odradek.testing.sync import Odradek, Refused
from odradek.tools.inspect.command import inspect
from tests.support.broker_process import IS_KAFKA, BrokerProcess

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka records nothing")

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="planted-secret";'
SASL = {
    "listeners": "SECURE://127.0.0.1:0",
    "listener.security.protocol.map": "SECURE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.secure.plain.sasl.jaas.config": JAAS,
}


class RecordedBroker(BrokerProcess):
    @property
    def recording(self) -> Path:
        return self.data_dir.with_name("recording")

    def command(self, ready_file: Path) -> list[str]:
        return [*super().command(ready_file), "--record", str(self.recording)]

    def entries(self) -> list[RecordingEntry]:
        with self.recording.open("rb") as file:
            return list(Recording(file.read).entries())


def produce(bootstrap: str, count: int, **settings: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **settings})
    for number in range(count):
        producer.produce("t", str(number))
        assert producer.flush(10) == 0


def test_responses_are_recorded_even_if_the_broker_is_killed(tmp_path: Path) -> None:
    broker = RecordedBroker(tmp_path / "data", {"odradek.control.enable": "true"})
    broker.start()
    produce(broker.bootstrap, 20)
    broker.kill9()
    entries = broker.entries()
    kinds = Counter(entry.kind for entry in entries)
    assert kinds[Kind.OPENED] >= 1
    received = {entry.exchange for entry in entries if entry.kind is Kind.RECEIVED}
    written = {entry.exchange for entry in entries if entry.kind is Kind.WRITTEN}
    assert len(received - written) <= 3  # The last requests may have been in progress when the process was killed.
    assert [entry.time_us for entry in entries] == sorted(entry.time_us for entry in entries)


def test_an_answer_that_a_fault_drops_is_not_recorded_as_one(tmp_path: Path) -> None:
    with RecordedBroker(tmp_path / "data", {"odradek.control.enable": "true"}) as broker:
        assert isinstance(broker, RecordedBroker)
        control = Odradek("127.0.0.1", broker.ready["http_port"])
        control.call(
            "POST", "/faults", {"match": {"api": "Produce"}, "at": "applied", "do": {"drop": True}, "times": 1}
        )
        produce(broker.bootstrap, 1, **{"socket.timeout.ms": 500, "request.timeout.ms": 400})
    entries = broker.entries()
    dropped = [entry.exchange for entry in entries if entry.kind is Kind.UNANSWERED]
    assert len(dropped) == 1
    assert not [entry for entry in entries if entry.kind is Kind.WRITTEN and entry.exchange in dropped]


def test_passwords_are_not_in_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    with RecordedBroker(tmp_path / "data", SASL) as broker:
        assert isinstance(broker, RecordedBroker)
        produce(broker.bootstrap, 1, **login, **{"sasl.password": "planted-secret"})
        guessing = Producer({"bootstrap.servers": broker.bootstrap, **login, "sasl.password": "planted-guess"})
        with pytest.raises(KafkaException):
            guessing.list_topics(timeout=2)
    bodies = b"".join(entry.body for entry in broker.entries())
    assert b"alice" not in bodies
    assert b"planted" not in bodies
    assert inspect([broker.recording], as_json=True) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"SaslHandshake", "SaslAuthenticate", "Produce"} <= {line.get("api") for line in lines}


def test_a_cluster_of_a_test_is_recorded_until_it_is_deleted(odradek: Odradek, tmp_path: Path) -> None:
    file = tmp_path / "recording"
    with odradek.cluster(topics={"orders": 1}) as kafka:
        kafka.record(file)
        kafka.lease(600)
        assert "aborted-tail" in {each["name"] for each in kafka.presets()}
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        producer.produce("orders", b"recorded")
        assert producer.flush(20) == 0
        with pytest.raises(OSError, match="No such file"):
            kafka.record(tmp_path / "missing" / "recording")
    assert b"recorded" in file.read_bytes()
    with pytest.raises(Refused, match="404"):
        kafka.record(file)
