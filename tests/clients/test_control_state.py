"""State of producers, sessions, connections, members and share records, and waits for it (docs/testing.md)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka import KafkaConsumer

from odradek.testing.sync import Cluster, Odradek, Refused, Unmet
from tests.support.blocking_testing import blocking


@pytest.fixture(scope="module", params=["sync", "asyncio"])
def odradek(request: pytest.FixtureRequest) -> Iterator[Odradek]:
    with Odradek.start() if request.param == "sync" else blocking() as started:
        yield started


@pytest.fixture
def kafka(odradek: Odradek) -> Iterator[Cluster]:
    with odradek.cluster() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", 2)])["orders"].result(30)
        yield cluster


def produced(kafka: Cluster, count: int, **settings: str) -> Producer:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "client.id": "writer", **settings})
    for number in range(count):
        producer.produce("orders", str(number), partition=0)
    assert producer.flush(30) == 0
    return producer


def test_producers_as_partitions_know_them(kafka: Cluster) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", "a", partition=1)
    producer.produce("orders", "b", partition=1)
    assert producer.flush(30) == 0
    (found,) = [each for each in kafka.producers() if each["topic"] == "orders"]
    assert (found["partition"], found["open_from_offset"], found["last_offset"]) == (1, 0, 1)
    assert (found["producer_epoch"], found["last_sequence"]) == (0, 1)


def test_pages_have_what_is_behind_the_one_before(kafka: Cluster) -> None:
    producers = [produced(kafka, 1, **{"enable.idempotence": "true"}) for _ in range(3)]
    whole = kafka.producers()
    pages = [kafka.call("GET", f"/producers?skip={skip}&limit=1")[1] for skip in range(len(whole))]
    assert [row for page in pages for row in page["rows"]] == whole
    assert [page["more"] for page in pages] == [True] * (len(whole) - 1) + [False]
    assert len(whole) == len(producers)
    with pytest.raises(Refused, match="limit"):
        kafka.call("GET", "/producers?limit=1001")


def test_a_client_is_connected_and_idle(kafka: Cluster) -> None:
    with pytest.raises(Unmet) as absent:
        kafka.wait(client="writer", timeout_s=0)
    assert absent.value.facts["connections"] == 0
    producer = produced(kafka, 1)
    kafka.wait(client="writer", idle=True, timeout_s=30)
    found = [each for each in kafka.connections() if each["client_id"] == "writer"]
    assert {each["software"] for each in found} == {"confluent-kafka-python"}
    assert {each["node"] for each in found} == {1}
    kafka.fault({"match": {"api": "Produce"}, "do": {"hold": "stuck"}})
    producer.produce("orders", "held")
    producer.poll(0)
    kafka.wait(hold="stuck", timeout_s=30)
    kafka.wait(client="writer", idle=False, timeout_s=30)
    with pytest.raises(Unmet) as busy:
        kafka.wait(client="writer", idle=True, timeout_s=0)
    assert busy.value.facts["in_flight"] >= 1
    kafka.release("stuck")
    assert producer.flush(30) == 0
    kafka.wait(client="writer", idle=True, timeout_s=30)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_owns_partitions(kafka: Cluster, protocol: str) -> None:
    with pytest.raises(Unmet) as absent:
        kafka.wait(member="reader", group="g", owns=["orders-0"], timeout_s=0)
    assert absent.value.facts["owns"] is None
    settings = {"group.id": "g", "group.protocol": protocol, "client.id": "reader"}
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, **settings})
    consumer.subscribe(["orders"])
    consumer.poll(0.1)
    found = kafka.wait(member="reader", group="g", owns=["orders-0", "orders-1"], timeout_s=30)
    assert found["owns"] == ["orders-0", "orders-1"]
    consumer.close()


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_fetch_session_names_its_partitions(odradek: Odradek, nodes: int) -> None:
    with odradek.cluster(nodes=nodes) as kafka:
        kafka.preset("open-transaction", topic="orders", records=1)
        consumer = KafkaConsumer("orders", bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest")
        until_s = time.monotonic() + 30
        rows: list[Any] = []
        while not rows and time.monotonic() < until_s:
            consumer.poll(100)
            rows = [each for each in kafka.sessions() if each["type"] == "fetch" and each["partitions"]]
        consumer.close()
    assert {each["partition"] for row in rows for each in row["partitions"]} == {"orders-0"}


def test_a_record_of_a_share_partition_is_in_a_state(kafka: Cluster) -> None:
    produced(kafka, 2)
    kafka.call("POST", "/presets/last-delivery", {"topic": "orders", "group": "s"})
    found = kafka.wait(share_group="s", topic="orders", offset=0, state="AVAILABLE", deliveries=1, timeout_s=30)
    assert found["partition"] == 0
    with pytest.raises(Unmet) as other:
        kafka.wait(share_group="s", topic="orders", offset=0, state="TX_PENDING", timeout_s=0)
    assert other.value.facts["state"] == "AVAILABLE"
    assert any(each["type"] == "share" and each["group"] == "s" for each in kafka.sessions())


@pytest.mark.parametrize(
    ("condition", "field"),
    [
        ({"member": "m", "owns": []}, "group"),
        ({"member": "m", "group": "g", "owns": "orders-0"}, "owns"),
        ({"share_group": "s", "topic": "orders", "state": "ACQUIRED"}, "offset"),
        ({"client": "c", "idle": 1}, "idle"),
    ],
)
def test_a_condition_that_cannot_be_asked_is_refused(kafka: Cluster, condition: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as refused:
        kafka.wait(**condition)
    assert (refused.value.status, refused.value.problem["field"]) == (400, field)
