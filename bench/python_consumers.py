"""Compares Odradek's consumer with two other Python consumers that do not need Kafka's C library. All consumers read
the same log.

The asyncio clients run on uvloop, and all clients use their default settings. The time starts when the partition is
assigned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import aiokafka
import kafka

from bench.clients import incompressible
from bench.python_clients import on_uvloop
from bench.subjects import Subject
from bench.topics import topic
from odradek.client import Consumer, ConsumerRecord, Producer, TopicPartition

BATCH_BYTES = 64 * 1024
PATIENCE_MS = 10_000


async def fill(bootstrap: str, name: str, value: bytes, count: int) -> None:
    async with Producer(bootstrap_servers=bootstrap, batch_size=BATCH_BYTES, linger_ms=5) as producer:
        sent = [await producer.send(name, value) for _ in range(count)]
        await producer.flush()
        for record in sent:
            record.result()


def iterate_ours(bootstrap: str, name: str, count: int) -> float:
    async def work() -> float:
        async with Consumer(bootstrap_servers=bootstrap) as consumer:
            started, left = time.perf_counter(), count
            consumer.assign([TopicPartition(name, 0)])
            async for _ in consumer:
                left -= 1
                if left == 0:
                    break
            return time.perf_counter() - started

    return on_uvloop(work())


def iterate_aiokafka(bootstrap: str, name: str, count: int) -> float:
    async def work() -> float:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            started, left = time.perf_counter(), count
            consumer.assign([aiokafka.TopicPartition(name, 0)])
            async for _ in consumer:
                left -= 1
                if left == 0:
                    break
            return time.perf_counter() - started
        finally:
            await consumer.stop()

    return on_uvloop(work())


def iterate_kafka_python(bootstrap: str, name: str, count: int) -> float:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    try:
        started, left = time.perf_counter(), count
        consumer.assign([kafka.TopicPartition(name, 0)])
        for _ in consumer:
            left -= 1
            if left == 0:
                break
        return time.perf_counter() - started
    finally:
        consumer.close()


def poll_ours(bootstrap: str, name: str, count: int) -> float:
    async def work() -> float:
        async with Consumer(bootstrap_servers=bootstrap) as consumer:
            started, left = time.perf_counter(), count
            consumer.assign([TopicPartition(name, 0)])
            while left > 0:
                left -= _counted(await consumer.getmany(timeout_ms=PATIENCE_MS))
            return time.perf_counter() - started

    return on_uvloop(work())


def poll_aiokafka(bootstrap: str, name: str, count: int) -> float:
    async def work() -> float:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            started, left = time.perf_counter(), count
            consumer.assign([aiokafka.TopicPartition(name, 0)])
            while left > 0:
                left -= _counted(await consumer.getmany(timeout_ms=PATIENCE_MS))
            return time.perf_counter() - started
        finally:
            await consumer.stop()

    return on_uvloop(work())


def poll_kafka_python(bootstrap: str, name: str, count: int) -> float:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    try:
        started, left = time.perf_counter(), count
        consumer.assign([kafka.TopicPartition(name, 0)])
        while left > 0:
            left -= _counted(consumer.poll(timeout_ms=PATIENCE_MS))
        return time.perf_counter() - started
    finally:
        consumer.close()


def _counted(polled: Mapping[TopicPartition, list[ConsumerRecord]]) -> int:
    count = sum(map(len, polled.values()))
    if count == 0:
        raise RuntimeError(f"no records in {PATIENCE_MS} ms")
    return count


Consume = Callable[[str, str, int], float]
ONE_BY_ONE: Mapping[str, Consume] = {
    "odradek": iterate_ours,
    "aiokafka": iterate_aiokafka,
    "kafka_python": iterate_kafka_python,
}
MANY: Mapping[str, Consume] = {
    "odradek": poll_ours,
    "aiokafka": poll_aiokafka,
    "kafka_python": poll_kafka_python,
}


@dataclass(frozen=True, slots=True)
class PythonConsume:
    value_bytes: int
    messages: int
    ways: Mapping[str, Consume]

    def measure(self, subject: Subject, share: float) -> Mapping[str, float]:
        """Returns thousands of records per second for each library, and Odradek's rate relative to that of the faster
        of the other two."""
        count, value = int(self.messages * share), incompressible(self.value_bytes)
        with topic(subject.bootstrap, 1) as name:
            on_uvloop(fill(subject.bootstrap, name, value, count))
            figures = {
                library: count / consume(subject.bootstrap, name, count) / 1000
                for library, consume in self.ways.items()
            }
        return {**figures, "ahead": figures["odradek"] / max(figures["aiokafka"], figures["kafka_python"])}
