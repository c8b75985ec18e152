"""Applications on kafka-python, one function each. The last line that one prints is all that it sees."""

from __future__ import annotations

import os
import sys
import threading
import time

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

AT = os.environ["ODRADEK_BOOTSTRAP"]


def read_all() -> str:
    consumer = KafkaConsumer(bootstrap_servers=AT, auto_offset_reset="earliest", consumer_timeout_ms=5_000)
    consumer.assign([TopicPartition("orders", 0)])
    return "read " + ", ".join(repr(record.value) for record in consumer)


class Assignments(ConsumerRebalanceListener):  # type: ignore[misc]
    """Counts them."""

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


def hang() -> None:
    print("hangs", flush=True)
    os._exit(0)


threading.Timer(20, hang).start()
try:
    print(globals()[sys.argv[1]](), flush=True)
except KafkaError as error:
    print(f"raised {error!r}", flush=True)
os._exit(0)
