"""A driver for `odradek judge --suite` that uses librdkafka, with confluent-kafka 1.6 or later."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Callable  # noqa: UP035 (old releases run on Python 3.8)

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

AT: dict[str, str | int | float | bool] = {
    "bootstrap.servers": os.environ["ODRADEK_BOOTSTRAP"],
    "client.id": "judged",
    "topic.metadata.refresh.interval.ms": 1000,
}
producers: list[Producer] = []
consumers: list[Consumer] = []
sharers: list[confluent_kafka.ShareConsumer] = []
asked: dict[str, str | int | float | bool] = {}  # settings from the `set` command


def producing() -> Producer:
    if not producers:
        settings: dict[str, str | int | float | bool] = {**AT, "linger.ms": 0}
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


def set_(name: str, value: str) -> dict[str, object]:
    if name == "max_poll_interval_ms":
        asked.update({"max.poll.interval.ms": int(value), "session.timeout.ms": 6000})
    elif name == "create_topics":
        asked["allow.auto.create.topics"] = value != "off"
    elif name in NAMES:
        asked[NAMES[name]] = value
    else:
        return {"unimplemented": True}
    return {}


def subscribe(topic: str) -> dict[str, object]:
    if consumers:
        consumers[0].subscribe([topic])
        return {}
    settings: dict[str, str | int | float | bool] = {
        **AT,
        "group.id": os.environ["ODRADEK_GROUP"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    if "ODRADEK_GROUP_INSTANCE_ID" in os.environ:
        settings["group.instance.id"] = os.environ["ODRADEK_GROUP_INSTANCE_ID"]
    consumers.append(Consumer({**settings, **asked}))
    consumers[0].subscribe([topic])
    return {}


def unsubscribe() -> dict[str, object]:
    consumers[0].unsubscribe()
    return {}


def share(topic: str) -> dict[str, object]:
    if not hasattr(confluent_kafka, "ShareConsumer"):
        return {"unimplemented": True}
    sharers.append(confluent_kafka.ShareConsumer({**AT, "group.id": os.environ["ODRADEK_GROUP"]}))
    sharers[0].subscribe([topic])
    return {}


def poll(timeout_ms: str) -> dict[str, object]:
    values: list[str] = []
    until = time.monotonic() + int(timeout_ms) / 1000
    while not values and time.monotonic() < until:
        found = [*sharers[0].poll(0.1)] if sharers else [consumers[0].poll(0.1)]
        read = [each for each in found if each is not None and each.error() is None]
        values += [(each.value() or b"").decode(errors="replace") for each in read]
    return {"records": values}


def ack() -> dict[str, object]:
    if sharers:
        refused = [each for each in (sharers[0].commit_sync() or {}).values() if each is not None]
        return {"error": str(refused[0])} if refused else {}
    consumers[0].commit(asynchronous=False)
    return {}


def create(topic: str) -> dict[str, object]:
    admin = AdminClient(AT)
    for each in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        each.result(30)
    return {}


def groups() -> dict[str, object]:
    admin = AdminClient(AT)
    found = admin.list_consumer_groups().result(30)
    return {"error": str(found.errors[0])} if found.errors else {"records": [each.group_id for each in found.valid]}


NAMES = {"protocol": "group.protocol", "assignor": "partition.assignment.strategy", "rack": "client.rack"}
VERBS: dict[str, Callable[..., dict[str, object]]] = {
    act.__name__.rstrip("_"): act
    for act in (produce, begin, commit, abort, set_, subscribe, unsubscribe, share, poll, ack, create, groups)
}
for line in sys.stdin:
    verb, *words = line.split()
    told: dict[str, object] = {"unimplemented": True}
    try:
        if verb in VERBS:
            told = VERBS[verb](*words)
    except (KafkaException, SystemError) as error:  # raised if `flush` fails in a callback
        told = {"error": str(error)}
    print(json.dumps(told), flush=True)
for consumer in consumers:
    consumer.close()
for sharer in sharers:
    sharer.close()
