"""Applications based on kafka-python. Each function is an application; its return value is printed as the result."""

from __future__ import annotations

import os
import sys
import threading
import time

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

AT = os.environ["ODRADEK_BOOTSTRAP"]


def read_all() -> str:
    consumer = KafkaConsumer(bootstrap_servers=AT, auto_offset_reset="earliest", consumer_timeout_ms=5_000)
    consumer.assign([TopicPartition("orders", 0)])
    return "read " + ", ".join(repr(record.value) for record in consumer)


class Assignments(ConsumerRebalanceListener):  # type: ignore[misc]
    """Counts the assignments of partitions."""

    def __init__(self) -> None:
        self.count = 0

    def on_partitions_revoked(self, revoked: object) -> None:
        pass

    def on_partitions_assigned(self, assigned: object) -> None:
        self.count += 1


def join_twice() -> str:
    consumer = KafkaConsumer(bootstrap_servers=AT, group_id="g", heartbeat_interval_ms=300)
    assignments = Assignments()
    consumer.subscribe(["orders"], listener=assignments)
    while assignments.count < 2:
        consumer.poll(100)
    consumer.poll(2_000)
    return "joined twice"


def wait_idly() -> str:
    consumer = KafkaConsumer(bootstrap_servers=AT, fetch_max_wait_ms=200, session_timeout_ms=6_000)
    consumer.assign([TopicPartition("orders", partition) for partition in (0, 1, 2)])
    consumer.poll(2_000)
    before_s = time.process_time()
    consumer.poll(8_000)
    return "busy" if time.process_time() - before_s > 1 else "idle"


def wait_long() -> str:
    consumer = KafkaConsumer(
        "orders", bootstrap_servers=AT, group_id="g", session_timeout_ms=6_000, request_timeout_ms=7_000,
        heartbeat_interval_ms=500, fetch_max_wait_ms=2_500, retry_backoff_ms=20,
    )  # fmt: skip
    until_s = time.monotonic() + 13
    while time.monotonic() < until_s:
        consumer.poll(3_000)
    return "polled"


def read_one_of_two_topics() -> str:
    consumer = KafkaConsumer("orders", "others", bootstrap_servers=AT, group_id="g", auto_offset_reset="earliest")
    return f"read {next(consumer).value!r}"


def send_ten() -> str:
    """Sends ten records one after another, continuing after failed sends."""
    producer = KafkaProducer(
        bootstrap_servers=AT, enable_idempotence=True, retry_backoff_ms=200, delivery_timeout_ms=5_000,
        request_timeout_ms=4_000,
    )  # fmt: skip
    failed = 0
    for number in range(10):
        try:
            producer.send("orders", b"%d" % number).get(6)
        except KafkaError:
            failed += 1
    producer.close(5)
    return f"sent {10 - failed} of 10"


def ten_transactions_with_offsets() -> str:
    """Commits offsets in ten transactions.

    Each transaction also writes a record, so AddOffsetsToTxn follows AddPartitionsToTxn on the same connection.
    """
    from kafka import OffsetAndMetadata
    from kafka.consumer.group import ConsumerGroupMetadata

    producer = KafkaProducer(bootstrap_servers=AT, transactional_id="t", retry_backoff_ms=50)
    producer.init_transactions()
    for number in range(10):
        producer.begin_transaction()
        producer.send("orders", b"%d" % number, partition=0)
        offsets = {TopicPartition("orders", 0): OffsetAndMetadata(number, "", -1)}
        producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("g", -1, "", None))
        producer.commit_transaction()
    producer.close(5)
    return "committed"


def hang() -> None:
    print("hangs", flush=True)
    os._exit(0)


threading.Timer(20, hang).start()
try:
    print(globals()[sys.argv[1]](), flush=True)
except KafkaError as error:
    print(f"raised {error!r}", flush=True)
os._exit(0)
