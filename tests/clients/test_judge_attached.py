"""`odradek judge --attach`: a verdict on the clients of a broker that runs, in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.protocol.recording import Kind, Recording
from odradek.testing.sync import Odradek
from tests.support.broker_process import IS_KAFKA
from tests.support.commands import command

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka has no control interface")
PATIENCE_S = 60


def commit(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", "one")
    producer.commit_transaction(30)


def wait_for_a_written_end_of_a_transaction(recording: Path) -> None:
    ends_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_s:
        with recording.open("rb") as file:
            entries = list(Recording(file.read).entries())
        asked = {entry.exchange for entry in entries if entry.kind is Kind.RECEIVED and entry.body[:2] == b"\0\x1a"}
        if any(entry.kind is Kind.WRITTEN and entry.exchange in asked for entry in entries):
            return
        time.sleep(0.05)
    raise AssertionError("no EndTxn is in the recording")


@pytest.mark.slow  # make test-slow
@pytest.mark.parametrize("is_default", [True, False])
def test_a_broker_that_runs_is_judged_until_it_is_interrupted(is_default: bool, tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    with Odradek.start() as odradek:
        kafka = odradek.default if is_default else odradek.cluster()
        words = ["judge", "--attach", f"127.0.0.1:{odradek.port}", "--cluster", kafka.id, "--record", str(recording)]
        judge = subprocess.Popen(
            [sys.executable, "-m", "odradek", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert judge.stderr is not None
        assert "attached" in judge.stderr.readline()
        commit(kafka.bootstrap)
        wait_for_a_written_end_of_a_transaction(recording)
        judge.send_signal(signal.SIGINT)
        said, errors = judge.communicate(timeout=PATIENCE_S)
        assert judge.returncode == 0, said + errors
        assert "kept     TXN.1 " in said
        commit(kafka.bootstrap)  # after the judge has gone


def test_a_cluster_that_is_deleted_ends_it_with_the_verdict(tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    with Odradek.start() as odradek:
        kafka = odradek.cluster()
        words = ["judge", "--attach", f"127.0.0.1:{odradek.port}", "--cluster", kafka.id, "--record", str(recording)]
        judge = subprocess.Popen(
            [sys.executable, "-m", "odradek", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert judge.stderr is not None
        assert "attached" in judge.stderr.readline()
        commit(kafka.bootstrap)
        wait_for_a_written_end_of_a_transaction(recording)
        kafka.delete()
        said, errors = judge.communicate(timeout=PATIENCE_S)
    assert judge.returncode == 0, said + errors
    assert "the broker ended the recording" in errors
    assert "kept     TXN.1 " in said


def test_what_cannot_be_attached_to_is_said() -> None:
    with Odradek.start() as odradek:
        address = f"127.0.0.1:{odradek.port}"
        unknown = command("judge", "--attach", address, "--cluster", "none")
    assert unknown.returncode == 3
    assert "no cluster" in unknown.stderr
    assert command("judge", "--attach", address).returncode == 3  # it has stopped
    assert command("judge", "--attach", address, "--", "true").returncode == 3
