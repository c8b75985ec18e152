"""A driver for `odradek judge --suite` that uses kafka-python. Transactions need kafka-python 2.1 or later."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable  # noqa: UP035 (old releases run on Python 3.8)

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

AT: dict[str, Any] = {
    "bootstrap_servers": os.environ["ODRADEK_BOOTSTRAP"],
    "client_id": "judged",
    "metadata_max_age_ms": 1000,
}
KNOWS_TRANSACTIONS = "transactional_id" in KafkaProducer.DEFAULT_CONFIG
KNOWS_INSTANCES = "group_instance_id" in KafkaConsumer.DEFAULT_CONFIG
producers: list[Any] = []
consumers: list[Any] = []
asked: dict[str, Any] = {}  # settings from the `set` command


def producing() -> Any:
    if not producers:
        settings = {**AT}
        is_transactional = KNOWS_TRANSACTIONS and "ODRADEK_TRANSACTIONAL_ID" in os.environ
        if is_transactional:
            settings["transactional_id"] = os.environ["ODRADEK_TRANSACTIONAL_ID"]
        elif os.environ.get("ODRADEK_IDEMPOTENCE") == "off" or not KNOWS_TRANSACTIONS:
            settings.update(max_in_flight_requests_per_connection=1, acks="all", retries=5)
            if KNOWS_TRANSACTIONS:
                settings["enable_idempotence"] = False
        producers.append(KafkaProducer(**settings))
        if is_transactional:
            producers[0].init_transactions()
    return producers[0]


def produce(topic: str, partition: str, *values: str) -> dict[str, object]:
    producer = producing()
    sent = [producer.send(topic, value.encode(), partition=int(partition)) for value in values]
    for each in sent:
        each.get(30)
    return {}


def begin() -> dict[str, object]:
    producing().begin_transaction()
    return {}


def commit() -> dict[str, object]:
    producing().commit_transaction()
    return {}


def abort() -> dict[str, object]:
    producing().abort_transaction()
    return {}


def set_(name: str, value: str) -> dict[str, object]:
    if name == "max_poll_interval_ms":
        asked.update(max_poll_interval_ms=int(value), session_timeout_ms=6000)
    elif name == "rack" and "client_rack" in KafkaConsumer.DEFAULT_CONFIG:
        asked["client_rack"] = value
    elif name == "create_topics" and "allow_auto_create_topics" in KafkaConsumer.DEFAULT_CONFIG:
        asked["allow_auto_create_topics"] = value != "off"
    elif name == "assignor" and value == "cooperative-sticky":
        try:
            from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        except ImportError:
            return {"unimplemented": True}
        asked["partition_assignment_strategy"] = [CooperativeStickyAssignor]
    else:
        return {"unimplemented": True}
    return {}


def subscribe(topic: str) -> dict[str, object]:
    if consumers:
        consumers[0].subscribe([topic])
        return {}
    settings = {"group_id": os.environ["ODRADEK_GROUP"], "auto_offset_reset": "earliest", "enable_auto_commit": False}
    if "isolation_level" not in KafkaConsumer.DEFAULT_CONFIG:
        return {"unimplemented": True}
    settings["isolation_level"] = "read_committed"
    if KNOWS_INSTANCES and "ODRADEK_GROUP_INSTANCE_ID" in os.environ:
        settings["group_instance_id"] = os.environ["ODRADEK_GROUP_INSTANCE_ID"]
    consumers.append(KafkaConsumer(topic, **AT, **settings, **asked))
    return {}


def poll(timeout_ms: str) -> dict[str, object]:
    found = consumers[0].poll(timeout_ms=int(timeout_ms))
    return {"records": [(each.value or b"").decode(errors="replace") for some in found.values() for each in some]}


def ack() -> dict[str, object]:
    consumers[0].commit()
    return {}


def unsubscribe() -> dict[str, object]:
    consumers[0].unsubscribe()
    return {}


def create(topic: str) -> dict[str, object]:
    admin = KafkaAdminClient(**AT)
    admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
    admin.close()
    return {}


def groups() -> dict[str, object]:
    admin = KafkaAdminClient(**AT)
    found = admin.list_groups()
    admin.close()
    return {"records": [each["group_id"] for each in found]}


VERBS: dict[str, Callable[..., dict[str, object]]] = {
    each.__name__.rstrip("_"): each for each in (produce, set_, subscribe, unsubscribe, poll, ack, create)
}
if hasattr(KafkaAdminClient, "list_groups"):
    VERBS["groups"] = groups
if KNOWS_TRANSACTIONS:
    VERBS.update(begin=begin, commit=commit, abort=abort)
for line in sys.stdin:
    verb, *words = line.split()
    told: dict[str, object] = {"unimplemented": True}
    try:
        if verb in VERBS:
            told = VERBS[verb](*words)
    except KafkaError as error:
        told = {"error": repr(error)}
    print(json.dumps(told), flush=True)
for client in [*producers, *consumers]:
    client.close()
