"""The endpoints at which a streams group's members serve interactive queries, and the partitions at each endpoint.

Source: docs/spec/streams-groups.md#s6.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace

from odradek.broker.groups.streams.member import StreamsMember
from odradek.broker.groups.streams.tasks import Tasks
from odradek.broker.groups.streams.turn import StreamsTurn
from odradek.protocol.messages.streams_group_heartbeat_response import Endpoint, EndpointToPartitions, TopicPartition


def follow_endpoints(turn: StreamsTurn, before: StreamsMember, member: StreamsMember, *, has_other_tasks: bool) -> None:
    """Advances the group's endpoint epoch if the member's endpoint has changed, or if the member has an endpoint and
    its tasks have changed."""
    if member.user_endpoint != before.user_endpoint or (has_other_tasks and member.user_endpoint is not None):
        memory = turn.group.memory
        turn.set_memory(replace(memory, endpoint_epoch=memory.endpoint_epoch + 1))


def endpoint_partitions(turn: StreamsTurn, asking: StreamsMember) -> list[EndpointToPartitions]:
    """Returns the partitions at each member's endpoint. As in Kafka, the member that sent the heartbeat comes last."""
    others = [member for member in turn.group.members.values() if member.member_id != asking.member_id]
    found = []
    for member in (*others, asking):
        if member.user_endpoint is None:
            continue
        roles = member.assigned.roles
        found.append(
            EndpointToPartitions(
                user_endpoint=Endpoint(host=member.user_endpoint.host, port=member.user_endpoint.port),
                active_partitions=_partitions(turn, [roles.active]),
                standby_partitions=_partitions(turn, [roles.standby, roles.warmup]),
            )
        )
    return found


def _partitions(turn: StreamsTurn, held: Iterable[Tasks]) -> list[TopicPartition]:
    """Returns the partitions that the tasks in `held` read. If a topic has fewer partitions than the subtopology has
    tasks, some tasks read no partition of the topic."""
    topology = turn.group.topology
    assert topology is not None
    found: dict[str, set[int]] = {}
    for tasks in held:
        for subtopology_id, partitions in tasks.items():
            subtopology = topology.subtopologies.get(subtopology_id)
            ascending = sorted(partitions)
            for name in subtopology.read_topics() if subtopology is not None else ():
                topic = turn.cluster.topic(name)
                count = 0 if topic is None else topic.partition_count
                found.setdefault(name, set()).update(ascending[: bisect_left(ascending, count)])
    return [TopicPartition(topic=name, partitions=sorted(indexes)) for name, indexes in found.items() if indexes]
