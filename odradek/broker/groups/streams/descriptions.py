"""Topology descriptions of streams groups (KIP-1331), which members send when the broker requests them.

Descriptions are kept in memory only. After a restart, the broker requests them again. Source:
docs/spec/streams-groups.md#s10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import Enum

from odradek.broker.groups.common.members import is_blank
from odradek.broker.groups.common.outcome import DESCRIPTIONS_DELETED, DESCRIPTIONS_SET, Outcome
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.broker.groups.streams.group import StreamsGroup
from odradek.broker.groups.streams.member import StreamsMember
from odradek.broker.groups.streams.records import BEING_STORED, NO_TOPOLOGY_EPOCH, group_record
from odradek.broker.groups.streams.topology import is_stale
from odradek.broker.groups.streams.turn import StreamsTurn
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages import streams_group_describe_response as answer
from odradek.protocol.messages import streams_group_topology_description_update_request as wire
from odradek.protocol.messages.streams_group_topology_description_update_request import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)

FIRST_PAUSE_MS = 30_000  # pause after the first request for a description; each additional request doubles the pause
MAX_PAUSE_MS = 3_600_000
JITTER_PERCENT = 20  # maximum random variation of a pause, to spread the requests for descriptions over time


class NodeType(Enum):
    SOURCE = 1
    PROCESSOR = 2
    SINK = 3


class DescriptionStatus(Enum):
    """The values of TopologyDescriptionStatus in StreamsGroupDescribe. Kafka's status 2, which reports an error in its
    description store, does not occur here."""

    NOT_REQUESTED = 0
    NOT_STORED = 1
    AVAILABLE = 3


def asks_for_description(turn: StreamsTurn, member: StreamsMember) -> bool:
    """Returns whether the heartbeat response should request a topology description from this member. If so, also stores
    the time before which no member of the group is asked again."""
    group = turn.group
    memory, topology = group.memory, group.topology
    if (
        not turn.config.keeps_descriptions
        or topology is None
        or memory.description is not None
        or group.metadata.refused_topology_epoch == topology.epoch
        or is_stale(member.topology_epoch, topology)
        or turn.now_ms < memory.next_request_ms
    ):
        return False
    pause_ms = pause_after(memory.requests_sent, turn.registry.random_below)
    turn.set_memory(replace(memory, requests_sent=memory.requests_sent + 1, next_request_ms=turn.now_ms + pause_ms))
    return True


def pause_after(requests_sent: int, random_below: Callable[[int], int]) -> int:
    """Returns the pause after a request for a description, in ms. `requests_sent` is the number of earlier requests."""
    usual_ms = min(FIRST_PAUSE_MS << min(requests_sent, MAX_PAUSE_MS.bit_length()), MAX_PAUSE_MS)
    jitter_ms = usual_ms * JITTER_PERCENT // 100
    return min(usual_ms - jitter_ms + random_below(2 * jitter_ms), MAX_PAUSE_MS)


def check_form(request: StreamsGroupTopologyDescriptionUpdateRequest) -> None:
    """Raises INVALID_REQUEST if the member id or the group id is blank."""
    if is_blank(request.member_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    if is_blank(request.group_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")


def begin_description(
    registry: GroupRegistry, request: StreamsGroupTopologyDescriptionUpdateRequest, now_ms: int
) -> Outcome[bool]:
    """Handles the first step of StreamsGroupTopologyDescriptionUpdate. Checks the request and records that a
    description is about to be stored."""
    group = _group(registry, request.group_id)
    group.require_member(request.member_id, None)
    current = NO_TOPOLOGY_EPOCH if group.topology is None else group.topology.epoch
    if request.topology_epoch != current:
        what = f"Topology epoch {request.topology_epoch} does not match the group's current topology epoch {current}."
        raise KafkaError(ErrorCode.INVALID_REQUEST, what)
    _check_nodes(request.topology_description)
    return _record_described_epoch(StreamsTurn(registry, group, now_ms), BEING_STORED)


def description_stored(
    registry: GroupRegistry, request: StreamsGroupTopologyDescriptionUpdateRequest, now_ms: int
) -> Outcome[bool]:
    """Handles the second step of StreamsGroupTopologyDescriptionUpdate. Stores the description in memory and records
    its topology epoch."""
    turn = StreamsTurn(registry, _group(registry, request.group_id), now_ms)
    turn.set_memory(replace(turn.group.memory, description=request.topology_description))
    return replace(_record_described_epoch(turn, request.topology_epoch), counted=((DESCRIPTIONS_SET, 1),))


def begin_removal(registry: GroupRegistry, group_id: str, now_ms: int) -> Outcome[bool]:
    """Handles the first step of removing a group's description before the group is deleted. Records that the
    description may or may not exist. Raises NON_EMPTY_GROUP if the group has members."""
    group = _group(registry, group_id)
    if group.members:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    return _record_described_epoch(StreamsTurn(registry, group, now_ms), BEING_STORED)


def confirm_removal(registry: GroupRegistry, group_id: str, now_ms: int) -> Outcome[bool]:
    """Handles the second step of removing a group's description. Discards the description and records that the group
    has none."""
    turn = StreamsTurn(registry, _group(registry, group_id), now_ms)
    turn.set_memory(replace(turn.group.memory, description=None))
    return replace(_record_described_epoch(turn, NO_TOPOLOGY_EPOCH), counted=((DESCRIPTIONS_DELETED, 1),))


def _group(registry: GroupRegistry, group_id: str) -> StreamsGroup:
    group = registry.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, StreamsGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
    return group


def _record_described_epoch(turn: StreamsTurn, topology_epoch: int) -> Outcome[bool]:
    group = turn.group
    metadata = group.metadata._replace(described_topology_epoch=topology_epoch)
    turn.write(group_record(group.group_id, metadata._replace(epoch=group.epoch, metadata_hash=group.metadata_hash)))
    return turn.outcome(True)


def _check_nodes(description: wire.TopologyDescription) -> None:
    for node in _nodes(description):
        if node.node_type not in {each.value for each in NodeType}:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown topology node type: {node.node_type}")
    for store in description.global_stores:
        types = (store.source.node_type, store.processor.node_type)
        if types != (NodeType.SOURCE.value, NodeType.PROCESSOR.value):
            what = "Global store must be composed of a source and a processor node."
            raise KafkaError(ErrorCode.INVALID_REQUEST, what)


def _nodes(description: wire.TopologyDescription) -> Iterator[wire.TopologyDescriptionNode]:
    for subtopology in description.subtopologies:
        yield from subtopology.nodes
    for store in description.global_stores:
        yield store.source
        yield store.processor


# Responses to StreamsGroupDescribe.


def described_topology(group: StreamsGroup) -> tuple[DescriptionStatus, answer.TopologyDescription | None]:
    """Returns the status and the topology description for the response to StreamsGroupDescribe. Returns NOT_STORED and
    None if no description is stored."""
    description = group.memory.description
    if description is None:
        return DescriptionStatus.NOT_STORED, None
    return DescriptionStatus.AVAILABLE, answer.TopologyDescription(
        subtopologies=[
            answer.TopologyDescriptionSubtopology(subtopology_id=each.subtopology_id, nodes=_shown_nodes(each.nodes))
            for each in description.subtopologies
        ],
        global_stores=[
            answer.TopologyDescriptionGlobalStore(
                source=_described_node(each.source), processor=_described_node(each.processor)
            )
            for each in description.global_stores
        ],
    )


def _shown_nodes(nodes: Sequence[wire.TopologyDescriptionNode]) -> list[answer.TopologyDescriptionNode]:
    return [_described_node(node) for node in nodes]


def _described_node(node: wire.TopologyDescriptionNode) -> answer.TopologyDescriptionNode:
    return answer.TopologyDescriptionNode(
        name=node.name,
        node_type=node.node_type,
        source_topics=list(node.source_topics),
        sink_topic=node.sink_topic,
        stores=list(node.stores),
        successors=list(node.successors),
    )
