"""Producers that record which of their records were acknowledged and at which offsets."""

import random
import threading
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
import kafka
import kafka.errors

FILLER = "abcdefghij" * 30


@dataclass(frozen=True, slots=True)
class AcknowledgedRecord:
    partition: int
    offset: int
    value: bytes


@dataclass(slots=True)
class Ledger:
    """The outcomes of one producer's records. `refused` contains errors, which an idempotent producer should not
    get."""

    name: str
    acknowledged: list[AcknowledgedRecord] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    sent: int = 0


class CountingProducer(threading.Thread):
    """Sends numbered records to all partitions of a topic until it is stopped, and then waits for all responses."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.ledger = Ledger(name)
        self._address, self._topic, self._partitions = bootstrap, topic, partitions
        self._rng = random.Random(seed)
        self._over = threading.Event()

    def finish(self) -> None:
        self._over.set()
        self.join(180)
        assert not self.is_alive(), f"{self.name} still waits for answers"

    def _next(self) -> tuple[int, bytes]:
        number = self.ledger.sent
        self.ledger.sent += 1
        filler = FILLER[: self._rng.randrange(len(FILLER))]
        return number % self._partitions, f"{self.name}:{number}:{filler}".encode()


class Librdkafka(CountingProducer):
    def run(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._address,
                "enable.idempotence": True,
                "linger.ms": self._rng.choice([0, 2, 5]),
                "compression.type": self._rng.choice(["none", "gzip", "lz4", "zstd"]),
                "batch.num.messages": self._rng.choice([1, 10, 500]),
                "queue.buffering.max.messages": 1_000,
                "delivery.timeout.ms": 120_000,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
            }
        )
        while not self._over.is_set():
            partition, value = self._next()
            while True:
                try:
                    producer.produce(self._topic, value, partition=partition, on_delivery=self._note)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0.0005)  # At a few thousand records per second, a kill always interrupts some of them.
        left = producer.flush(120)
        if left:
            self.ledger.refused.append(f"{left} records without an answer")

    def _note(self, error: Any, message: Any) -> None:
        if error is not None:
            self.ledger.refused.append(str(error))
        else:
            self.ledger.acknowledged.append(AcknowledgedRecord(message.partition(), message.offset(), message.value()))


class KafkaPython(CountingProducer):
    def run(self) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._address,
            enable_idempotence=True,
            linger_ms=self._rng.choice([0, 5]),
            delivery_timeout_ms=120_000,
            request_timeout_ms=10_000,
            max_block_ms=60_000,
            retry_backoff_ms=20,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=100,
        )
        waiting: list[tuple[int, bytes, Any]] = []
        while not self._over.is_set():
            partition, value = self._next()
            waiting.append((partition, value, producer.send(self._topic, value, partition=partition)))
            if len(waiting) > 200:
                self._note(waiting[:100])
                del waiting[:100]
        self._note(waiting)
        producer.close(10)

    def _note(self, sent: list[tuple[int, bytes, Any]]) -> None:
        for partition, value, future in sent:
            try:
                metadata = future.get(120)
            except kafka.errors.KafkaError as error:
                self.ledger.refused.append(repr(error))
            else:
                self.ledger.acknowledged.append(AcknowledgedRecord(partition, metadata.offset, value))
