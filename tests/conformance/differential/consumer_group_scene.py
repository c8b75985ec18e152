"""A scene for one script: a consumer group (KIP-848), its topic, and the requests of its members."""

import itertools
import time
from collections.abc import Callable
from typing import Any

from odradek.broker.coordinators.shards import java_hash
from odradek.protocol.codec import encode
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from tests.conformance.differential.conversation import Talk
from tests.conformance.differential.groups_script import wait_for_coordinator

OFFSETS_PARTITIONS = 4  # number of partitions of __consumer_offsets on both brokers
PATIENCE_S = 60
Partitions = dict[bytes, list[int]]


class Scene:
    """A consumer group for one script. Each request is sent for a named member, and `epochs` holds each member's latest
    epoch."""

    def __init__(self, talk: Talk, version: int, name: str) -> None:
        wait_for_coordinator(talk)
        self.talk, self.version = talk, version
        self.group = f"kip848-{name}-{version}"
        self.epochs: dict[str, int] = {}
        self.topic_id = talk.make_topic(f"{self.group}-t6", 6)
        self.topic = f"{self.group}-t6"
        self.wait_until_coordinator_knows(is_there=True)

    def wait_until_coordinator_knows(self, *, is_there: bool) -> None:
        """Waits until the group's coordinator knows that the topic exists, or that it no longer exists.

        Kafka's coordinators, one for each partition of __consumer_offsets, learn about a topic a moment after its
        creation or deletion. A probe group in the same partition therefore sends heartbeats until its assignment shows
        the change.
        """
        names = (f"{self.group}-probe{number}" for number in itertools.count())
        home = java_hash(self.group) % OFFSETS_PARTITIONS
        probe = ConsumerGroupHeartbeatRequest(
            group_id=next(name for name in names if java_hash(name) % OFFSETS_PARTITIONS == home),
            member_id="probe",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[self.topic],
            topic_partitions=[],
        )
        self.beat_until(probe, lambda answer: bool(answer.assignment.topic_partitions) == is_there)

    def beat_until(self, request: ConsumerGroupHeartbeatRequest, is_met: Callable[[Any], bool]) -> None:
        """Repeats a heartbeat that changes nothing, until the response meets the condition. These heartbeats are not
        recorded."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_met(answer := self.talk.quietly(request, self.version)):
            assert time.monotonic() < deadline, answer
            time.sleep(0.02)

    def beat(self, label: str, member: str, epoch: int | None = None, **fields: Any) -> Any:
        owned = fields.pop("owned", None)
        if owned is not None:
            fields["topic_partitions"] = [
                TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=fields.pop("group", self.group),
            member_id=member,
            member_epoch=self.epochs.get(member, 0) if epoch is None else epoch,
            **fields,
        )
        answer = self.talk.ask(label, request, self.version)
        if answer is not None and answer.error_code == 0 and answer.member_epoch >= 0:
            self.epochs[answer.member_id] = answer.member_epoch
        return answer

    def join(self, label: str, member: str, *topics: str, **fields: Any) -> Any:
        defaults = {"subscribed_topic_names": list(topics or [self.topic]), "rebalance_timeout_ms": 60_000, "owned": {}}
        return self.beat(label, member, 0, **(defaults | fields))

    def owns(self, *indexes: int) -> Partitions:
        return {self.topic_id: list(indexes)}

    def describe(self, label: str, version: int = 1) -> None:
        self.talk.ask(label, ConsumerGroupDescribeRequest(group_ids=[self.group]), version)

    def classic_join(self, label: str, member: str = "", owned: Partitions | None = None, **fields: Any) -> Any:
        subscription = ConsumerProtocolSubscription(
            topics=[self.topic],
            owned_partitions=[
                TopicPartition(topic=self.topic, partitions=indexes) for indexes in (owned or {}).values()
            ],
        )
        metadata = (3).to_bytes(2, "big") + encode(subscription, 3)
        defaults: dict[str, Any] = {
            "group_id": self.group,
            "member_id": member,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=metadata)],
        }
        return self.talk.ask(label, JoinGroupRequest(**(defaults | fields)), 9)

    def classic_sync(self, label: str, member: str, generation: int, **fields: Any) -> Any:
        defaults = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []} | fields
        request = SyncGroupRequest(group_id=self.group, member_id=member, generation_id=generation, **defaults)
        return self.talk.ask(label, request, 5)

    def classic_heartbeat(self, label: str, member: str, generation: int, instance: str | None = None) -> Any:
        request = HeartbeatRequest(
            group_id=self.group, member_id=member, generation_id=generation, group_instance_id=instance
        )
        return self.talk.ask(label, request, 4)

    def commit(
        self, label: str, member: str, epoch: int, version: int = 9, partitions: tuple[int, ...] = (0,), **more: Any
    ) -> None:
        topic = OffsetCommitRequestTopic(
            name=more.pop("topic", self.topic),
            partitions=[
                OffsetCommitRequestPartition(partition_index=index, committed_offset=index + 1) for index in partitions
            ],
        )
        request = OffsetCommitRequest(
            group_id=self.group, member_id=member, generation_id_or_member_epoch=epoch, topics=[topic], **more
        )
        self.talk.ask(label, request, version)

    def fetch(self, label: str, member: str | None, epoch: int) -> None:
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0, 5])]
        group = OffsetFetchRequestGroup(group_id=self.group, member_id=member, member_epoch=epoch, topics=topics)
        self.talk.ask(label, OffsetFetchRequest(groups=[group]), 9)

    def two_members(self) -> None:
        """Has members A and C join the group. Afterwards A owns partitions 0 to 2 and C owns 3 to 5, both at epoch
        3."""
        self.join("A joins", "A")
        self.join("C joins", "C")
        self.beat("A is told", "A")
        self.beat("A has given up", "A", owned=self.owns(0, 1, 2))
        self.beat("C gets", "C")
