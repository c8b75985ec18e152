"""Presets of classic groups and KIP-848 groups. The presets themselves act as the other members of the group."""

from __future__ import annotations

from odradek.broker.control.presets.parameters import Facts, Parameters
from odradek.broker.control.presets.preset_client import GROUP, PresetClient, classic_metadata
from odradek.broker.runtime.uuids import hex_text, random_uuid
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

BEFORE_MEMBER_IDS = 3  # in later versions, a member sends JoinGroup twice, the first time to get its member id
SESSION_MS = 1_800_000  # the default of group.max.session.timeout.ms
NO_PARTITIONS = b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"  # an empty ConsumerProtocolAssignment, version 0


async def log_start_behind_commit(client: PresetClient, parameters: Parameters) -> Facts:
    """The group has committed an offset. Later, records were deleted, so the log now begins beyond the committed
    offset."""
    topic, partition, group = parameters.text("topic"), parameters.number("partition"), parameters.text("group")
    records = parameters.number("records", 2)
    await client.topic(topic, partition + 1)
    log = client.log(topic, partition)
    missing = records - (log.log_end_offset - log.log_start_offset)
    if missing > 0:
        await client.produce(topic, partition, [b"record"] * missing)
    committed = log.log_start_offset
    await _commit(client, group, topic, partition, committed)
    await client.delete_records(topic, partition, log.log_end_offset - 1)
    return {"group": group, "committed_offset": committed, **client.offsets(topic, partition)}


async def log_end_before_commit(client: PresetClient, parameters: Parameters) -> Facts:
    """The group has committed the end of the log, and then an unclean election lost the last `lost` records."""
    topic, partition, group = parameters.text("topic"), parameters.number("partition"), parameters.text("group")
    records, lost = parameters.number("records", 1), parameters.number("lost", 1)
    nodes = client.cluster.running_nodes
    await client.topic(topic, partition + 1)
    log = client.log(topic, partition)
    missing = max(records, lost) - (log.log_end_offset - log.log_start_offset)
    for _ in range(missing):  # writes one batch per record, so that the log can be truncated after any record
        await client.produce(topic, partition, [b"record"])
    committed = log.log_end_offset
    await _commit(client, group, topic, partition, committed)
    await nodes.truncate(topic, partition, max(committed - lost, log.log_start_offset), None)
    return {"group": group, "committed_offset": committed, **client.offsets(topic, partition)}


async def _commit(client: PresetClient, group: str, topic: str, partition: int, offset: int) -> None:
    await client.coordinator(GROUP, group)
    place = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[place])])
    await client.ask(request, OffsetCommitResponse, max_version=9)


async def static_twin(client: PresetClient, parameters: Parameters) -> Facts:
    """A second member, the twin, joins the group with the same group.instance.id. In a classic group, the member that
    joined first is fenced. In a KIP-848 group, the member that joins second is refused. This is the twin if a client
    has already joined."""
    topic, group, instance = parameters.text("topic"), parameters.text("group"), parameters.text("instance")
    protocol = parameters.word("protocol", ("classic", "consumer"))
    await client.topic(topic)
    await client.coordinator(GROUP, group)
    if protocol == "consumer":
        return {"member_id": (await _join(client, group, topic, instance))[0], "protocol": protocol}
    joined = await client.ask(
        _join_request(group, topic, parameters.text("assignor"), instance), JoinGroupResponse, max_version=9
    )
    return {"member_id": joined.member_id, "generation": joined.generation_id, "protocol": protocol}


async def classic_rebalance(client: PresetClient, parameters: Parameters) -> Facts:
    """A classic group is in the middle of a rebalance. It waits for its leader's assignment, or for a member that does
    not rejoin. The group continues when the clock passes the rebalance timeout.
    """
    topic, group = parameters.text("topic"), parameters.text("group")
    state = parameters.word("state", ("CompletingRebalance", "PreparingRebalance"))
    timeout_ms = parameters.number("rebalance_timeout_ms", 1)
    await client.topic(topic)
    await client.coordinator(GROUP, group)
    request = _join_request(group, topic, parameters.text("assignor"), None, timeout_ms)
    first = await client.ask(request, JoinGroupResponse, max_version=BEFORE_MEMBER_IDS)
    if state == "PreparingRebalance":
        sync = SyncGroupRequest(
            group_id=group,
            generation_id=first.generation_id,
            member_id=first.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=first.member_id, assignment=NO_PARTITIONS)],
        )
        await client.ask(sync, SyncGroupResponse, max_version=BEFORE_MEMBER_IDS)
        client.leave_waiting(request, BEFORE_MEMBER_IDS)
        await client.cluster.wait_until_idle()
    return {"group": group, "state": state, "member_id": first.member_id, "generation": first.generation_id}


def _join_request(
    group: str, topic: str, assignor: str, instance: str | None, rebalance_timeout_ms: int = SESSION_MS
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=rebalance_timeout_ms,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=assignor, metadata=classic_metadata([topic]))],
    )


async def revocation_outstanding(client: PresetClient, parameters: Parameters) -> Facts:
    """A member of a KIP-848 group owns all partitions of the topic and sends no heartbeats. New members get no
    partition until the session timeout of this member (45 s) has passed on the cluster's clock.
    """
    topic, group, partitions = parameters.text("topic"), parameters.text("group"), parameters.number("partitions", 1)
    await client.topic(topic, partitions)
    await client.coordinator(GROUP, group)
    member_id, epoch = await _join(client, group, topic, None)
    owned = [TopicPartitions(topic_id=client.topic_id(topic), partitions=list(range(partitions)))]
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member_id, member_epoch=epoch, topic_partitions=owned
    )
    answer = await client.ask(request, ConsumerGroupHeartbeatResponse)
    return {"group": group, "member_id": member_id, "member_epoch": answer.member_epoch}


async def stale_member_epoch(client: PresetClient, parameters: Parameters) -> Facts:
    """The group has a new epoch, but the next heartbeat response still contains the old epoch. The next heartbeat of
    the member that receives this response is fenced.
    """
    group, other = parameters.text("group"), parameters.text("other_topic")
    await client.topic(other)
    await client.coordinator(GROUP, group)
    describe = ConsumerGroupDescribeRequest(group_ids=[group])
    before = (await client.ask(describe, ConsumerGroupDescribeResponse)).groups[0].group_epoch
    rule = {
        "name": f"stale-member-epoch {group}",
        "match": {"api": "ConsumerGroupHeartbeat", "group": group, "when": f"MemberEpoch == {before}"},
        "at": "applied",
        "do": {"edit": {"MemberEpoch": before}},
        "times": 1,
    }
    # Both changes happen in one turn of the event loop. A heartbeat that is handled earlier returns the old epoch
    # anyway.
    client.leave_waiting(_subscribing(group, other, None), 1)
    added = client.cluster.faults.add(rule)
    await client.cluster.wait_until_idle()
    after = (await client.ask(describe, ConsumerGroupDescribeResponse)).groups[0].group_epoch
    return {"group": group, "told_epoch": before, "group_epoch": after, "rule": added[0].name}


def _subscribing(group: str, topic: str, instance: str | None) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=hex_text(random_uuid()),
        member_epoch=0,
        instance_id=instance,
        rebalance_timeout_ms=SESSION_MS,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )


async def _join(client: PresetClient, group: str, topic: str, instance: str | None) -> tuple[str, int]:
    """Joins a KIP-848 group and returns the member id and the member epoch."""
    request = _subscribing(group, topic, instance)
    answer = await client.ask(request, ConsumerGroupHeartbeatResponse)
    return answer.member_id or "", answer.member_epoch
