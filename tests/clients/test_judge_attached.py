"""Tests that `odradek judge --attach` judges the clients of a running broker from another process."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from odradek.protocol.compression import Compression
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.recording import Kind, Recording
from odradek.protocol.recording_cuts import CUT_FROM_BYTES
from odradek.protocol.records import NewRecord, build_batch
from odradek.testing.sync import Odradek
from tests.support.broker_process import IS_KAFKA
from tests.support.commands import command
from tests.support.requests import produce_request
from tests.support.wire import Wire

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka has no control interface")
PATIENCE_S = 60


def commit(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", "one")
    producer.commit_transaction(30)


def batch(marked: bytes, compression: Compression = Compression.NONE) -> bytearray:
    value = b"".join(marked + random.Random(number).randbytes(95) for number in range(100))
    return build_batch([NewRecord(None, value, time.time_ns() // 1_000_000)], compression=compression)


def produced(wire: Wire, records: bytearray) -> int:
    """Produces records. Returns the error code of the response."""
    request = produce_request("orders", records, acks=1)
    return wire.ask(request, 9, ProduceResponse).responses[0].partition_responses[0].error_code


def wait_for_a_written_end_of_a_transaction(recording: Path) -> None:
    ends_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_s:
        with recording.open("rb") as file:
            entries = list(Recording(file.read).entries())
        exchanges = {entry.exchange for entry in entries if entry.kind is Kind.RECEIVED and entry.body[:2] == b"\0\x1a"}
        if any(entry.kind is Kind.WRITTEN and entry.exchange in exchanges for entry in entries):
            return
        time.sleep(0.05)
    raise AssertionError("no EndTxn is in the recording")


@pytest.mark.slow  # runs in `make test-slow`
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
        commit(kafka.bootstrap)  # Clients continue to work after the judge has exited.


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


def test_a_judge_gets_records_only_of_a_batch_whose_crc_is_wrong() -> None:
    with Odradek.start() as odradek:
        kafka = odradek.cluster()
        commit(kafka.bootstrap)  # This also creates the topic.
        address = f"http://127.0.0.1:{odradek.port}/control/v1/clusters/{kafka.id}/recording?records=false"
        with urlopen(address) as recording, Wire(kafka.bootstrap) as wire:
            assert produced(wire, batch(b"plain")) == 0
            # The CRC of this batch is checked in a thread.
            assert produced(wire, batch(b"opens", Compression.GZIP)) == 0
            damaged = batch(b"wrong")
            damaged[-1] ^= 1
            assert produced(wire, damaged) == ErrorCode.CORRUPT_MESSAGE.value
            kafka.delete()
            entries = list(Recording(recording.read).entries())
    requests = [entry for entry in entries if entry.kind is Kind.RECEIVED and len(entry.body) > CUT_FROM_BYTES]
    assert [entry.lacks_records for entry in requests] == [True, True, False]
    assert [b"wrong" in entry.body for entry in requests] == [False, False, True]


def test_an_unknown_cluster_is_named_when_judge_cannot_attach() -> None:
    with Odradek.start() as odradek:
        address = f"127.0.0.1:{odradek.port}"
        unknown = command("judge", "--attach", address, "--cluster", "none")
    assert unknown.returncode == 3
    assert "no cluster" in unknown.stderr
    assert command("judge", "--attach", address).returncode == 3  # The broker has stopped by now.
    assert command("judge", "--attach", address, "--", "true").returncode == 3
