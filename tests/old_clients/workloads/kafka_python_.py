"""Applications on kafka-python, one function each. The last line that one prints is all that it sees."""

from __future__ import annotations

import os
import sys

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

AT = os.environ["ODRADEK_BOOTSTRAP"]


def read_all() -> str:
    consumer = KafkaConsumer(bootstrap_servers=AT, auto_offset_reset="earliest", consumer_timeout_ms=5_000)
    consumer.assign([TopicPartition("orders", 0)])
    return "read " + ", ".join(repr(record.value) for record in consumer)


try:
    print(globals()[sys.argv[1]](), flush=True)
except KafkaError as error:
    print(f"raised {error!r}", flush=True)
os._exit(0)
