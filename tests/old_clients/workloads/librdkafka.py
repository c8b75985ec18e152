"""Applications on librdkafka, one function each. The last line that one prints is all that it sees."""

from __future__ import annotations

import os
import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

AT = {"bootstrap.servers": os.environ["ODRADEK_BOOTSTRAP"]}


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


def empty_transaction() -> str:
    producer = Producer({**AT, "transactional.id": "t"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.commit_transaction(10)
    return "committed"


try:
    print(globals()[sys.argv[1]](), flush=True)
except KafkaException as raised:
    print(f"raised {raised}", flush=True)
os._exit(0)  # what cannot end its threads is seen already
