"""Sends to a topic before and after an answer to Metadata that lacks it; works with releases for Python 3.8."""

import os
import time

from confluent_kafka import Producer

REFRESH_MS = 300
producer = Producer(
    {
        "bootstrap.servers": os.environ["ODRADEK_BOOTSTRAP"],
        "client.id": "judged",
        "enable.idempotence": True,
        "topic.metadata.refresh.interval.ms": REFRESH_MS,
    }
)
for round_ in range(2):
    for number in range(5):
        producer.produce("orders", b"%d-%d" % (round_, number), partition=0)
        producer.flush(10)
    time.sleep(20 * REFRESH_MS / 1000)
