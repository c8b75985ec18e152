"""Tests share group scenarios that cannot be provoked on Apache Kafka from the outside. Here, holds provoke them.

Scenario 7 is missing, because session epochs start at 1 and the client increments them, so the scenario would take 2³¹
requests. `tests/spec/shares/test_share_sessions.py` sets a session's epoch, and
`tests/conformance/test_share_groups.py` calls the function that increments the epoch in Kafka.

Source: docs/spec/share-groups.md#s7-0.
"""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Producer

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.messages.share_acknowledge_request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from odradek.protocol.messages.share_acknowledge_response import ShareAcknowledgeResponse
from odradek.protocol.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest
from odradek.protocol.messages.share_fetch_response import ShareFetchResponse
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from odradek.protocol.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from odradek.testing.sync import Cluster, Odradek
from tests.clients.admin import create_topic
from tests.support.wire import Wire

MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"
ACCEPT = 1
PATIENCE_S = 30
LOCK_MS = 30_000  # group.share.record.lock.duration.ms
ONE_STATE_PARTITION = {"share.coordinator.state.topic.num.partitions": 1}
PASSING = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.value, ErrorCode.NOT_COORDINATOR.value}


class ShareMember:
    """A share consumer whose requests the test sends one by one, at the highest request versions that do not belong to
    KIP-1289."""

    def __init__(self, kafka: Cluster, topic: str) -> None:
        self.wire = Wire(kafka.bootstrap)
        self.epoch = 0
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        (topic_metadata,) = self.wire.ask(request, 12, MetadataResponse).topics
        self.topic_id = topic_metadata.topic_id
        join = ShareGroupHeartbeatRequest(group_id="g", member_id=MEMBER, subscribed_topic_names=[topic])
        self.wire.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        until_s = time.monotonic() + PATIENCE_S
        while (code := self.wire.ask(join, 1, ShareGroupHeartbeatResponse).error_code) in PASSING:
            assert time.monotonic() < until_s, ErrorCode(code)
        assert code == ErrorCode.NONE.value, ErrorCode(code)

    def fetch(self) -> list[tuple[int, int, int]]:
        """Returns (first offset, last offset, delivery count) for each range that the member acquires."""
        request = ShareFetchRequest(
            group_id="g",
            member_id=MEMBER,
            share_session_epoch=self.epoch,
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1_000_000,
            max_records=100,
            batch_size=100,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=[FetchPartition(partition_index=0)])],
        )
        answer = self.wire.ask(request, 1, ShareFetchResponse)
        assert answer.error_code == ErrorCode.NONE.value, answer
        self.epoch += 1
        partitions = [each for topic in answer.responses for each in topic.partitions]
        return [
            (each.first_offset, each.last_offset, each.delivery_count)
            for partition in partitions
            for each in partition.acquired_records
        ]

    def accept(self, first: int, last: int) -> ErrorCode:
        self.send_acceptance(first, last)
        return self.answer()

    def send_acceptance(self, first: int, last: int) -> None:
        batch = AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[ACCEPT])
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        request = ShareAcknowledgeRequest(
            group_id="g",
            member_id=MEMBER,
            share_session_epoch=self.epoch,
            topics=[AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])],
        )
        self.wire.send(request, 1)
        self.epoch += 1

    def answer(self) -> ErrorCode:
        answer = self.wire.receive(ApiKey.SHARE_ACKNOWLEDGE.value, 1)
        assert isinstance(answer, ShareAcknowledgeResponse)
        assert answer.error_code == ErrorCode.NONE.value, answer
        return ErrorCode(answer.responses[0].partitions[0].error_code)


def acquired_by(kafka: Cluster) -> tuple[ShareMember, int, int]:
    """Returns a member of the share group `g`, and the first and last offset that it has acquired."""
    create_topic(kafka.bootstrap, "orders", 1, exact=True)
    member = ShareMember(kafka, "orders")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    until_s = time.monotonic() + PATIENCE_S
    # A share group starts at the log end offset, so it gets only records produced later.
    while time.monotonic() < until_s:
        producer.produce("orders", "a", partition=0)
        producer.flush(30)
        acquired = member.fetch()
        if acquired:
            first, last, deliveries = acquired[0]
            assert deliveries == 1
            return member, first, last
    raise AssertionError("it gets no records")


def begin_to_accept(kafka: Cluster, member: ShareMember, first: int, last: int) -> None:
    """Sends an acknowledgement, which remains pending because a rule holds the coordinator while it loads. Returns when
    the request has arrived."""
    kafka.fault({"at": "loading", "match": {"topic": "__share_group_state"}, "do": {"hold": "load"}})
    kafka.move_coordinator("share", "g", 1)
    kafka.wait(hold="load")
    member.send_acceptance(first, last)
    until_s = time.monotonic() + PATIENCE_S
    while not kafka.requests(api="ShareAcknowledge"):
        assert time.monotonic() < until_s, "it does not arrive"


def test_scenario_064_an_acknowledgement_that_cannot_be_stored_can_be_made_again(
    odradek: Odradek,
) -> None:
    with odradek.cluster(settings=ONE_STATE_PARTITION) as kafka:
        member, first, last = acquired_by(kafka)
        begin_to_accept(kafka, member, first, last)
        kafka.clock.advance(LOCK_MS // 2)
        assert member.answer() is ErrorCode.COORDINATOR_NOT_AVAILABLE
        record: dict[str, Any] = {"share_group": "g", "topic": "orders", "partition": 0, "offset": first}
        kafka.wait(**record, state="ACQUIRED", deliveries=1)
        kafka.release("load")
        until_s = time.monotonic() + PATIENCE_S
        while (code := member.accept(first, last)) is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            assert time.monotonic() < until_s, "it is still loading"
        assert code is ErrorCode.NONE
        kafka.wait(**record, state="ENDED")


def test_scenario_066_a_lock_that_runs_out_while_the_write_fails_gives_the_record_back(
    odradek: Odradek,
) -> None:
    with odradek.cluster(settings=ONE_STATE_PARTITION) as kafka:
        member, first, last = acquired_by(kafka)
        begin_to_accept(kafka, member, first, last)
        kafka.clock.advance(LOCK_MS + 1)
        assert member.answer() is ErrorCode.COORDINATOR_NOT_AVAILABLE
        kafka.wait(share_group="g", topic="orders", partition=0, offset=first, state="AVAILABLE")
        kafka.release("load")
