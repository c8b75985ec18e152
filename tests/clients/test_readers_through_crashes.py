"""Tests consumers that read while their broker is killed and restarted. If BROKER=kafka is set, the tests run with
Apache Kafka.

While two consumers read committed records, the broker is killed 6 times, or as many times as the environment variable
ROUNDS specifies. One consumer polls steadily with a full queue. The other one starts from the beginning after each
restart.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.cimpl import KafkaError, TopicPartition

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.messages.offset_for_leader_epoch_response import EpochEndOffset, OffsetForLeaderEpochResponse
from tests.clients.admin import create_topic
from tests.clients.speakers import wait_for
from tests.support.broker_process import Broker, new_broker
from tests.support.wire import Wire

pytestmark = pytest.mark.slow  # runs in `make test-slow`

E = ErrorCode
ROUNDS = int(os.environ.get("ROUNDS") or 6)
SEED = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
PATIENCE_S = 60.0
RECORDS = ROUNDS * 4_000
PER_TRANSACTION = 100
PARTITIONS = 4


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    settings = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 2}
    with new_broker(tmp_path / "data", settings) as running:
        yield running


# --- KIP-320: the offset at which a reader's leader epoch ends.


def leader_epoch(wire: Wire, topic: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    return wire.ask(request, 9, MetadataResponse).topics[0].partitions[0].leader_epoch


def fetch_code(wire: Wire, topic: str, *, at_epoch: int) -> ErrorCode:
    partition = FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=at_epoch, partition_max_bytes=1 << 20)
    request = FetchRequest(replica_id=-1, max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[partition])])
    return E(wire.ask(request, 12, FetchResponse).responses[0].partitions[0].error_code)


def end_of(wire: Wire, topic: str, epoch: int, *, at_epoch: int) -> tuple[ErrorCode, int, int]:
    """Returns the error code, the largest epoch that is at most `epoch`, and the end offset of that epoch."""
    partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=at_epoch, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[partition])]
    )
    found: EpochEndOffset = wire.ask(request, 4, OffsetForLeaderEpochResponse).topics[0].partitions[0]
    return E(found.error_code), found.leader_epoch, found.end_offset


def write(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def test_a_crash_begins_a_leader_epoch_and_readers_get_the_end_of_the_previous_one(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap, "epochs")
    write(broker.bootstrap, topic, 7)
    with Wire(broker.bootstrap) as wire:
        before = leader_epoch(wire, topic)
    broker.kill9()
    broker.start()
    with Wire(broker.bootstrap) as wire:
        wait_for("the new leadership", lambda: leader_epoch(wire, topic) > before)
        now = leader_epoch(wire, topic)
        assert fetch_code(wire, topic, at_epoch=before) is E.FENCED_LEADER_EPOCH
        assert fetch_code(wire, topic, at_epoch=now + 1) is E.UNKNOWN_LEADER_EPOCH
        assert fetch_code(wire, topic, at_epoch=now) is E.NONE
        assert end_of(wire, topic, before, at_epoch=before)[0] is E.FENCED_LEADER_EPOCH
        assert end_of(wire, topic, before, at_epoch=now) == (E.NONE, before, 7)
        write(broker.bootstrap, topic, 3)
        assert end_of(wire, topic, before, at_epoch=now) == (E.NONE, before, 7)
        assert end_of(wire, topic, now, at_epoch=now) == (E.NONE, now, 10)
        assert end_of(wire, topic, now + 1, at_epoch=now) == (E.NONE, -1, -1)


# --- Consumers.


class Reader:
    """A consumer that reads all partitions from the start and stores every record that is out of order."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "readers",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 200,
                "metadata.recovery.strategy": "none",
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        self._next = [0] * PARTITIONS
        self.again: list[tuple[int, int, int]] = []  # (partition, offset, lower bound of the expected offset)
        self.values: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.ended: set[int] = set()  # partitions whose end has been reached since this set was last cleared

    def poll(self, timeout_s: float) -> None:
        message = self._consumer.poll(timeout_s)
        if message is None:
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self.ended.add(partition)
            return
        assert value is not None
        self.ended.discard(partition)
        if offset < self._next[partition]:
            self.again.append((partition, offset, self._next[partition]))
        self._next[partition] = offset + 1
        self.values[partition].append(int(value))

    def poll_for(self, duration_s: float) -> None:
        ends_at = time.monotonic() + duration_s
        while time.monotonic() < ends_at:
            self.poll(0.01)

    @property
    def is_at_the_end(self) -> bool:
        return len(self.ended) == PARTITIONS

    def reaches_the_end(self) -> bool:
        self.poll_for(0.05)
        return self.is_at_the_end

    def close(self) -> None:
        self._consumer.close()


def kill_and_start(broker: Broker) -> None:
    broker.kill9()
    broker.start()


def fill(bootstrap: str, topic: str) -> None:
    """Writes transactions, aborts every third one, and leaves another one open."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer", "linger.ms": 5})
    producer.init_transactions(PATIENCE_S)
    for first in range(0, RECORDS, PER_TRANSACTION):
        producer.begin_transaction()
        for number in range(first, first + PER_TRANSACTION):
            producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
        if first // PER_TRANSACTION % 3 == 2:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"-1", partition=0)
    assert producer.flush(PATIENCE_S) == 0


def test_consumers_get_every_committed_record_once_and_the_end_of_each_partition(broker: Broker) -> None:
    print(f"SEED={SEED}")
    rng = random.Random(SEED)
    topic = create_topic(broker.bootstrap, "read", PARTITIONS)
    fill(broker.bootstrap, topic)
    expected = [
        [n for n in range(index, RECORDS, PARTITIONS) if n // PER_TRANSACTION % 3 != 2] for index in range(PARTITIONS)
    ]
    steady = Reader(broker.bootstrap, topic)
    for _ in range(ROUNDS):
        for _ in range(rng.randrange(20, 2_000)):
            steady.poll(0.05)
            if steady.is_at_the_end:
                break
        restart = threading.Thread(target=kill_and_start, args=(broker,))
        restart.start()
        while restart.is_alive():
            steady.poll(0.01)
            time.sleep(0.001)  # This pause makes the consumer's queue of fetched records last longer.
        fresh = Reader(broker.bootstrap, topic)
        wait_for("the ends, from the start", fresh.reaches_the_end, PATIENCE_S)
        fresh.close()
        assert (fresh.values, fresh.again) == (expected, [])
    wait_for("the ends, through all restarts", steady.reaches_the_end, PATIENCE_S)
    steady.close()
    assert steady.again == []
    assert steady.values == expected
