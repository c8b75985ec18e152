"""A driver of `odradek judge --suite` for librdkafka, with confluent-kafka 1.6 or later."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Callable  # noqa: UP035 (old releases run on Python 3.8)

from confluent_kafka import Consumer, KafkaException, Producer

AT: dict[str, str | int | bool] = {
    "bootstrap.servers": os.environ["ODRADEK_BOOTSTRAP"],
    "client.id": "judged",
    "topic.metadata.refresh.interval.ms": 1000,
}
producers: list[Producer] = []
consumers: list[Consumer] = []


def producing() -> Producer:
    if not producers:
        settings: dict[str, str | int | bool] = {**AT, "linger.ms": 0}
        if "ODRADEK_TRANSACTIONAL_ID" in os.environ:
            settings["transactional.id"] = os.environ["ODRADEK_TRANSACTIONAL_ID"]
        elif os.environ.get("ODRADEK_IDEMPOTENCE") == "off":
            settings["max.in.flight.requests.per.connection"] = 1
        else:
            settings["enable.idempotence"] = True
        producers.append(Producer(settings))
        if "transactional.id" in settings:
            producers[0].init_transactions(30)
    return producers[0]


def produce(topic: str, partition: str, *values: str) -> dict[str, object]:
    errors: list[object] = []
    producer = producing()
    for value in values:
        producer.produce(topic, value, partition=int(partition), on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    failed = [error for error in errors if error is not None]
    return {"error": str(failed[0])} if failed else {} if len(errors) == len(values) else {"error": "not delivered"}


def begin() -> dict[str, object]:
    producing().begin_transaction()
    return {}


def commit() -> dict[str, object]:
    producing().commit_transaction(30)
    return {}


def abort() -> dict[str, object]:
    producing().abort_transaction(30)
    return {}


def subscribe(topic: str) -> dict[str, object]:
    settings: dict[str, str | int | bool] = {
        **AT,
        "group.id": os.environ["ODRADEK_GROUP"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    if "ODRADEK_GROUP_INSTANCE_ID" in os.environ:
        settings["group.instance.id"] = os.environ["ODRADEK_GROUP_INSTANCE_ID"]
    consumers.append(Consumer(settings))
    consumers[0].subscribe([topic])
    return {}


def poll(timeout_ms: str) -> dict[str, object]:
    values: list[str] = []
    until = time.monotonic() + int(timeout_ms) / 1000
    while not values and time.monotonic() < until:
        message = consumers[0].poll(0.1)
        if message is not None and message.error() is None:
            values.append((message.value() or b"").decode(errors="replace"))
    return {"records": values}


def ack() -> dict[str, object]:
    consumers[0].commit(asynchronous=False)
    return {}


VERBS: dict[str, Callable[..., dict[str, object]]] = {
    act.__name__: act for act in (produce, begin, commit, abort, subscribe, poll, ack)
}
for line in sys.stdin:
    verb, *words = line.split()
    told: dict[str, object] = {"unimplemented": True}
    try:
        if verb in VERBS:
            told = VERBS[verb](*words)
    except KafkaException as error:
        told = {"error": str(error)}
    print(json.dumps(told), flush=True)
if consumers:
    consumers[0].close()
