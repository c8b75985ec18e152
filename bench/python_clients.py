"""Compares Odradek's producer with two other Python producers that do not need Kafka's C library. All producers do the
same work with the same batching.

The asyncio clients run on uvloop. All records go to one partition, so that only the clients' own work is compared.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import aiokafka
import kafka

from bench.clients import incompressible
from bench.subjects import Subject
from bench.topics import topic
from odradek.client import Producer

T = TypeVar("T")

BATCH_BYTES = 64 * 1024
LINGER_MS = 5


def on_uvloop(work: Coroutine[Any, Any, T]) -> T:
    # Imported here, because uvloop does not exist on Windows, where the table tests import this module.
    import uvloop

    return uvloop.run(work)


def produce_ours(bootstrap: str, name: str, value: bytes, count: int) -> float:
    async def work() -> float:
        async with Producer(bootstrap_servers=bootstrap, batch_size=BATCH_BYTES, linger_ms=LINGER_MS) as producer:
            await (await producer.send(name, value))  # connects and finds the leader, outside the measured time
            started = time.perf_counter()
            sent = [await producer.send(name, value) for _ in range(count)]
            await producer.flush()
            took_s = time.perf_counter() - started
            for record in sent:
                record.result()
            return took_s

    return on_uvloop(work())


def produce_aiokafka(bootstrap: str, name: str, value: bytes, count: int) -> float:
    async def work() -> float:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, max_batch_size=BATCH_BYTES, linger_ms=LINGER_MS
        )
        await producer.start()
        try:
            await producer.send_and_wait(name, value)
            started = time.perf_counter()
            sent: list[Awaitable[object]] = [await producer.send(name, value) for _ in range(count)]
            await producer.flush()
            took_s = time.perf_counter() - started
            await asyncio.gather(*sent)
            return took_s
        finally:
            await producer.stop()

    return on_uvloop(work())


def produce_kafka_python(bootstrap: str, name: str, value: bytes, count: int) -> float:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, batch_size=BATCH_BYTES, linger_ms=LINGER_MS
    )
    try:
        producer.send(name, value).get(30)
        started = time.perf_counter()
        sent = [producer.send(name, value) for _ in range(count)]
        producer.flush()
        took_s = time.perf_counter() - started
        for record in sent:
            record.get(0)
        return took_s
    finally:
        producer.close()


Produce = Callable[[str, str, bytes, int], float]
PRODUCE: Mapping[str, Produce] = {
    "odradek": produce_ours,
    "aiokafka": produce_aiokafka,
    "kafka_python": produce_kafka_python,
}


@dataclass(frozen=True, slots=True)
class PythonProduce:
    """Measures how fast each library produces records, until all of them are acknowledged with acks=all. Each record
    has a future."""

    value_bytes: int
    messages: int

    def measure(self, subject: Subject, share: float) -> Mapping[str, float]:
        """Returns thousands of records per second for each library, and Odradek's rate relative to that of the faster
        of the other two."""
        count, value = int(self.messages * share), incompressible(self.value_bytes)
        figures = {}
        for library, produce in PRODUCE.items():
            with topic(subject.bootstrap, 1) as name:
                figures[library] = count / produce(subject.bootstrap, name, value, count) / 1000
        return {**figures, "ahead": figures["odradek"] / max(figures["aiokafka"], figures["kafka_python"])}
