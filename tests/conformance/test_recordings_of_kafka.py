"""Tests that Odradek answers a recording's requests in the same way as the recorded Apache Kafka, and vice versa."""

from __future__ import annotations

from pathlib import Path

from odradek.testing.sync import Process
from tests.clients.test_replay import ProxyThread, work
from tests.clients.test_replay_of_kafka_4_4 import check_alike
from tests.conformance.what_4_4_changed import record
from tests.support.commands import command
from tests.support.oracle import needs_kafka
from tests.support.reserved_port import ReservedPort
from tests.support.running_kafka import running_kafka

pytestmark = needs_kafka
EXPLAINED = (
    "ApiVersions.apiKeys*=each serves APIs that the other has not, or hides",
    "ApiVersions.supportedFeatures*=streams groups are not served; share.version 2 and odradek.share.transactions are",
    "ApiVersions.finalizedFeatures*=streams groups are not served",
)


def replay(recording: Path, *words: str) -> None:
    explained = [word for each in EXPLAINED for word in ("--ignore", each)]
    done = command("replay", str(recording), "--no-pauses", *explained, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 20


def test_odradek_answers_a_recording_of_kafka_alike(tmp_path: Path) -> None:
    reserved, recording = ReservedPort(), tmp_path / "recording"
    advertised = f"advertised.listeners=PLAINTEXT://127.0.0.1:{reserved.number}"
    with (
        running_kafka(tmp_path, "--set", advertised) as kafka,
        ProxyThread(recording, reserved.number, int(kafka.rpartition(":")[2])),
    ):
        work(f"127.0.0.1:{reserved.number}")
    replay(recording)


def test_kafka_answers_a_recording_of_odradek_alike(tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    process = Process({"group.initial.rebalance.delay.ms": "0"}, recording)
    try:
        work(f"{process.ready['host']}:{process.ready['port']}")
    finally:
        process.stop()
    with running_kafka(tmp_path) as kafka:
        replay(recording, "--bootstrap-server", kafka)


def test_odradek_answers_requests_that_kafka_4_4_changed_like_the_running_kafka(tmp_path: Path) -> None:
    """Makes a new recording like the one in the repository and checks that Odradek gives the same answers as the
    recorded Kafka."""
    recording = tmp_path / "recording"
    record(recording, tmp_path)
    check_alike(recording)
