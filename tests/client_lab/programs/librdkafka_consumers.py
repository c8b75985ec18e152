"""Applications based on librdkafka that consume, or that use only metadata and administration. Each function is an
application; its return value is printed as the result."""

from __future__ import annotations

import io
import logging
import os
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

AT = {"bootstrap.servers": os.environ["ODRADEK_BOOTSTRAP"]}


def read_two() -> str:
    consumer = Consumer({**AT, "group.id": "g"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    values: list[str] = []
    until_s = time.monotonic() + 20
    while len(values) < 2 and time.monotonic() < until_s:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append((message.value() or b"").decode())
    return "read " + ", ".join(values)


def read_in_a_group() -> str:
    consumer = Consumer({**AT, "group.id": "g"})
    consumer.subscribe(["orders"])
    values: list[str] = []
    until_s = time.monotonic() + 20
    while len(values) < 2 and time.monotonic() < until_s:
        message = consumer.poll(0.2)
        if message is not None:
            values.append(str(message.error() or (message.value() or b"").decode()))
    return "read " + ", ".join(values)


def read_three(refresh_ms: int = 300_000) -> str:
    settings = {"isolation.level": "read_committed", "topic.metadata.refresh.interval.ms": refresh_ms}
    consumer = Consumer({**AT, "group.id": "g", **settings})
    consumer.assign([TopicPartition("orders", 0, 0)])
    return f"read {count(consumer, 3, 15)} of 3"


def read_three_with_fresh_metadata() -> str:
    return read_three(refresh_ms=200)


def read_nearby_from_the_end() -> str:
    """Reads from offset 0 with the nearest replica. If offset 0 is out of range, continues at the log end offset."""
    settings = {"auto.offset.reset": "latest", "client.rack": "near"}
    consumer = Consumer({**AT, "group.id": "g", **settings})
    consumer.assign([TopicPartition("orders", 0, 0)])
    until_s = time.monotonic() + 15
    while time.monotonic() < until_s:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            return f"read {(message.value() or b'').decode()}"
    return "read nothing"


def count(consumer: Consumer, at_most: int, timeout_s: float) -> int:
    read = 0
    until_s = time.monotonic() + timeout_s
    while read < at_most and time.monotonic() < until_s:
        message = consumer.poll(0.2)
        read += message is not None and message.error() is None
    return read


def commit() -> str:
    consumer = Consumer({**AT, "group.id": "g"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    return "committed"


def commit_and_tell() -> str:
    consumer = Consumer({**AT, "group.id": "g"})
    (committed,) = consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    return f"committed, {committed.error}"


def commit_for_a_while() -> str:
    """Commits repeatedly for ten seconds, with a client that caches resolved addresses for a minute. Returns the result
    of the last commit."""
    consumer = Consumer({**AT, "group.id": "g", "broker.address.ttl": 60_000})
    seen = ""
    until_s = time.monotonic() + 10
    while time.monotonic() < until_s:
        try:
            consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
            seen = "committed"
        except KafkaException as error:
            seen = error.args[0].name()
        time.sleep(0.1)
    return seen


def commit_over_a_rebalance() -> str:
    """Commits until a rebalance. Returns whether the rebalance revoked the consumer's partitions or assigned new
    ones."""
    seen: list[str] = []
    cooperative = {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 500}
    consumer = Consumer({**AT, **cooperative, "group.id": "g", "enable.auto.commit": False})
    callbacks = {"on_assign": lambda *_: seen.append("gets"), "on_lost": lambda *_: seen.append("loses")}
    consumer.subscribe(["orders"], **callbacks)
    while len(seen) < 2:
        consumer.poll(0.2)
        try:
            if seen:
                consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.ILLEGAL_GENERATION:
                raise
    return f"{seen[1]} partitions"


def read_in_a_new_group() -> str:
    """Reads as a member of a KIP-848 group. Returns the name of the first error."""
    consumer = Consumer({**AT, "group.id": "g", "group.protocol": "consumer"})
    consumer.subscribe(["orders"])
    until_s = time.monotonic() + 10
    while time.monotonic() < until_s:
        message = consumer.poll(0.2)
        error = None if message is None else message.error()
        if error is not None:
            return f"sees {error.name()}"
    return "sees no error"


def commit_while_leaving() -> str:
    """Reads one record as a member of a KIP-848 group. Then closes the consumer and commits while its partitions are
    being revoked."""
    at = {**AT, "group.id": "g", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    consumer = Consumer({**at, "enable.auto.commit": False})

    def give_back(*_: object) -> None:
        # This ListOffsets request shows the test that the member is leaving.
        consumer.get_watermark_offsets(TopicPartition("orders", 0), 10)
        time.sleep(1)  # meanwhile, the response to the previous heartbeat arrives
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)

    consumer.subscribe(["orders"], on_revoke=give_back)
    while count(consumer, 1, 1) == 0:
        pass
    consumer.close()
    return "commits"


def list_one_topic_again_and_again() -> str:
    consumer = Consumer({**AT, "group.id": "g"})
    listed = [len(consumer.list_topics("orders", timeout=10).topics["orders"].partitions) for _ in range(5)]
    return f"lists up to {max(listed)} partitions"


def be_idle() -> str:
    errors: list[KafkaError] = []
    producer = Producer({**AT, "connections.max.idle.ms": 1_000, "error_cb": errors.append})
    until_s = time.monotonic() + 6
    while not errors and time.monotonic() < until_s:
        producer.poll(0.2)
    return f"sees {errors[0].name() if errors else 'no error'}"


def be_idle_and_read_the_log() -> str:
    """Remains idle for longer than the re-bootstrap trigger, without metadata requests. Returns whether the client's
    log mentions a re-bootstrap."""
    log = io.StringIO()
    logging.basicConfig(level=logging.DEBUG, stream=log)
    settings = {"metadata.recovery.rebootstrap.trigger.ms": 1_000, "debug": "conf"}
    producer = Producer({**AT, **settings}, logger=logging.getLogger())
    producer.list_topics(timeout=10)
    until_s = time.monotonic() + 3
    while time.monotonic() < until_s:
        producer.poll(0.2)
    return "bootstraps again" if "Starting re-bootstrap sequence" in log.getvalue() else "stays"


def count_outages() -> str:
    outages: list[KafkaError] = []

    def hear(error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            outages.append(error)

    producer = Producer({**AT, "error_cb": hear})
    until_s = time.monotonic() + 10
    while len(outages) < 6 and time.monotonic() < until_s:
        producer.poll(0.2)
    return "has an outage each second" if len(outages) == 6 else "settles"


def create_topic() -> str:
    admin = AdminClient({**AT, "topic.metadata.refresh.interval.ms": 500})
    admin.create_topics([NewTopic("orders", num_partitions=1)], request_timeout=10)["orders"].result()
    return "created"


try:
    print(globals()[sys.argv[1]](), flush=True)
except KafkaException as raised:
    print(f"raised {raised}", flush=True)
os._exit(0)  # The result has been printed. A normal exit might hang, because some releases cannot stop their threads.
