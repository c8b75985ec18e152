"""Tests that clients read rare but valid logs, in which offsets, epochs and ids do not start at 0 and offsets have gaps
(docs/testing.md)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

import odradek.client as own_client
from odradek.broker.control.odd.odd import PERCENT
from odradek.client import sync as own
from odradek.protocol.batch_header import CONTROL, BatchHeader, batches
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.testing.sync import Cluster, Odradek
from tests.clients.admin import create_topic
from tests.support.wire import Wire

PATIENCE_S = 60
HIGH = 2**31
ODD_LOGS = ("high offset", "hole", "high leader epoch", "high producer id")


@pytest.fixture
def kafka(odradek: Odradek) -> Iterator[Cluster]:
    with odradek.cluster() as cluster:
        cluster.odd(1, {name: 100 if name in {*ODD_LOGS, "negative session id"} else 0 for name in PERCENT})
        create_topic(cluster.bootstrap, "in", 1, exact=True)
        yield cluster


def produce(kafka: Cluster, count: int) -> None:
    """Alternately produces plain records and transactions with one record, `count` of each. Every other transaction is
    aborted."""
    plain = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    for number in range(count):
        plain.produce("in", b"plain %d" % number)
        plain.flush(30)
        producer.begin_transaction()
        producer.produce("in", b"transactional %d" % number)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def expected(count: int) -> list[bytes]:
    committed = [b"transactional %d" % number for number in range(0, count, 2)]
    return sorted([b"plain %d" % number for number in range(count)] + committed)


def end_of(kafka: Cluster) -> int:
    end: int = kafka.wait(topic="in", partition=0, log_end_offset=1)["log_end_offset"]
    return end


def librdkafka_read(kafka: Cluster, count: int) -> tuple[list[bytes], list[int], int]:
    """Reads `count` records. Returns their values and offsets, and the position that the consumer commits at the end of
    the log."""
    settings = {"group.id": "g", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, **settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("in", 0, OFFSET_BEGINNING)])
    found: list[tuple[bytes, int]] = []
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append((message.value() or b"", message.offset() or 0))
        elif message is not None and len(found) >= count:
            break  # the end of the partition, after its last control batch
    (position,) = consumer.position([TopicPartition("in", 0)])
    consumer.commit(offsets=[position], asynchronous=False)
    (committed,) = consumer.committed([TopicPartition("in", 0)])
    consumer.close()
    return sorted(each for each, _ in found), [each for _, each in found], committed.offset


def own_read(kafka: Cluster, count: int) -> tuple[list[bytes], list[int], int]:
    place = own_client.TopicPartition("in", 0)
    with own.Consumer(
        bootstrap_servers=kafka.bootstrap, group_id="g", auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([place])
        found: list[tuple[bytes, int]] = []
        until_s = time.monotonic() + PATIENCE_S
        while len(found) < count or consumer.position(place) < end_of(kafka):
            assert time.monotonic() < until_s
            for records in consumer.getmany(timeout_ms=100).values():
                found += [(each.value or b"", each.offset) for each in records]
        position = consumer.position(place)
        consumer.commit()
    return sorted(each for each, _ in found), [each for _, each in found], position


READERS = {"librdkafka": librdkafka_read, "own": own_read}


@pytest.mark.parametrize("reader", sorted(READERS))
def test_a_log_that_begins_high_and_has_holes_is_read_to_its_end(kafka: Cluster, reader: str) -> None:
    produce(kafka, 6)
    values, offsets, position = READERS[reader](kafka, len(expected(6)))
    assert values == expected(6)
    assert offsets == sorted(offsets)
    assert offsets[0] >= HIGH
    assert position == end_of(kafka)
    undone = [each["name"] for each in kafka.odd()["oddities"] if each["name"] in ODD_LOGS and not each["done"]]
    assert undone == []


def test_transactional_producers_have_high_ids(kafka: Cluster) -> None:
    produce(kafka, 2)
    kafka.wait(transaction="t", state="CompleteAbort")
    requests = [each["request"] for each in kafka.requests(api="EndTxn")]
    assert min(each["producerId"] for each in requests) >= HIGH


def test_emptied_batches_and_trailing_markers_are_decoded_and_outlive_a_restart(kafka: Cluster) -> None:
    produce(kafka, 2)
    for _ in range(2):
        start, found = fetched(kafka)
        assert start >= HIGH
        ends = [header.base_offset + header.last_offset_delta for header in found]
        assert ends[-1] == end_of(kafka) - 1
        assert found[-1].attributes & CONTROL
        emptied = [header for header in found if header.record_count == 0]
        assert len(emptied) == 4
        assert [before + 1 for before in ends[:-1]] == [header.base_offset for header in found[1:]]
        kafka.restart()


def log_start(kafka: Cluster) -> int:
    start: int = kafka.wait(topic="in", partition=0, log_start_offset=0)["log_start_offset"]
    return start


def fetch_of(kafka: Cluster, session_id: int, session_epoch: int) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=log_start(kafka), partition_max_bytes=1_000_000)
    return FetchRequest(
        session_id=session_id,
        session_epoch=session_epoch,
        max_bytes=1_000_000,
        topics=[FetchTopic(topic="in", partitions=[partition])],
    )


def fetched(kafka: Cluster) -> tuple[int, list[BatchHeader]]:
    """Returns the log start offset and the headers of all batches in the log."""
    with Wire(kafka.bootstrap) as wire:
        answer = wire.ask(fetch_of(kafka, session_id=0, session_epoch=-1), 12, FetchResponse)
    partition = answer.responses[0].partitions[0]
    assert partition.error_code == 0
    assert isinstance(partition.records, bytes | memoryview)
    return partition.log_start_offset, [header for _, header in batches(bytes(partition.records))]


def test_a_session_with_a_negative_id_goes_on(kafka: Cluster) -> None:
    wire = Wire(kafka.bootstrap)
    first = wire.ask(fetch_of(kafka, session_id=0, session_epoch=0), 12, FetchResponse)
    assert first.error_code == 0
    assert first.session_id < 0
    request = FetchRequest(session_id=first.session_id, session_epoch=1, max_bytes=1_000_000, topics=[])
    second = wire.ask(request, 12, FetchResponse)
    assert (second.error_code, second.session_id) == (0, first.session_id)


def test_leader_epochs_begin_anywhere_and_rise_by_one(kafka: Cluster) -> None:
    def epoch() -> int:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="in")], allow_auto_topic_creation=False)
        return Wire(kafka.bootstrap).ask(request, 12, MetadataResponse).topics[0].partitions[0].leader_epoch

    first = epoch()
    assert first > 0
    kafka.move_leader("in", 0, 1)
    assert epoch() == first + 1
    produce(kafka, 1)
    assert {header.leader_epoch for header in fetched(kafka)[1]} == {first + 1}


@pytest.mark.parametrize(("epoch", "is_misread"), [(2**24 - 1, False), (2**24, True)])
def test_librdkafka_2_16_reads_its_member_id_on_into_a_high_member_epoch(
    odradek: Odradek, epoch: int, is_misread: bool
) -> None:
    """In a ConsumerGroupHeartbeat response, the epoch follows the member id, which librdkafka expects to end with a
    zero byte. Once librdkafka fixes this bug, the test fails, and `FIRST_GROUP_EPOCHS` can be extended."""
    with odradek.cluster() as kafka:
        create_topic(kafka.bootstrap, "in", 1, exact=True)
        match = {"api": "ConsumerGroupHeartbeat", "when": "MemberEpoch == 0"}
        do = {"edit": {"MemberEpoch": epoch, "HeartbeatIntervalMs": 100}}
        kafka.fault({"match": match, "at": "applied", "do": do})
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "group.protocol": "consumer"})
        consumer.subscribe(["in"])
        until_s = time.monotonic() + PATIENCE_S
        member_ids: list[str] = []
        while not member_ids:  # The member sends this epoch together with the member id that it has parsed.
            assert time.monotonic() < until_s
            consumer.poll(0.1)
            requests = [each["request"] for each in kafka.requests(api="ConsumerGroupHeartbeat")]
            member_ids = [each["memberId"] for each in requests if each["memberEpoch"] == epoch]
        assert (member_ids[0] != requests[0]["memberId"]) is is_misread
        consumer.close()
