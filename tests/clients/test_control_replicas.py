"""Tests that consumers read from a nearby replica (KIP-392) and return to the leader if necessary (docs/testing.md)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from odradek.client import sync as own
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.describe_producers_response import DescribeProducersResponse
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchResponse, PartitionData
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.testing.sync import Cluster, Odradek, Refused
from tests.clients.admin import create_topic
from tests.support.wire import Wire

PATIENCE_S = 60
MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
BEYOND = ErrorCode.OFFSET_OUT_OF_RANGE
Read = Callable[[], list[bytes]]


@pytest.fixture
def kafka(odradek: Odradek) -> Iterator[Cluster]:
    """Yields a cluster whose leader is node 1 in rack `far`. Node 2 is in rack `near`, and node 3 has no rack."""
    with odradek.cluster(nodes=3, settings={"broker.rack": "far"}) as cluster:
        create_topic(cluster.bootstrap, "orders", 1, exact=True)
        cluster.move_leader("orders", 0, 1)
        cluster.put_in_rack(2, "near")
        yield cluster


def produce(kafka: Cluster, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for value in values:
        producer.produce("orders", value, partition=0)
        producer.flush(30)


class Asking:
    """Sends Fetch requests to a single node."""

    def __init__(self, kafka: Cluster, node: int) -> None:
        self._wire = Wire(kafka.bootstrap.split(",")[node - 1])

    def fetch(self, offset: int, rack: str = "near", *, version: int = 12, max_wait_ms: int = 0) -> PartitionData:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
        topics = [FetchTopic(topic="orders", partitions=[partition])]
        request = FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=1, session_epoch=-1, max_bytes=1_000_000, topics=topics
        )
        if version >= 11:
            request.rack_id = rack
        return self._wire.ask(request, version, FetchResponse).responses[0].partitions[0]


def test_the_leader_names_the_follower_in_the_consumers_rack_and_that_one_serves(kafka: Cluster) -> None:
    produce(kafka, b"a", b"b")
    leader, near, other = (Asking(kafka, node) for node in (1, 2, 3))
    fetched = leader.fetch(0)
    assert (fetched.error_code, fetched.preferred_read_replica, fetched.records) == (0, 2, b"")
    assert fetched.high_watermark == 2
    # The leader names the replica immediately, without waiting for new records.
    assert leader.fetch(2, max_wait_ms=60_000).preferred_read_replica == 2
    for rack in ("", "far", "elsewhere"):
        assert (leader.fetch(0, rack).preferred_read_replica, bool(leader.fetch(0, rack).records)) == (-1, True)
    served = near.fetch(0)
    assert (served.error_code, served.preferred_read_replica, served.high_watermark) == (0, -1, 2)
    assert served.records
    assert other.fetch(0).error_code == MOVED.value
    assert near.fetch(0, version=10).error_code == MOVED.value  # Before version 11, only leaders return records.


def test_racks_are_in_metadata_and_outlive_a_restart(kafka: Cluster) -> None:
    for _ in range(2):
        with Wire(kafka.bootstrap.split(",")[0]) as wire:
            brokers = wire.ask(MetadataRequest(topics=[]), 12, MetadataResponse).brokers
        assert {each.node_id: each.rack for each in brokers} == {1: "far", 2: "near", 3: None}
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        described = admin.describe_cluster().result(30)
        assert {each.id: each.rack for each in described.nodes} == {1: "far", 2: "near", 3: None}
        kafka.restart()


def test_a_lagging_follower_serves_the_records_that_it_has(kafka: Cluster) -> None:
    produce(kafka, b"a", b"b", b"c")
    kafka.follow("orders", 0, 2, 2)
    leader, near = Asking(kafka, 1), Asking(kafka, 2)
    served = near.fetch(0)
    assert (served.error_code, served.high_watermark, served.last_stable_offset) == (0, 2, 2)
    assert (near.fetch(2).error_code, near.fetch(2).records) == (0, b"")
    assert near.fetch(3).error_code == BEYOND.value
    assert leader.fetch(2).preferred_read_replica == 2
    assert leader.fetch(3).preferred_read_replica == -1  # No replica in the rack has these records.
    kafka.follow("orders", 0, 2, None)
    assert near.fetch(3).error_code == 0
    assert near.fetch(2).records


@contextmanager
def librdkafka_reader(kafka: Cluster) -> Iterator[Read]:
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "client.rack": "near", "client.id": "reader"}
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, **settings})
    consumer.subscribe(["orders"])
    yield lambda: [each.value() or b"" for each in consumer.consume(100, 0.1) if each.error() is None]
    consumer.close()


@contextmanager
def own_reader(kafka: Cluster) -> Iterator[Read]:
    with own.Consumer(
        bootstrap_servers=kafka.bootstrap,
        group_id="g",
        auto_offset_reset="earliest",
        client_rack="near",
        client_id="reader",
    ) as consumer:
        consumer.subscribe(["orders"])
        yield lambda: [each.value or b"" for records in consumer.getmany(timeout_ms=100).values() for each in records]


READERS = {"librdkafka": librdkafka_reader, "own": own_reader}


def read_until(read: Read, value: bytes) -> list[bytes]:
    found: list[bytes] = []
    until_s = time.monotonic() + PATIENCE_S
    while value not in found:
        assert time.monotonic() < until_s, found
        found += read()
    return found


def was_asked(kafka: Cluster, node: int) -> bool:
    """Returns whether the reader has fetched from this node."""
    return any(each["name"] == f"node {node}" and each["hits"] for each in kafka.faults())


@pytest.mark.parametrize("client", sorted(READERS))
def test_a_consumer_moves_to_the_near_replica_and_back_when_it_stops(kafka: Cluster, client: str) -> None:
    for node in (2, 3):
        match = {"api": "Fetch", "node": node, "client_id": "reader"}
        kafka.fault({"name": f"node {node}", "match": match, "do": {"observe": True}, "unused": "ok"})
    produce(kafka, b"first")
    with READERS[client](kafka) as read:
        assert read_until(read, b"first") == [b"first"]
        assert was_asked(kafka, 2)
        at_the_leader = {"api": "Fetch", "node": 1}
        kafka.fault({"name": "silent leader", "match": at_the_leader, "do": {"drop": True}, "unused": "ok"})
        produce(kafka, b"second")
        # The records must come from the follower, because the leader drops all fetches.
        assert read_until(read, b"second") == [b"second"]
        kafka.clear_faults("silent leader")
        kafka.stop_node(2)
        produce(kafka, b"third")
        assert read_until(read, b"third") == [b"third"]
        assert not was_asked(kafka, 3)


@pytest.mark.parametrize("client", sorted(READERS))
def test_a_consumer_goes_on_where_its_replica_falls_behind(kafka: Cluster, client: str) -> None:
    produce(kafka, b"first")
    with READERS[client](kafka) as read:
        assert read_until(read, b"first") == [b"first"]
        kafka.follow("orders", 0, 2, 0)  # The follower now answers OFFSET_OUT_OF_RANGE.
        produce(kafka, b"second")
        assert read_until(read, b"second") == [b"second"]


def test_a_follower_describes_producers_too(kafka: Cluster) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    producer.produce("orders", b"a", partition=0)
    producer.flush(30)
    request = DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=[0])])
    described = [
        Wire(each).ask(request, 0, DescribeProducersResponse).topics[0].partitions[0]
        for each in kafka.bootstrap.split(",")
    ]
    assert [each.error_code for each in described] == [0, 0, 0]
    assert [each.active_producers for each in described] == [described[0].active_producers] * 3
    assert len(described[0].active_producers) == 1


def test_internal_topics_have_as_many_replicas_as_there_are_nodes(odradek: Odradek) -> None:
    settings = {"offsets.topic.replication.factor": "3", "transaction.state.log.replication.factor": "3"}
    with odradek.cluster(nodes=3, settings=settings) as kafka:
        create_topic(kafka.bootstrap, "orders", 1)
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
        producer.init_transactions(30)
        topics = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=30).topics
        assert sorted(topics["__transaction_state"].partitions[0].replicas) == [1, 2, 3]
    with pytest.raises(Refused, match="allowed: 1 to 3, because the cluster has 3 brokers"):
        odradek.cluster(nodes=3, settings={"offsets.topic.replication.factor": "4"})
