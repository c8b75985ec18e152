"""Measures throughput and latency as an application with confluent-kafka (librdkafka) sees them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.subjects import Subject
from bench.topics import topic

PARTITIONS = 4
PER_CALL = 10_000  # maximum number of messages per consume() call
CLIENT_TIMEOUT_S = 60.0
QUICK_CONSUMER = {"fetch.queue.backoff.ms": 2, "queued.min.messages": 1_000_000}


def incompressible(size_bytes: int) -> bytes:
    return Random(size_bytes).randbytes(size_bytes)


def like_json(size_bytes: int) -> bytes:
    """Returns text that compresses about as well as typical application data (by a factor of 2.5 with lz4, 4 with
    zstd)."""
    random, text = Random(1), ""
    while len(text) < size_bytes:
        text += f'{{"id":{random.randrange(10**9)},"name":"customer","amount":{random.randrange(10**6) / 100}}},'
    return text[:size_bytes].encode()


@dataclass(frozen=True, slots=True)
class Throughput:
    """Measures one producer with acks=all writing to a topic with four partitions, and then one consumer reading it."""

    value_bytes: int
    messages: int
    compression: str = "none"

    def measure(self, subject: Subject, share: float) -> Mapping[str, float]:
        """Returns the throughput in MB/s and the broker's CPU seconds per GB for producing and consuming.

        `share` scales the number of messages.
        """
        count = int(self.messages * share)
        gigabytes = count * self.value_bytes / 1e9
        with topic(subject.bootstrap, PARTITIONS) as name:
            cpu_before = subject.cpu_seconds()
            produce_s = self._produce(subject, name, count)
            cpu_between = subject.cpu_seconds()
            consume_s = self._consume(subject, name, count)
            cpu_after = subject.cpu_seconds()
        return {
            "produce_mb_s": gigabytes * 1000 / produce_s,
            "produce_cpu_s_per_gb": (cpu_between - cpu_before) / gigabytes,
            "consume_mb_s": gigabytes * 1000 / consume_s,
            "consume_cpu_s_per_gb": (cpu_after - cpu_between) / gigabytes,
        }

    def _produce(self, subject: Subject, name: str, count: int) -> float:
        producer = Producer(
            {
                "bootstrap.servers": subject.bootstrap,
                "acks": "all",
                "compression.type": self.compression,
                "queue.buffering.max.messages": 200_000,
                "queue.buffering.max.kbytes": 512 * 1024,
                **subject.client_settings,
            }
        )
        producer.list_topics(name, CLIENT_TIMEOUT_S)  # connects and fetches the partition leaders
        value = incompressible(self.value_bytes) if self.compression == "none" else like_json(self.value_bytes)
        produce = producer.produce
        started = time.perf_counter()
        for _ in range(count):
            try:
                produce(name, value)
            except BufferError:
                producer.poll(0.01)
                while len(producer) > 100_000:
                    producer.poll(0.01)
                produce(name, value)
        left = producer.flush(CLIENT_TIMEOUT_S)
        if left:
            raise RuntimeError(f"{left} messages were not acknowledged in {CLIENT_TIMEOUT_S:g} s")
        return time.perf_counter() - started

    def _consume(self, subject: Subject, name: str, count: int) -> float:
        consumer = Consumer(
            {
                "bootstrap.servers": subject.bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **QUICK_CONSUMER,
                **subject.client_settings,
            }
        )
        try:
            consumer.list_topics(name, CLIENT_TIMEOUT_S)
            started = time.perf_counter()
            consumer.assign([TopicPartition(name, index, 0) for index in range(PARTITIONS)])
            while count > 0:
                messages = consumer.consume(min(PER_CALL, count), CLIENT_TIMEOUT_S)
                if not messages:
                    raise RuntimeError(f"{count} messages did not arrive within {CLIENT_TIMEOUT_S:g} s")
                count -= len(messages)
            return time.perf_counter() - started
        finally:
            consumer.close()


@dataclass(frozen=True, slots=True)
class ProduceLatency:
    """Measures the time from produce() to the delivery report, for 100-byte messages sent one at a time with linger=0
    and acks=all."""

    messages: int
    is_synced: bool = False

    def measure(self, subject: Subject, share: float) -> Mapping[str, float]:
        with topic(subject.bootstrap, 1, {"flush.messages": "1"} if self.is_synced else {}) as name:
            producer = Producer({"bootstrap.servers": subject.bootstrap, "acks": "all", "linger.ms": 0})
            times = [_until_delivered(producer, name) for _ in range(100 + int(self.messages * share))][100:]
        return percentiles(times)


def _until_delivered(producer: Producer, name: str) -> float:
    reports: list[object] = []
    started = time.perf_counter()
    producer.produce(name, b"x" * 100, on_delivery=lambda error, _: reports.append(error))
    while not reports:
        producer.poll(CLIENT_TIMEOUT_S)
        if time.perf_counter() - started > CLIENT_TIMEOUT_S:
            raise RuntimeError("no delivery report arrived")
    if reports[0] is not None:
        raise KafkaException(reports[0])
    return time.perf_counter() - started


@dataclass(frozen=True, slots=True)
class EndToEndLatency:
    """Measures the time from produce() to poll() in a waiting consumer, for messages sent one at a time with
    linger=0."""

    messages: int

    def measure(self, subject: Subject, share: float) -> Mapping[str, float]:
        with topic(subject.bootstrap, 1) as name:
            producer = Producer({"bootstrap.servers": subject.bootstrap, "acks": "all", "linger.ms": 0})
            consumer = Consumer({"bootstrap.servers": subject.bootstrap, "group.id": "bench", **QUICK_CONSUMER})
            try:
                consumer.assign([TopicPartition(name, 0, 0)])
                times = []
                for _ in range(100 + int(self.messages * share)):
                    started = time.perf_counter()
                    producer.produce(name, b"x" * 100)
                    message = consumer.poll(CLIENT_TIMEOUT_S)
                    if message is None or message.error():
                        raise RuntimeError(f"the message did not arrive: {message and message.error()}")
                    times.append(time.perf_counter() - started)
                    producer.poll(0)
            finally:
                consumer.close()
        return percentiles(times[100:])


def percentiles(seconds: list[float]) -> Mapping[str, float]:
    ascending = sorted(seconds)
    return {
        "p50_us": ascending[len(ascending) // 2] * 1e6,
        "p99_us": ascending[len(ascending) * 99 // 100] * 1e6,
    }
