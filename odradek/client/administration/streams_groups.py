"""Streams groups (KIP-1071): the members of a Kafka Streams application with their tasks, and the application's
topology."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from odradek.client.administration.requests import AdminRequests
from odradek.client.common.values import TopicPartition
from odradek.client.network.cluster import CoordinatorType
from odradek.protocol.messages import streams_group_describe_response as described
from odradek.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from odradek.protocol.messages.streams_group_describe_response import StreamsGroupDescribeResponse


class StreamsTask(NamedTuple):
    """A task of a streams application, which processes one partition of a subtopology's input. Its string form looks
    like `0_2`."""

    subtopology_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology_id}_{self.partition}"


@dataclass(frozen=True, slots=True)
class StreamsTasks:
    """A member's tasks, grouped by role. Active tasks process records, standby tasks keep copies of the state of active
    tasks, and warm-up tasks build up state before they become active."""

    active: tuple[StreamsTask, ...]
    standby: tuple[StreamsTask, ...]
    warmup: tuple[StreamsTask, ...]


@dataclass(frozen=True, slots=True)
class StreamsMemberDescription:
    """A member of a streams group: one thread of an application instance.

    process_id           identifies the application instance, and is the same for all its members
    user_endpoint        host and port where the instance answers queries from other instances, or None
    task_offsets         the sums of the changelog offsets that the member has reported for its tasks
    task_end_offsets     the sums of the end offsets of the same changelogs
    assignment           the tasks that the member may run now
    target_assignment    the tasks that the member will have after the rebalance
    """

    member_id: str
    member_epoch: int
    group_instance_id: str | None
    rack_id: str | None
    client_id: str
    host: str
    topology_epoch: int
    process_id: str
    user_endpoint: tuple[str, int] | None
    client_tags: Mapping[str, str]
    task_offsets: Mapping[StreamsTask, int]
    task_end_offsets: Mapping[StreamsTask, int]
    assignment: StreamsTasks
    target_assignment: StreamsTasks


@dataclass(frozen=True, slots=True)
class StreamsInternalTopic:
    """A changelog or repartition topic that the group creates. `partitions` is 0 until the number is decided."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StreamsSubtopology:
    """A part of a topology whose processors run in the same task.

    repartition_sink_topics    the repartition topics that the subtopology writes to
    repartition_source_topics  the repartition topics that the subtopology reads from
    """

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    changelog_topics: tuple[StreamsInternalTopic, ...]
    repartition_source_topics: tuple[StreamsInternalTopic, ...]

    @property
    def read_topics(self) -> tuple[str, ...]:
        """The topics whose records this subtopology's active tasks read and whose offsets they commit."""
        return *self.source_topics, *(topic.name for topic in self.repartition_source_topics)


@dataclass(frozen=True, slots=True)
class StreamsGroupDescription:
    """A streams group. `topology_epoch` is None if the group has no topology; `assignor` is "" if the broker does not
    report it (before Kafka 4.4)."""

    group_id: str
    state: str
    assignor: str
    coordinator: int
    epoch: int
    assignment_epoch: int
    topology_epoch: int | None
    subtopologies: tuple[StreamsSubtopology, ...]
    members: tuple[StreamsMemberDescription, ...]

    def partitions_of(self, tasks: Iterable[StreamsTask]) -> Iterator[TopicPartition]:
        """Yields the partitions that these tasks read. If a topic has fewer partitions than its subtopology has tasks,
        also yields the partitions that do not exist."""
        topics = {each.subtopology_id: each.read_topics for each in self.subtopologies}
        for task in tasks:
            for topic in topics.get(task.subtopology_id, ()):
                yield TopicPartition(topic, task.partition)


async def describe_streams_group(requests: AdminRequests, group_id: str) -> StreamsGroupDescription:
    request = StreamsGroupDescribeRequest(group_ids=[group_id])

    def read(answer: StreamsGroupDescribeResponse) -> described.DescribedGroup:
        (group,) = answer.groups
        requests.check_group(group_id, group.error_code, group.error_message)
        return group

    group = await requests.ask_group_coordinator(group_id, request, StreamsGroupDescribeResponse, read)
    topology = group.topology
    return StreamsGroupDescription(
        group_id=group_id,
        state=group.group_state,
        assignor=group.assignor_name or "",
        coordinator=await requests.cluster.coordinator(group_id, CoordinatorType.GROUP),
        epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        topology_epoch=None if topology is None else topology.epoch,
        subtopologies=tuple(_subtopology(each) for each in (topology.subtopologies if topology else None) or ()),
        members=tuple(_member(each) for each in group.members),
    )


def _subtopology(each: described.Subtopology) -> StreamsSubtopology:
    return StreamsSubtopology(
        each.subtopology_id,
        tuple(each.source_topics),
        tuple(each.repartition_sink_topics),
        tuple(_internal_topic(topic) for topic in each.state_changelog_topics),
        tuple(_internal_topic(topic) for topic in each.repartition_source_topics),
    )


def _internal_topic(topic: described.TopicInfo) -> StreamsInternalTopic:
    configs = {each.key: each.value for each in topic.topic_configs}
    return StreamsInternalTopic(topic.name, topic.partitions, topic.replication_factor, configs)


def _member(each: described.Member) -> StreamsMemberDescription:
    endpoint = each.user_endpoint
    return StreamsMemberDescription(
        member_id=each.member_id,
        member_epoch=each.member_epoch,
        group_instance_id=each.instance_id,
        rack_id=each.rack_id,
        client_id=each.client_id,
        host=each.client_host,
        topology_epoch=each.topology_epoch,
        process_id=each.process_id,
        user_endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
        client_tags={tag.key: tag.value for tag in each.client_tags},
        task_offsets=_offsets(each.task_offsets),
        task_end_offsets=_offsets(each.task_end_offsets),
        assignment=_tasks(each.assignment),
        target_assignment=_tasks(each.target_assignment),
    )


def _offsets(offsets: Iterable[described.TaskOffset]) -> Mapping[StreamsTask, int]:
    return {StreamsTask(each.subtopology_id, each.partition): each.offset for each in offsets}


def _tasks(assignment: described.Assignment) -> StreamsTasks:
    return StreamsTasks(
        _in_order(assignment.active_tasks), _in_order(assignment.standby_tasks), _in_order(assignment.warmup_tasks)
    )


def _in_order(tasks: Iterable[described.TaskIds]) -> tuple[StreamsTask, ...]:
    return tuple(sorted(StreamsTask(each.subtopology_id, partition) for each in tasks for partition in each.partitions))
