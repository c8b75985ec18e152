"""Applications that consume with librdkafka, one function each. The last line that one prints is all that it sees."""

from __future__ import annotations

import os
import sys
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

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


try:
    print(globals()[sys.argv[1]](), flush=True)
except KafkaException as raised:
    print(f"raised {raised}", flush=True)
os._exit(0)  # what cannot end its threads is seen already
