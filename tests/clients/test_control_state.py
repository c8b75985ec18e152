"""Tests that the control interface shows the state of producers, sessions, connections, members and share records, and
can wait for a state (docs/testing.md)."""

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


def test_producers_are_listed_with_the_state_of_their_partitions(kafka: Cluster) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", "a", partition=1)
    producer.produce("orders", "b", partition=1)
    assert producer.flush(30) == 0
    (found,) = [each for each in kafka.producers() if each["topic"] == "orders"]
    assert (found["partition"], found["open_from_offset"], found["last_offset"]) == (1, 0, 1)
    assert (found["producer_epoch"], found["last_sequence"]) == (0, 1)


def test_a_page_continues_after_the_previous_page(kafka: Cluster) -> None:
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


def test_a_share_group_is_waited_for_as_any_group(kafka: Cluster) -> None:
    kafka.call("POST", "/presets/last-delivery", {"topic": "orders", "group": "s"})
    (listed,) = [each for each in kafka.groups() if each["group"] == "s"]
    found = kafka.wait(group="s", state=listed["state"], members=len(listed["members"]), timeout_s=30)
    assert found["state"] in ("Stable", "Empty")
    assert kafka.wait(group="nobody", state="Dead", members=0, timeout_s=30)["members"] == 0


def test_an_unknown_transaction_has_no_state(kafka: Cluster) -> None:
    assert kafka.wait(transaction="nobody", state=None, timeout_s=30)["partitions"] == []


def test_partitions_are_listed_with_leaders_and_offsets(odradek: Odradek) -> None:
    with odradek.cluster(nodes=[3, 8], topics={"orders": 2}) as kafka:
        produced(kafka, 4)
        zero, one = (each for each in kafka.partitions() if each["topic"] == "orders")
    assert [(each["partition"], each["log_end_offset"], each["leader_epoch"]) for each in (zero, one)] == [
        (0, 4, 0),
        (1, 0, 0),
    ]
    assert {zero["leader"], one["leader"]} == {3, 8}
    assert sorted(zero["replicas"]) == sorted(zero["isr"]) == [3, 8]
    assert zero["topic_id"] == one["topic_id"]


def test_transactions_are_listed_with_the_state_of_their_coordinator(kafka: Cluster) -> None:
    assert kafka.transactions() == []
    kafka.clock.freeze()
    kafka.preset("open-transaction", topic="orders", transactional_id="t", timeout_ms=50_000)
    (found,) = kafka.transactions()
    assert (found["transaction"], found["state"], found["partitions"]) == ("t", "Ongoing", ["orders-0"])
    assert (found["timeout_ms"], found["started_ms"]) == (50_000, kafka.clock.now_ms)
    assert found["producer_id"] == kafka.producers()[-1]["producer_id"]
    kafka.clock.advance(60_000)
    kafka.wait(transaction="t", state="CompleteAbort")
    assert [(each["state"], each["partitions"]) for each in kafka.transactions()] == [("CompleteAbort", [])]


def test_the_state_of_a_loading_coordinator_is_refused(kafka: Cluster) -> None:
    kafka.preset("open-transaction", topic="orders", transactional_id="t")
    kafka.preset("coordinator-loading", type="transaction", key="t", hold="loading")
    with pytest.raises(Refused) as refused:
        kafka.transactions()
    assert refused.value.status == 409
    kafka.release("loading")
    kafka.wait(transaction="t", state="Ongoing")
    assert [each["state"] for each in kafka.transactions()] == ["Ongoing"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_are_listed_with_their_members(kafka: Cluster, protocol: str) -> None:
    assert kafka.groups() == []
    settings = {"group.id": "g", "group.protocol": protocol, "client.id": "reader"}
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, **settings})
    consumer.subscribe(["orders"])
    consumer.poll(0.1)
    kafka.wait(member="reader", group="g", owns=["orders-0", "orders-1"], timeout_s=30)
    (found,) = kafka.groups()
    assert (found["group"], found["type"], found["state"]) == ("g", protocol, "Stable")
    assert [(each["client"], each["partitions"]) for each in found["members"]] == [("reader", ["orders-0", "orders-1"])]
    consumer.close()


def test_share_partitions_are_listed_with_their_records(kafka: Cluster) -> None:
    assert kafka.share_partitions() == []
    produced(kafka, 2)
    kafka.preset("last-delivery", topic="orders", group="s", limit=3)
    found = next(each for each in kafka.share_partitions() if each["partition"] == 0)
    assert (found["share_group"], found["topic"], found["start_offset"]) == ("s", "orders", 0)
    record = found["records"][0]
    assert (record["first_offset"], record["state"], record["deliveries"]) == (0, "AVAILABLE", 2)


@pytest.mark.parametrize(
    ("condition", "field"),
    [
        ({"member": "m", "owns": []}, "group"),
        ({"member": "m", "group": "g", "owns": "orders-0"}, "owns"),
        ({"share_group": "s", "topic": "orders", "state": "ACQUIRED"}, "offset"),
        ({"client": "c", "idle": 1}, "idle"),
    ],
)
def test_an_invalid_condition_is_refused(kafka: Cluster, condition: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as refused:
        kafka.wait(**condition)
    assert (refused.value.status, refused.value.problem["field"]) == (400, field)
