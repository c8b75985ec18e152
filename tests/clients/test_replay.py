"""Tests `odradek record` and `odradek replay`, with a real client and a fresh broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import is_flexible
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.recording import Kind, Recording, RecordingEntry, pack_block, pack_entries, pack_head
from odradek.testing.recording_proxy import RecordingProxy
from odradek.testing.sync import Cluster, Odradek, Process
from tests.support.broker_process import IS_KAFKA
from tests.support.commands import command
from tests.support.reserved_port import ReservedPort

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="it starts brokers of its own")


def work(bootstrap: str) -> None:
    """Runs transactions, aborts one of them, and reads their records in a group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", num_partitions=1, replication_factor=1)])["t"].result(10)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x", "linger.ms": 0})
    producer.init_transactions(30)
    for number in range(3):
        producer.begin_transaction()
        producer.produce("t", str(number))
        assert producer.flush(30) == 0
        (producer.abort_transaction if number == 1 else producer.commit_transaction)(30)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    got: list[bytes | str | None] = []
    while len(got) < 2:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            got.append(message.value())
    assert got == [b"0", b"2"]
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replay") / "recording"
    process = Process({"group.initial.rebalance.delay.ms": "0"}, path)
    try:
        work(f"{process.ready['host']}:{process.ready['port']}")
    finally:
        process.stop()
    return path


def entries(path: Path) -> list[RecordingEntry]:
    with path.open("rb") as file:
        return list(Recording(file.read).entries())


def test_a_fresh_broker_gives_the_recorded_responses(recording: Path) -> None:
    done = command("replay", str(recording), "--no-pauses")
    assert done.returncode == 0, done.stdout
    assert ", 0 differences" in done.stdout
    assert int(done.stdout.split()[0]) > 20


def test_a_different_response_is_reported_by_api_version_and_field_unless_it_is_explained(
    recording: Path, tmp_path: Path
) -> None:
    changed = entries(recording)
    requests = {entry.exchange: entry.body for entry in changed if entry.kind is Kind.RECEIVED}
    ended, committed = (
        min(exchange for exchange, body in requests.items() if int.from_bytes(body[:2]) == api.value)
        for api in (ApiKey.END_TXN, ApiKey.OFFSET_COMMIT)
    )
    for entry in changed:
        if entry.kind is Kind.ANSWERED and entry.exchange == ended:
            entry.body = entry.body[:-2] + bytes([0, 48])  # INVALID_TXN_STATE
        elif entry.kind is Kind.ANSWERED and entry.exchange == committed:
            entry.body = entry.body[:-5] + bytes([0, 22, 0, 0, 0])  # ILLEGAL_GENERATION, and no tagged fields
    version, commits = (int.from_bytes(requests[each][2:4]) for each in (ended, committed))
    assert not is_flexible(EndTxnResponse, version)
    assert is_flexible(OffsetCommitResponse, commits)
    path = tmp_path / "changed"
    path.write_bytes(pack_head(0) + pack_block(pack_entries(changed)))
    done = command("replay", str(path), "--no-pauses", "--ignore", "OffsetCommit.*errorCode=changed by hand")
    assert done.returncode == 1
    assert f"EndTxn v{version} errorCode: recorded 48, live 0\n    exchange {ended}\n" in done.stdout
    assert "1 are explained" in done.stdout


def disturbed_work(kafka: Cluster) -> None:
    """Runs transactions under rules, with a held marker and clock jumps."""
    kafka.fault({"match": {"api": "EndTxn"}, "do": {"error": "CONCURRENT_TRANSACTIONS"}, "times": 2})
    kafka.fault({"match": {"api": "Produce"}, "at": "applied", "do": {"disconnect": "fin"}, "after": 1, "times": 1})
    kafka.fault({"name": "marker", "match": {"topic": "t"}, "at": "marker", "do": {"hold": "held"}, "times": 1})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "x", "linger.ms": 0})
    producer.init_transactions(30)
    for number in range(3):
        producer.begin_transaction()
        producer.produce("t", str(number))
        assert producer.flush(30) == 0
        producer.commit_transaction(30)
        if not number:
            kafka.wait(hold="held")
            kafka.release("held")
    producer.begin_transaction()
    producer.produce("t", "late")
    assert producer.flush(30) == 0
    kafka.clock.freeze()
    kafka.clock.advance(120_000)  # The clock passes transaction.timeout.ms.
    kafka.clear_faults("marker")
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("disturbed") / "recording"
    process = Process({}, path)
    try:
        disturbed_work(Odradek("127.0.0.1", process.ready["http_port"]).default)
    finally:
        process.stop()
    return path


def test_rules_holds_and_the_clock_are_played_too(disturbed: Path) -> None:
    done = command("replay", str(disturbed), "--no-pauses")
    assert done.returncode == 0, done.stdout
    assert ", 0 differences" in done.stdout
    assert "refused" not in done.stdout


def test_without_control_its_calls_are_named_as_left_out(disturbed: Path) -> None:
    process = Process({})
    try:
        done = command("replay", str(disturbed), "--bootstrap-server", f"127.0.0.1:{process.ready['port']}")
    finally:
        process.stop()
    assert "7 left out: requests that call the control interface" in done.stdout
    assert done.returncode == 1
    assert "EndTxn" in done.stdout


def test_a_file_that_is_not_a_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("no recording")
    assert command("replay", str(path)).returncode == 2
    assert command("replay", str(tmp_path / "none")).returncode == 2


def test_a_proxy_makes_the_same_recording_as_a_broker(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    reserved = ReservedPort()
    port = reserved.number
    process = Process(
        {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}", "group.initial.rebalance.delay.ms": "0"}
    )
    try:
        with ProxyThread(path, port, process.ready["port"]):
            work(f"127.0.0.1:{port}")
    finally:
        process.stop()
    recorded = entries(path)
    kinds = {entry.kind for entry in recorded}
    assert {Kind.OPENED, Kind.RECEIVED, Kind.ANSWERED, Kind.WRITTEN, Kind.CLOSED} <= kinds
    assert [entry.time_us for entry in recorded] == sorted(entry.time_us for entry in recorded)
    judged = command("judge", str(path))
    assert judged.returncode == 0, judged.stdout
    assert "kept     TXN.1 " in judged.stdout
    assert "bypassed the recording" not in judged.stderr


def test_a_proxy_warns_if_clients_are_directed_past_it(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    process = Process({"advertised.listeners": "PLAINTEXT://localhost:1"})
    warned: list[tuple[str, int]] = []
    try:
        with ProxyThread(path, 0, process.ready["port"], warned.append) as proxied:
            AdminClient({"bootstrap.servers": f"127.0.0.1:{proxied.port}"}).list_topics(timeout=10)
    finally:
        process.stop()
    assert warned == [("localhost", 1)]
    assert json.loads(entry_of_kind(path, Kind.EVENT).body) == {"elsewhere": "localhost:1"}
    judged = command("judge", str(path))
    assert judged.returncode == 3
    assert "the broker advertises localhost:1, so clients bypassed the recording" in judged.stderr


def entry_of_kind(path: Path, kind: Kind) -> RecordingEntry:
    (found,) = [entry for entry in entries(path) if entry.kind is kind]
    return found


class ProxyThread:
    """A recording proxy in its own thread."""

    def __init__(
        self, path: Path, port: int, upstream: int, warn: Callable[[tuple[str, int]], None] = lambda _: None
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._proxy = RecordingProxy(path, ("127.0.0.1", upstream), warn)
        self._thread = Thread(target=self._loop.run_forever)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._proxy.start("127.0.0.1", port), self._loop).result(30)

    @property
    def port(self) -> int:
        return self._proxy.port

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._proxy.close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
