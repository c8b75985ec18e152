"""Presets of streams groups (KIP-1071). The presets themselves act as the other members of the group. These members
send the topology that Kafka Streams sends for a stateless application, with a single subtopology, `0`, which reads the
topic of the preset."""

from __future__ import annotations

from odradek.broker.control.presets.parameters import Facts, Parameters
from odradek.broker.control.presets.preset_client import GROUP, PresetClient
from odradek.broker.control.problems import Problem
from odradek.broker.facts import groups as group_facts
from odradek.broker.runtime.uuids import hex_text, random_uuid
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.delete_topics_response import DeleteTopicsResponse
from odradek.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from odradek.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse

SUBTOPOLOGY = "0"
LEAVE_EPOCH = -1
REBALANCE_TIMEOUT_MS = 300_000  # the max.poll.interval.ms that Kafka Streams sends


async def streams_revocation_outstanding(client: PresetClient, parameters: Parameters) -> Facts:
    """A member of a streams group owns all tasks of a topology that reads the topic, but sends no heartbeats. New
    members get no task until the session timeout of this member (45 s) has passed on the cluster's clock. The group has
    no initial rebalance delay.
    """
    topic, group, partitions = parameters.text("topic"), parameters.text("group"), parameters.number("partitions", 1)
    await client.topic(topic, partitions)
    await client.coordinator(GROUP, group)
    existing = group_facts.group(client.broker, group)
    if existing is not None and existing.members:
        raise Problem(409, f"the group {group} already has members, which own the tasks", field="group")
    await client.group_config(group, "streams.initial.rebalance.delay.ms", "0")
    joined = await _join(client, group, topic)
    return {"group": group, "member_id": joined.member_id, "member_epoch": joined.member_epoch}


async def missing_source_topic(client: PresetClient, parameters: Parameters) -> Facts:
    """The topology of a streams group reads a topic that does not exist. If the topic existed, the preset has deleted
    it. The next heartbeat makes the group NotReady. Members have no tasks and get the status MISSING_SOURCE_TOPICS.
    """
    topic, group = parameters.text("topic"), parameters.text("group")
    await client.coordinator(GROUP, group)
    existing = group_facts.group(client.broker, group)
    if existing is not None and existing.type != "streams":
        raise Problem(409, f"the group {group} is not a streams group, but of type {existing.type}", field="group")
    if topic in client.broker.metadata.image.topics:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=30_000)
        await client.ask(request, DeleteTopicsResponse)
    if existing is None:
        await _join(client, group, topic)
    return {"group": group, "topic": topic}


async def stale_topology(client: PresetClient, parameters: Parameters) -> Facts:
    """A streams group without members has a topology with the epoch `epoch`. A member with a lower topology epoch can
    join with any topology, but gets the status STALE_TOPOLOGY in each heartbeat.
    """
    topic, group, epoch = parameters.text("topic"), parameters.text("group"), parameters.number("epoch", 1)
    await client.topic(topic)
    joined = await _join(client, group, topic, epoch)
    request = StreamsGroupHeartbeatRequest(group_id=group, member_id=joined.member_id, member_epoch=LEAVE_EPOCH)
    await client.ask(request, StreamsGroupHeartbeatResponse)
    return {"group": group, "topology_epoch": epoch}


async def _join(client: PresetClient, group: str, topic: str, epoch: int = 0) -> StreamsGroupHeartbeatResponse:
    await client.coordinator(GROUP, group)
    request = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=hex_text(random_uuid()),
        endpoint_information_epoch=-1,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        topology=Topology(epoch=epoch, subtopologies=[Subtopology(subtopology_id=SUBTOPOLOGY, source_topics=[topic])]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=hex_text(random_uuid()),
        client_tags=[],
    )
    return await client.ask(request, StreamsGroupHeartbeatResponse)
