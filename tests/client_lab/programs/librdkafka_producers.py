"""Applications based on librdkafka that produce. Each function is an application; its return value is printed as the
result."""

from __future__ import annotations

import os
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

AT = {"bootstrap.servers": os.environ["ODRADEK_BOOTSTRAP"]}
SINGLY = {"batch.num.messages": 1, "linger.ms": 0}  # one request per record
TRANSACTIONAL = {**AT, **SINGLY, "transactional.id": "t"}
IDEMPOTENT = {**AT, **SINGLY, "enable.idempotence": True}


def commit_without_answer() -> str:
    producer = Producer({**AT, "transactional.id": "t", "socket.timeout.ms": 2_000})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("orders", "a")
    try:
        producer.commit_transaction(20)
    except KafkaException as error:
        if not error.args[0].retriable():
            raise
        producer.commit_transaction(20)
    return "committed"


def empty_transaction() -> str:
    producer = Producer({**AT, "transactional.id": "t"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.commit_transaction(10)
    return "committed"


def write_to_two_partitions(producer: Producer) -> None:
    producer.begin_transaction()
    producer.produce("orders", "a", partition=0)
    producer.flush(10)
    producer.produce("orders", "b", partition=0)
    producer.produce("orders", "c", partition=0)
    producer.flush(10)
    producer.produce("orders", "d", partition=1)
    producer.commit_transaction(20)


def transaction_of_two_partitions() -> str:
    """Writes to two partitions in a transaction. On failure, aborts the transaction and runs it again."""
    producer = Producer(TRANSACTIONAL)
    producer.init_transactions(10)
    try:
        write_to_two_partitions(producer)
    except KafkaException:
        producer.abort_transaction(20)
        write_to_two_partitions(producer)
    return "committed"


def offsets_in_a_transaction() -> str:
    consumer = Consumer({**AT, "group.id": "g"})
    producer = Producer(TRANSACTIONAL)
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("orders", "a")
    producer.flush(10)
    producer.send_offsets_to_transaction([TopicPartition("orders", 0, 1)], consumer.consumer_group_metadata(), 8)
    producer.commit_transaction(10)
    return "committed"


def whose_second_batch_fails() -> Producer:
    """Returns a producer with an open transaction whose second batch has failed."""
    producer = Producer({**TRANSACTIONAL, "message.timeout.ms": 4_000})
    producer.init_transactions(10)
    producer.begin_transaction()
    for value in ("a", "b"):
        producer.produce("orders", value)
        producer.flush(10)
    return producer


def next_transaction() -> str:
    """Aborts a failed transaction, then commits a new one."""
    producer = whose_second_batch_fails()
    producer.abort_transaction(10)
    producer.begin_transaction()
    producer.produce("orders", "c")
    producer.commit_transaction(10)
    return "committed"


def transaction_that_timed_out() -> str:
    """Aborts a transaction after its second batch has timed out, so that the producer requests a new epoch."""
    producer = whose_second_batch_fails()
    producer.poll(2)
    producer.abort_transaction(10)
    return "aborted"


def purge_in_a_transaction() -> str:
    """Purges a record in a transaction, so a sequence number is skipped.

    The next transaction may fail because of the gap, but the one after that must be committed.
    """
    producer = Producer({**AT, "transactional.id": "t", "linger.ms": 500})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("orders", "a")
    producer.flush(10)
    producer.produce("orders", "b")
    producer.purge()
    producer.abort_transaction(10)
    producer.begin_transaction()
    producer.produce("orders", "c")
    try:
        producer.commit_transaction(10)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER:
            raise
        producer.abort_transaction(10)
        producer.begin_transaction()
        producer.produce("orders", "d")
        producer.commit_transaction(10)
    return "committed"


def short_transaction() -> str:
    producer = Producer({**TRANSACTIONAL, "transaction.timeout.ms": 2_000, "message.timeout.ms": 2_000})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("orders", "a")
    producer.flush(10)
    producer.abort_transaction(20)
    return "aborted"


def has_orders(producer: Producer) -> bool:
    topics = producer.list_topics(timeout=10).topics
    return "orders" in topics and topics["orders"].error is None


def topic_comes_and_goes() -> str:
    producer = Producer(IDEMPOTENT)
    for value in ("a", "b"):
        while not has_orders(producer):
            pass
        producer.produce("orders", value, partition=0)
        producer.flush(10)
        while value == "a" and has_orders(producer):
            pass
    return "flushed"


def several_in_flight() -> str:
    producer = Producer(IDEMPOTENT)
    producer.produce("orders", "0", partition=0)
    producer.flush(10)
    for value in range(1, 6):
        producer.produce("orders", str(value), partition=0)
    producer.flush(20)
    return "flushed"


def outage() -> str:
    """Sends the third record while the client has no connection."""
    errors: list[object] = []
    producer = Producer({**IDEMPOTENT, "reconnect.backoff.ms": 500, "error_cb": errors.append})
    producer.produce("orders", "0", partition=0)
    producer.flush(10)
    producer.produce("orders", "1", partition=0)
    while not errors:
        producer.poll(0.1)
    producer.produce("orders", "2", partition=0)
    producer.flush(20)
    return "flushed"


def large_batch() -> str:
    largest = {"linger.ms": 500, "batch.num.messages": 100_000, "message.max.bytes": 10_000_000}
    producer = Producer({**IDEMPOTENT, **largest, "retry.backoff.ms": 10, "retry.backoff.max.ms": 10})
    for _ in range(50_000):
        producer.produce("orders", "x", partition=0)
    producer.flush(30)
    return "flushed"


def commit_and_abort() -> str:
    """Commits a transaction, even though the first commit request times out without a response, and aborts the next
    one."""
    producer = Producer({**TRANSACTIONAL, "socket.timeout.ms": 2_000})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("orders", "a")
    producer.commit_transaction(20)
    producer.begin_transaction()
    producer.produce("orders", "b")
    producer.flush(10)
    producer.abort_transaction(20)
    return "aborted"


def send_before_and_after() -> str:
    """Sends to a topic before and after a Metadata response without this topic."""
    producer = Producer({**AT, "enable.idempotence": True, "topic.metadata.refresh.interval.ms": 300})
    for number in range(10):
        producer.produce("orders", str(number), partition=0)
        producer.flush(10)
        if number in (4, 9):
            time.sleep(6)
    return "flushed"


def send_three() -> str:
    producer = Producer({**AT, **SINGLY})
    unsent = 0
    for value in ("a", "b", "c"):
        producer.produce("orders", value)
        unsent = producer.flush(10 / 3)
    return f"sent {3 - unsent} of 3 in 10 s"


try:
    print(globals()[sys.argv[1]](), flush=True)
except KafkaException as raised:
    print(f"raised {raised}", flush=True)
os._exit(0)  # The result has been printed. A normal exit might hang, because some releases cannot stop their threads.
