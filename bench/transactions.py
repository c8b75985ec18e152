"""Measures transactions in three ways: with librdkafka, with plain requests of transaction.version 1, and with plain
requests of transaction.version 2.

Each transaction writes one 100-byte record with acks=all into the producer's own partition and commits.
"""

import json
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Producer

from bench.clients import CLIENT_TIMEOUT_S, percentiles
from bench.coordinators import RETRY_S, TRANSACTION, await_coordinator
from bench.native import compiled
from bench.subjects import Subject
from bench.topics import topic
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.struct import Message
from tests.support.batches import batch_by
from tests.support.requests import produce_request
from tests.support.wire import Wire

SECONDS = 2.0
VALUE = b"x" * 100
# The producer id and epoch as encoded in requests. transactions.c replaces these placeholders with the actual values.
PLACE = struct.Struct(">qh")
SOME_ID, SOME_EPOCH = 0x1122334455667788, 0x5A5B


@dataclass(frozen=True, slots=True)
class LibrdkafkaTransactions:
    """Runs transactional producers in threads of one process. librdkafka's own work runs outside the interpreter
    lock."""

    producers: int

    def measure(self, subject: Subject, share: float) -> Mapping[str, float]:
        """Returns transactions_s, p50_us and p99_us of commit_transaction(), and the broker's CPU time per
        transaction."""
        with topic(subject.bootstrap, self.producers) as name:
            clients = [_librdkafka(subject.bootstrap, f"{name}-{number}") for number in range(self.producers)]
            for partition, client in enumerate(clients):
                _transaction(client, name, partition)
            times: list[list[float]] = [[] for _ in clients]
            cpu_before, began = subject.cpu_seconds(), time.perf_counter()
            threads = [
                threading.Thread(target=_run, args=(client, name, partition, began + SECONDS * share, times[partition]))
                for partition, client in enumerate(clients)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            took_s = time.perf_counter() - began
            cpu_s = subject.cpu_seconds() - cpu_before
        all_times = [one for each in times for one in each]
        return {
            "transactions_s": len(all_times) / took_s,
            "cpu_us_per_transaction": cpu_s / len(all_times) * 1e6,
            **percentiles(all_times),
        }


def _librdkafka(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0})
    producer.init_transactions(CLIENT_TIMEOUT_S)
    return producer


def _transaction(producer: Producer, name: str, partition: int) -> float:
    """Runs a transaction and returns the duration of the commit in seconds."""
    producer.begin_transaction()
    producer.produce(name, VALUE, partition=partition)
    producer.flush(CLIENT_TIMEOUT_S)
    started = time.perf_counter()
    producer.commit_transaction(CLIENT_TIMEOUT_S)
    return time.perf_counter() - started


def _run(producer: Producer, name: str, partition: int, until: float, times: list[float]) -> None:
    while time.perf_counter() < until:
        times.append(_transaction(producer, name, partition))


@dataclass(frozen=True, slots=True)
class RawTransactions:
    """Sends plain requests with a C program, one at a time on each connection.

    version  1 uses AddPartitionsToTxn v3, Produce v11 and EndTxn v4; 2 uses Produce v12, which adds its partition, and
             EndTxn v5, whose response contains the next epoch
    """

    producers: int
    version: int

    def measure(self, subject: Subject, share: float) -> Mapping[str, float]:
        """Returns transactions_s, p50_us and p99_us of EndTxn, the number of cores that the broker uses, and its CPU
        time."""
        with topic(subject.bootstrap, self.producers) as name, tempfile.NamedTemporaryFile() as file:
            file.write(struct.pack("=i", self.producers))
            with Wire(subject.bootstrap) as wire:
                for number in range(self.producers):
                    file.write(self._script(wire, name, number))
            file.flush()
            seconds = SECONDS * share
            words = [compiled("transactions"), subject.broker.port, file.name, seconds, seconds / 3, subject.pid]
            done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        found: dict[str, float] = json.loads(done.stdout)
        return {
            "transactions_s": found["transactions_s"],
            "p50_us": found["commit_p50_us"],
            "p99_us": found["commit_p99_us"],
            "cores": found["cores"],
            "cpu_us_per_transaction": found["cores"] / found["transactions_s"] * 1e6,
        }

    def _script(self, wire: Wire, name: str, number: int) -> bytes:
        transactional_id = f"{name}-{self.version}-{number}"
        producer_id, epoch = new_pair(wire, transactional_id)
        batch = batch_by((SOME_ID, SOME_EPOCH), 0, VALUE, key=None, at_ms=time.time_ns() // 1_000_000)
        produce = produce_request(name, batch, partition=number, transactional_id=transactional_id)
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=SOME_ID,
            v3_and_below_producer_epoch=SOME_EPOCH,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[number])],
        )
        end = EndTxnRequest(
            transactional_id=transactional_id, producer_id=SOME_ID, producer_epoch=SOME_EPOCH, committed=True
        )
        # After its length, a response contains the correlation id (4), the tags (1) and the throttle time (4; not in
        # Produce). In EndTxn, the error code follows. In Produce and AddPartitionsToTxn, the number of topics (1), the
        # name with its length, the number of partitions (1) and the index (4) precede the error code.
        steps = [_step(end, 5, error_at=9, told_at=11)] if self.version == 2 else [_step(end, 4, error_at=9)]
        steps.insert(0, _step(produce, 12 if self.version == 2 else 11, error_at=12 + len(name), batch=bytes(batch)))
        if self.version == 1:
            steps.insert(0, _step(add, 3, error_at=16 + len(name)))
        return struct.pack("=iqii", len(steps), producer_id, epoch, 0) + b"".join(steps)


def new_pair(wire: Wire, transactional_id: str) -> tuple[int, int]:
    await_coordinator(wire, TRANSACTION, transactional_id)
    init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    deadline = time.monotonic() + CLIENT_TIMEOUT_S
    while time.monotonic() < deadline:
        answer = wire.ask(init, 4, InitProducerIdResponse)
        if answer.error_code == 0:
            return answer.producer_id, answer.producer_epoch
        time.sleep(RETRY_S)  # The coordinator is still loading.
    raise RuntimeError(f"no producer id for {transactional_id}")


def _step(request: Message, version: int, *, error_at: int, told_at: int = -1, batch: bytes | None = None) -> bytes:
    """Packs a request in the format that transactions.c reads."""
    frame = request_bytes(request, version, 1, "bench")
    batch_at = -1 if batch is None else frame.index(batch)
    pair_at = frame.find(PLACE.pack(SOME_ID, SOME_EPOCH)) if batch is None else -1
    return struct.pack("=5i", len(frame), pair_at, batch_at, error_at, told_at) + frame
