"""Share groups (KIP-932): heartbeats, fetches and acknowledgements by hand, in groups of their own.

Plays scenes of docs/spec/share-groups.md#s7.
"""

import time
from collections.abc import Callable
from typing import Any

from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.share_acknowledge_request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from odradek.protocol.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest
from odradek.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from odradek.protocol.records import NewRecord, build_batch
from tests.conformance.differential.conversation import Talk
from tests.conformance.differential.groups_script import wait_for_coordinator

HEARTBEAT, DESCRIBE, FETCH, ACKNOWLEDGE = 76, 77, 78, 79
GROUP_RESOURCE = 32


class Scene:
    """A topic with ten records in one batch, and a group whose share state is begun by one member."""

    def __init__(self, talk: Talk, version: int, name: str) -> None:
        wait_for_coordinator(talk)
        self.talk, self.version = talk, version
        self.group = f"share-{name}-{version}"
        self.topic = f"{self.group}-t"
        self.topic_id = talk.make_topic(self.topic, 1)
        batch = build_batch([NewRecord(None, b"v", 1_800_000_000_000) for _ in range(10)])
        data = TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(index=0, records=bytes(batch))])
        talk.quietly(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), 9)
        earliest = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=self.group, configs=[earliest])
        talk.quietly(IncrementalAlterConfigsRequest(resources=[resource]), 1)

    def beat(self, label: str, member: str, epoch: int, **fields: Any) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=fields.pop("group", self.group), member_id=member, member_epoch=epoch, **fields
        )
        return self.talk.ask(label, request, 1)

    def begin(self, member: str = "A") -> None:
        """Until the member has the partition."""
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
        wanted: dict[str, Any] = {"max_wait_ms": 2_000, "min_bytes": 1, "max_records": 500, "batch_size": 500}
        topics = fields.pop("topics", [(self.topic_id, [])])
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=member,
            share_session_epoch=epoch,
            topics=[
                FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition_index=0)]) for topic_id, _ in topics
            ],
            **(wanted | fields),
        )
        return self.talk.ask(label, request, self.version)

    def acknowledge(self, label: str, member: str, epoch: int, *batches: tuple[int, int, list[int]]) -> Any:
        stated = [
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in batches
        ]
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=stated)
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=member,
            share_session_epoch=epoch,
            topics=[AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])],
        )
        return self.talk.ask(label, request, self.version)


def heartbeats(talk: Talk, version: int) -> None:
    scene = Scene(talk, version, "beats")
    scene.beat("no such group", "A", 3)
    scene.beat("no topics", "A", 0)
    scene.beat("empty topics", "A", 0, subscribed_topic_names=[])
    scene.beat("epoch -2", "A", -2)
    scene.beat("no member id", "", 0, subscribed_topic_names=[scene.topic])
    scene.beat("a long member id", "x" * 37, 0, subscribed_topic_names=[scene.topic])
    scene.beat("no group id", "A", 0, group="", subscribed_topic_names=[scene.topic])
    scene.beat("an empty rack", "A", 0, rack_id="", subscribed_topic_names=[scene.topic])
    scene.beat("join", "A", 0, subscribed_topic_names=[scene.topic])
    scene.beat("unknown member", "B", 3)
    scene.beat("too high", "A", 99)
    scene.beat("leave", "A", -1, subscribed_topic_names=[])
    scene.beat("leave again", "A", -1)


def described(talk: Talk, version: int) -> None:
    scene = Scene(talk, version, "described")
    talk.ask("missing", ShareGroupDescribeRequest(group_ids=["none"]), version)
    scene.begin()
    groups = talk.quietly(ShareGroupDescribeRequest(group_ids=[scene.group]), version).groups
    (member,) = groups[0].members
    talk.note("states", [groups[0].group_state, groups[0].assignor_name, member.subscribed_topic_names])


def sessions(talk: Talk, version: int) -> None:
    scene = Scene(talk, version, "sessions")
    scene.begin()
    scene.fetch("no session", "A", 1)
    scene.acknowledge("no session", "A", 1, (0, 9, [1]))
    scene.fetch("open", "A", 0)
    scene.fetch("a wrong epoch", "A", 5)
    scene.acknowledge("epoch 0", "A", 0, (0, 9, [1]))
    scene.acknowledge("out of shape", "A", 1, (5, 4, [1]))
    scene.acknowledge("no types", "A", 2, (0, 9, []))
    scene.acknowledge("too many types", "A", 3, (0, 1, [1, 1, 1]))
    scene.acknowledge("an unknown type", "A", 4, (0, 9, [7]))
    scene.acknowledge("beyond", "A", 5, (0, 20, [1]))
    scene.acknowledge("in part", "A", 6, (0, 4, [1]), (5, 9, [1, 2, 3, 0, 1]))
    scene.acknowledge("again", "A", 7, (7, 7, [1]))
    scene.fetch("what was released", "A", 8, topics=[])
    scene.acknowledge("below the start offset", "A", 9, (0, 4, [1]))
    scene.acknowledge("the end", "A", -1, (6, 6, [1]))
    scene.fetch("after the end", "A", 10)


def two_members(talk: Talk, version: int) -> None:
    scene = Scene(talk, version, "two")
    scene.begin()
    scene.fetch("A takes all", "A", 0)
    scene.fetch("B gets nothing", "B", 0, max_wait_ms=300)
    scene.acknowledge("B has none", "B", 1, (0, 9, [1]))
    scene.acknowledge("A ends", "A", -1, (0, 4, [1]))
    time.sleep(0.3)
    scene.fetch("B gets the rest", "B", 2, topics=[])
    scene.acknowledge("B rejects it", "B", 3, (5, 9, [3]))


SCRIPTS: dict[Callable[[Talk, int], None], int] = {
    heartbeats: HEARTBEAT,
    described: DESCRIBE,
    sessions: FETCH,
    two_members: ACKNOWLEDGE,
}
