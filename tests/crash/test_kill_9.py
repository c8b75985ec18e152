"""Tests that no acknowledged record is lost when the broker is killed, at any moment and any number of times.

A broker on one data directory is killed ROUNDS times (50 by default), while idempotent producers with acks=all write, a
group commits offsets, and topics are created. SEED repeats a run's choices (not its interleavings).
"""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import kafka
import kafka.errors
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.cimpl import NewTopic

from tests.clients.admin import create_topic, is_led, new_admin
from tests.clients.speakers import SPEAKERS, ReceivedRecord, wait_for
from tests.crash.producers import CountingProducer, KafkaPython, Ledger, Librdkafka
from tests.support.broker_process import Broker, BrokerProcess, new_broker

ROUNDS = int(os.environ.get("ROUNDS", "50"))
SEED = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
PARTITIONS = 3
SETTINGS = {
    "log.segment.bytes": 1_048_576,  # Segments roll between the kills.
    "log.flush.offset.checkpoint.interval.ms": 500,  # Recovery points advance between the kills.
    "offsets.topic.num.partitions": 2,
}


class Gardener(threading.Thread):
    """Creates topics, deletes every third one, and keeps track of the changes that the broker has confirmed. `created`
    contains the topics that it has not deleted."""

    def __init__(self, address: str) -> None:
        super().__init__(name="gardener", daemon=True)
        self.created: set[str] = set()
        self.deleted: set[str] = set()
        self._admin = new_admin(address)
        self._over = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._over.wait(0.2):
            name = f"made-{number}"
            number += 1
            if self._is_confirmed(self._admin.create_topics([NewTopic(name, 2, 1)])[name]):
                if number % 3:
                    self.created.add(name)
                elif self._is_confirmed(self._admin.delete_topics([name])[name]):
                    self.deleted.add(name)

    def _is_confirmed(self, answer: "Future[None]") -> bool:
        try:
            answer.result(60)
        except (KafkaException, TimeoutError):
            return False
        return True

    def finish(self) -> None:
        self._over.set()
        self.join(130)
        assert not self.is_alive()


class Committer(threading.Thread):
    """Commits increasing offsets for its group. `acknowledged` is the largest offset that the broker has confirmed."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(name="committer", daemon=True)
        self.acknowledged = -1
        self._address, self._partition = bootstrap, kafka.TopicPartition(topic, 0)
        self._over = threading.Event()

    def run(self) -> None:
        consumer = self.consumer()
        consumer.assign([self._partition])
        offset = 0
        while not self._over.wait(0.005):
            offset += 1
            try:
                consumer.commit({self._partition: kafka.OffsetAndMetadata(offset, f"note {offset}", -1)}, 10_000)
            except kafka.errors.KafkaError:
                continue
            self.acknowledged = offset
        consumer.close()

    def consumer(self) -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(
            bootstrap_servers=self._address,
            group_id="committer",
            enable_auto_commit=False,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=100,
            retry_backoff_ms=20,
        )

    def finish(self) -> None:
        self._over.set()
        self.join(60)
        assert not self.is_alive()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with new_broker(tmp_path / "data", SETTINGS) as running:
        yield running


def test_acknowledged_records_are_stored_once_and_in_order(broker: Broker) -> None:
    print(f"SEED={SEED} ROUNDS={ROUNDS}")
    rng = random.Random(SEED)
    topic = create_topic(broker.bootstrap, "written", PARTITIONS)
    producers: list[CountingProducer] = [
        Librdkafka(broker.bootstrap, topic, PARTITIONS, "rdkafka-0", SEED),
        Librdkafka(broker.bootstrap, topic, PARTITIONS, "rdkafka-1", SEED + 1),
        KafkaPython(broker.bootstrap, topic, PARTITIONS, "python-0", SEED + 2),
    ]
    committer = Committer(broker.bootstrap, topic)
    gardener = Gardener(broker.bootstrap)
    for thread in (*producers, committer, gardener):
        thread.start()
    starts_ms: list[float] = []
    for _ in range(ROUNDS):
        if rng.random() < 0.8:  # In the other cases, the next kill comes before all clients have reconnected.
            wait_for("every producer to get answers", all_move(producers), 60)
        time.sleep(rng.uniform(0.0, 0.6))
        broker.kill9()
        if rng.random() < 0.3 and isinstance(broker, BrokerProcess):
            broker.kill_while_starting(rng.uniform(0.0, 0.25))  # This kill interrupts the recovery.
        began = time.monotonic()
        broker.start()
        starts_ms.append((time.monotonic() - began) * 1000)
    wait_for("a commit", lambda: committer.acknowledged > 0)
    wait_for("a topic and a deletion", lambda: gardener.created and gardener.deleted)
    for producer in producers:
        producer.finish()
    committer.finish()
    gardener.finish()

    ledgers = [producer.ledger for producer in producers]
    written = {partition: everything(broker.bootstrap, topic, partition) for partition in range(PARTITIONS)}
    print({ledger.name: len(ledger.acknowledged) for ledger in ledgers}, f"slowest start {max(starts_ms):.0f} ms")
    for ledger in ledgers:
        assert ledger.refused == [], ledger.name
        assert len(ledger.acknowledged) == ledger.sent > 0
        check(ledger, written)
    assert sum(map(len, written.values())) == sum(ledger.sent for ledger in ledgers)
    assert committed(committer, topic) >= committer.acknowledged > 0
    admin = new_admin(broker.bootstrap)
    assert gardener.created
    assert [name for name in sorted(gardener.created) if not is_led(admin, name, 2)] == []
    assert gardener.deleted & set(admin.list_topics(timeout=20).topics) == set()
    # A clean stop and start must not change the records.
    broker.restart()
    assert {partition: everything(broker.bootstrap, topic, partition) for partition in written} == written


def all_move(producers: list[CountingProducer]) -> Callable[[], bool]:
    """Returns a function that reports whether every producer has had more records acknowledged since `all_move` was
    called."""
    before = [len(producer.ledger.acknowledged) for producer in producers]

    def moved() -> bool:
        time.sleep(0.005)
        return all(len(one.ledger.acknowledged) > count for one, count in zip(producers, before, strict=True))

    return moved


def everything(bootstrap: str, topic: str, partition: int) -> list[ReceivedRecord]:
    admin = new_admin(bootstrap)
    wait_for("the partitions to be led", lambda: is_led(admin, topic, PARTITIONS))
    reader = SPEAKERS["confluent-kafka"]
    first, end = reader.bounds(bootstrap, topic, partition)
    assert first == 0
    return reader.read(bootstrap, topic, end, partition=partition)


def check(ledger: Ledger, written: dict[int, list[ReceivedRecord]]) -> None:
    """Checks that each acknowledged record is at its offset, that each record exists once, and that each producer's
    records are in order."""
    there = {(partition, one.offset): one.value for partition, found in written.items() for one in found}
    for record in ledger.acknowledged:
        # The response to a duplicate may contain no offset, which clients report as -1.
        if record.offset >= 0:
            assert there.get((record.partition, record.offset)) == record.value, record
    prefix = f"{ledger.name}:".encode()
    for partition, found in written.items():
        numbers = [int(one.value.split(b":")[1]) for one in found if one.value and one.value.startswith(prefix)]
        repeated = [number for number, count in Counter(numbers).items() if count > 1]
        assert repeated == [], f"{ledger.name} in partition {partition}"
        assert numbers == sorted(numbers), f"{ledger.name} in partition {partition}"
        assert set(numbers) == set(range(partition, ledger.sent, PARTITIONS)), f"{ledger.name} in {partition}"


def committed(committer: Committer, topic: str) -> int:
    consumer = committer.consumer()
    found: int = consumer.committed(kafka.TopicPartition(topic, 0))
    consumer.close()
    return found
