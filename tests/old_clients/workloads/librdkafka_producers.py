"""Applications that produce with librdkafka, one function each. The last line that one prints is all that it sees."""

from __future__ import annotations

import os
import sys

from confluent_kafka import KafkaException, Producer

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
