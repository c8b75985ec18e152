"""A scene for one script: a share group (KIP-932), its topic, and the requests of members and administrators."""

import time
from collections.abc import Iterable
from typing import Any, TypeVar

from odradek.protocol.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.share_acknowledge_request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from odradek.protocol.messages.share_fetch_request import AcknowledgementBatch as BatchOfFetch
from odradek.protocol.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from odradek.protocol.records import NewRecord, build_batch
from tests.conformance.differential.conversation import Talk
from tests.conformance.differential.groups_script import Member, wait_for_coordinator
from tests.support.requests import produce_request

GROUP_RESOURCE = 32
PATIENCE_S = 60
Offsets = dict[int, int]  # start offset by partition
Batch = tuple[int, int, list[int]]  # first offset, last offset, acknowledgement types
B = TypeVar("B", AcknowledgementBatch, BatchOfFetch)


def batches_of(batches: Iterable[Batch], batch_type: type[B]) -> list[B]:
    return [batch_type(first_offset=first, last_offset=last, acknowledge_types=types) for first, last, types in batches]


class ShareScene:
    """A share group, and a topic with ten records in one batch. The first member to call `begin` initializes the share
    state."""

    def __init__(self, talk: Talk, version: int, name: str) -> None:
        wait_for_coordinator(talk)
        self.talk, self.version = talk, version
        self.group = f"share-{name}-{version}"
        self.topic = f"{self.group}-t"
        self.topic_id = talk.make_topic(self.topic, 1)
        self.produce(10)
        self.configure("share.auto.offset.reset", "earliest")

    def produce(self, count: int) -> None:
        """Writes `count` records in one batch."""
        batch = build_batch([NewRecord(None, b"v", int(time.time() * 1000)) for _ in range(count)])
        answer = self.talk.quietly(produce_request(self.topic, bytes(batch)), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer

    def configure(self, name: str, value: str) -> None:
        changed = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=self.group, configs=[changed])
        answer = self.talk.quietly(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == 0, answer

    def beat(self, label: str, member: str, epoch: int, **fields: Any) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=fields.pop("group", self.group), member_id=member, member_epoch=epoch, **fields
        )
        return self.talk.ask(label, request, 1)

    def join(self, member: str = "A") -> None:
        """Makes the member join, without recording the request or waiting for partitions."""
        request = ShareGroupHeartbeatRequest(group_id=self.group, member_id=member, subscribed_topic_names=[self.topic])
        while self.talk.quietly(request, 1).error_code:
            time.sleep(0.05)

    def begin(self, member: str = "A") -> None:
        """Makes the member join, without recording the request, and waits until it has the partition."""
        epoch = 0
        while True:
            request = ShareGroupHeartbeatRequest(
                group_id=self.group, member_id=member, member_epoch=epoch, subscribed_topic_names=[self.topic]
            )
            answer = self.talk.quietly(request, 1)
            if answer.error_code == 0:
                epoch = answer.member_epoch
                if answer.assignment and answer.assignment.topic_partitions:
                    return
            time.sleep(0.1)

    def fetch(self, label: str, member: str, epoch: int, **fields: Any) -> Any:
        """Sends ShareFetch. `fields` override fields of the request; `acknowledgements` are batches of partition 0."""
        batches = batches_of(fields.pop("acknowledgements", ()), BatchOfFetch)
        partition = FetchPartition(partition_index=0, acknowledgement_batches=batches)
        defaults: dict[str, Any] = {
            "group_id": self.group,
            "member_id": member,
            "share_session_epoch": epoch,
            "max_wait_ms": 2_000,
            "min_bytes": 1,
            "max_records": 500,
            "batch_size": 500,
            "topics": [FetchTopic(topic_id=self.topic_id, partitions=[partition])],
        }
        return self.talk.ask(label, ShareFetchRequest(**(defaults | fields)), self.version)

    def acknowledge(self, label: str, member: str, epoch: int, *batches: Batch, **fields: Any) -> Any:
        """Acknowledges batches of partition 0. `fields` override fields of the request."""
        partition = AcknowledgePartition(
            partition_index=0, acknowledgement_batches=batches_of(batches, AcknowledgementBatch)
        )
        defaults: dict[str, Any] = {
            "group_id": self.group,
            "member_id": member,
            "share_session_epoch": epoch,
            "topics": [AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])],
        }
        return self.talk.ask(label, ShareAcknowledgeRequest(**(defaults | fields)), self.version)

    def leave(self, member: str = "A") -> None:
        """Leaves the group, which also ends the member's share session."""
        self.talk.quietly(ShareGroupHeartbeatRequest(group_id=self.group, member_id=member, member_epoch=-1), 1)

    def describe_offsets(self, label: str, topics: dict[str, list[int]] | None = None, **fields: Any) -> Any:
        request_topics = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
            for name, partitions in (topics or {}).items()
        ]
        groups = [
            DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None if topics is None else request_topics)
            for group in fields.get("groups", (self.group,))
        ]
        return self.talk.ask(label, DescribeShareGroupOffsetsRequest(groups=groups), fields.get("version", 1))

    def alter_offsets(self, label: str, *topics: tuple[str, Offsets], group: str | None = None) -> Any:
        return self.talk.ask(label, self._altered(*topics, group=group), 0)

    def wait_until_altered(self, offsets: Offsets) -> None:
        """Repeats an unrecorded request to alter offsets until it succeeds. Kafka's coordinator learns about a topic a
        moment after its creation."""
        deadline = time.monotonic() + PATIENCE_S
        while self.talk.quietly(self._altered((self.topic, offsets)), 0).responses[0].partitions[0].error_code:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def _altered(self, *topics: tuple[str, Offsets], group: str | None = None) -> AlterShareGroupOffsetsRequest:
        request_topics = [
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in topics
        ]
        return AlterShareGroupOffsetsRequest(group_id=self.group if group is None else group, topics=request_topics)

    def delete_offsets(self, label: str, *topics: str, **fields: Any) -> Any:
        request_topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
        request = DeleteShareGroupOffsetsRequest(group_id=fields.get("group", self.group), topics=request_topics)
        return self.talk.ask(label, request, 0)


def other_groups(scene: ShareScene) -> dict[str, str]:
    """Returns labelled group ids that do not belong to share groups: a consumer group, a classic group, the empty id
    and an unknown id."""
    consumers, classic = f"{scene.group}-consumers", f"{scene.group}-classic"
    join = ConsumerGroupHeartbeatRequest(
        group_id=consumers,
        member_id="A",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[scene.topic],
        topic_partitions=[],
    )
    scene.talk.quietly(join, 1)
    Member(scene.talk, classic)
    return {"a consumer group": consumers, "a classic group": classic, "no group id": "", "nobody": f"{scene.group}-x"}
