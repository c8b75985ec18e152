"""Tests that Odradek's share consumer acquires, acknowledges, renews and releases records, and shares them with other
consumers.

tests/conformance/test_own_share_consumer_on_kafka.py runs the same scenarios on Kafka.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from odradek.client import AcknowledgeType, ClientError, IllegalState, ShareRecord, TopicPartition
from odradek.client.sync import Consumer
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.delete_topics_response import DeleteTopicsResponse
from tests.clients.admin import create_topic
from tests.clients.own_consumers import produce
from tests.clients.own_share_consumers import (
    SETTINGS,
    first_of,
    more,
    poll,
    serves_share_groups,
    share_group,
    values,
    worker,
)
from tests.clients.speakers import wait_for
from tests.support.broker_process import Broker, new_broker
from tests.support.oracle import REPOSITORY
from tests.support.wire import Wire

T = AcknowledgeType


@pytest.fixture(scope="module")
def share_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", SETTINGS) as running:
        if not serves_share_groups(running.bootstrap):
            pytest.skip("the broker does not support share groups")
        yield running


@pytest.fixture
def at(share_broker: Broker) -> str:
    return share_broker.bootstrap


@pytest.fixture
def queue(at: str, request: pytest.FixtureRequest) -> str:
    """Creates a topic with ten records, and a share group with the same name that reads from the first record."""
    name = create_topic(at, request.node.name)
    produce(at, name, *TEN)
    return share_group(at, name)


TEN = [b"%d" % number for number in range(10)]


def nothing_is_left(at: str, queue: str) -> bool:
    with worker(at, queue, queue, "implicit") as other:
        wait_for("a member that may fetch", lambda: poll(other) == [] and bool(other.assignment()))
        return poll(other, 500) == []


def test_implicit_acknowledgement_accepts_with_the_next_poll(at: str, queue: str) -> None:
    outcomes: list[tuple[TopicPartition, list[tuple[int, int]], ClientError | None]] = []
    with worker(at, queue, queue, "implicit", on_acknowledged=lambda *each: outcomes.append(each)) as consumer:
        records = first_of(consumer)
        assert values(records) == TEN
        assert {record.delivery_count for record in records} == {1}
        with pytest.raises(IllegalState, match="implicit"):
            consumer.acknowledge(records[0])
        assert poll(consumer, 500) == []
    assert outcomes == [(TopicPartition(queue, 0), [(0, 9)], None)]
    assert nothing_is_left(at, queue)


def test_commit_accepts_the_returned_records_and_reports_each_partition(at: str, queue: str) -> None:
    with worker(at, queue, queue, "implicit") as consumer:
        assert consumer.commit() == {}
        first_of(consumer)
        assert consumer.commit() == {TopicPartition(queue, 0): None}
        assert consumer.commit() == {}
    assert nothing_is_left(at, queue)


def test_close_releases_records_that_were_neither_accepted_nor_committed(at: str, queue: str) -> None:
    with worker(at, queue, queue, "implicit") as consumer:
        first_of(consumer)
    with worker(at, queue, queue) as other:
        again = first_of(other)
        assert (values(again), {record.delivery_count for record in again}) == (TEN, {2})


def test_explicit_acknowledgement_is_record_by_record(at: str, queue: str) -> None:
    with worker(at, queue, queue) as consumer:
        records = first_of(consumer)
        for record, kind in zip(records, [T.ACCEPT, T.RELEASE, T.REJECT] * 3, strict=False):
            consumer.acknowledge(record, kind)
        with pytest.raises(IllegalState, match="acknowledge every record"):
            poll(consumer)
        consumer.acknowledge(records[9], T.RELEASE)
        consumer.acknowledge(records[9], T.ACCEPT)  # This replaces an acknowledgement that has not been sent.
        again: list[ShareRecord] = []
        wait_for("what was released", lambda: more(again, consumer))
        assert [(record.offset, record.delivery_count) for record in again] == [(1, 2), (4, 2), (7, 2)]
        with pytest.raises(IllegalState, match="cannot be acknowledged"):
            consumer.acknowledge(records[0])
        for record in again:
            consumer.acknowledge(record)
    assert nothing_is_left(at, queue)


def test_close_sends_the_acknowledgements_and_releases_the_other_records(at: str, queue: str) -> None:
    with worker(at, queue, queue) as consumer:
        for record in first_of(consumer)[:7]:
            consumer.acknowledge(record)
    with worker(at, queue, queue) as other:
        assert [record.offset for record in first_of(other)] == [7, 8, 9]


def test_a_renewed_record_is_kept_past_its_lock_and_acknowledged_later(at: str, queue: str) -> None:
    share_group(at, queue, share_record_lock_duration_ms=3_000)
    with worker(at, queue, queue) as consumer, worker(at, queue, queue, "implicit") as other:
        *rest, kept = first_of(consumer)
        assert consumer.acquisition_lock_timeout_ms == 3_000
        for record in rest:
            consumer.acknowledge(record)
        ends_at = time.monotonic() + 4.5
        while time.monotonic() < ends_at:
            consumer.acknowledge(kept, T.RENEW)
            assert consumer.commit() == {TopicPartition(queue, 0): None}
            assert poll(other, 300) == []
        assert poll(consumer) == []  # A poll does not wait for renewed records.
        consumer.acknowledge(kept)
        assert consumer.commit() == {TopicPartition(queue, 0): None}
    assert nothing_is_left(at, queue)


def test_an_acknowledgement_that_comes_too_late_is_refused_and_the_record_delivered_again(at: str, queue: str) -> None:
    share_group(at, queue, share_record_lock_duration_ms=1_000)
    with worker(at, queue, queue) as late, worker(at, queue, queue) as other:
        records = first_of(late)
        share_group(at, queue, share_record_lock_duration_ms=60_000)
        again = first_of(other)
        assert other.acquisition_lock_timeout_ms == 60_000
        assert {record.delivery_count for record in again} == {2}
        for record in records:
            late.acknowledge(record)
        (refused,) = late.commit().values()
        assert refused is not None
        assert refused.code is ErrorCode.INVALID_RECORD_STATE
        for record in again:
            other.acknowledge(record)
        assert other.commit() == {TopicPartition(queue, 0): None}


def test_with_record_limit_no_poll_has_more_records_than_it_may(at: str, queue: str) -> None:
    settings = {"share_acquire_mode": "record_limit", "max_poll_records": 3}
    with worker(at, queue, queue, "implicit", **settings) as consumer:
        polled: list[list[bytes | None]] = []

        def drained() -> bool:
            if found := poll(consumer):
                polled.append(values(found))
            return sum(map(len, polled)) >= len(TEN)

        wait_for("all of them", drained)
        assert polled == [TEN[:3], TEN[3:6], TEN[6:9], TEN[9:]]
        consumer.commit()


def test_members_share_partitions_and_every_record_goes_to_one_of_them(at: str, queue: str) -> None:
    topic = create_topic(at, f"{queue}-wide", partitions=3)
    with worker(at, topic, queue, "implicit") as one, worker(at, topic, queue, "implicit") as other:
        wait_for(
            "assignments", lambda: (poll(one), poll(other)) == ([], []) and one.assignment() and other.assignment()
        )
        assert one.assignment() | other.assignment() == {TopicPartition(topic, index) for index in range(3)}
        sent = []
        for index in range(3):
            batch = [b"%d-%d" % (index, number) for number in range(20)]
            produce(at, topic, *batch, partition=index)
            sent += batch
        found: list[ShareRecord] = []
        wait_for("all", lambda: len(more(found, one, other)) >= len(sent))
        assert sorted(map(str, values(found))) == sorted(map(str, sent))
        one.commit()
        other.commit()


HOLDER = """
import sys, time
from tests.clients.own_share_consumers import first_of, worker
consumer = worker(*sys.argv[1:4])
consumer.start()
print(len(first_of(consumer)), flush=True)
time.sleep(600)
"""


def test_records_of_a_killed_member_are_redelivered_at_once(at: str, queue: str) -> None:
    command = [sys.executable, "-c", HOLDER, at, queue, queue]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        held = int(holder.stdout.readline())
        holder.kill()
    with worker(at, queue, queue) as consumer:
        again = first_of(consumer)
        assert (len(again), {record.delivery_count for record in again}) == (held, {2})


def test_a_deleted_topic_leaves_the_assignment_and_others_are_served_on(at: str, queue: str) -> None:
    doomed = create_topic(at, f"{queue}-doomed")
    with worker(at, queue, queue, "implicit") as consumer:
        consumer.subscribe([queue, doomed])
        wait_for("both", lambda: poll(consumer) is not None and len(consumer.assignment()) == 2)
        wire = Wire(at)
        wire.ask(DeleteTopicsRequest(topic_names=[doomed], timeout_ms=10_000), 5, DeleteTopicsResponse)
        wire.close()
        wait_for("one", lambda: poll(consumer) == [] and len(consumer.assignment()) == 1)
        produce(at, queue, b"more")
        assert values(first_of(consumer)) == [b"more"]


def test_a_group_of_another_type_is_refused(at: str, queue: str) -> None:
    with (
        Consumer(queue, bootstrap_servers=at, group_id=f"{queue}-classic") as classic,
        worker(at, queue, f"{queue}-classic") as consumer,
    ):
        wait_for("a classic group", lambda: classic.getmany(timeout_ms=100))
        with pytest.raises(ClientError) as refused:
            wait_for("the refusal", lambda: poll(consumer))
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
