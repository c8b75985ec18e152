"""Describes the topologies of streams groups (KIP-1071) and the tasks of their members."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from odradek.broker.groups.core import GroupCore
    from odradek.broker.metadata.image import MetadataImage
    from odradek.protocol.messages.streams_group_describe_response import (
        DescribedGroup,
        Member,
        Subtopology,
        TaskIds,
        TopicInfo,
        TopologyDescription,
        TopologyDescriptionNode,
    )

KINDS_OF_NODES = {1: "Source", 2: "Processor", 3: "Sink"}


class InternalTopic(NamedTuple):
    """A topic that the broker creates for the group. `partitions` is None until the number of partitions is decided."""

    name: str
    partitions: int | None


class SubtopologyFacts(NamedTuple):
    """A part of the application that exchanges data with other parts only through topics.

    tasks                the number of its tasks, or None if a topic that it reads does not exist
    sources              external topics that it reads
    repartition_sources  internal topics of the group that it reads
    repartition_sinks    internal topics of the group that it writes for other subtopologies to read
    changelogs           internal topics that back up its state stores
    """

    id: str
    tasks: int | None
    sources: Sequence[str]
    repartition_sources: Sequence[InternalTopic]
    repartition_sinks: Sequence[str]
    changelogs: Sequence[InternalTopic]


class TaskOwner(NamedTuple):
    """A streams group member with its tasks. A task is written as its subtopology and partition, such as `0_2`."""

    id: str
    client: str
    host: str
    instance: str | None
    epoch: int
    process: str
    endpoint: str | None
    active: Sequence[str]
    standby: Sequence[str]


class StreamsFacts(NamedTuple):
    """A streams group with its topology and tasks.

    description  the lines of the topology description that a member has sent (KIP-1331), or None if no member has sent
                 one
    """

    assignment_epoch: int
    topology_epoch: int | None
    subtopologies: Sequence[SubtopologyFacts]
    owners: Sequence[TaskOwner]
    description: Sequence[str] | None


def streams_facts(name: str, core: GroupCore, image: MetadataImage) -> StreamsFacts:
    """Describes a streams group. Raises KafkaError GROUP_ID_NOT_FOUND if the group does not exist or is of another
    type."""
    found = core.describe_streams_group(name, includes_description=True)
    topology = found.topology
    return StreamsFacts(
        found.assignment_epoch,
        None if topology is None else topology.epoch,
        [] if topology is None else [_subtopology(each, image) for each in topology.subtopologies or ()],
        [_owner(each) for each in found.members],
        None if found.topology_description is None else [*_lines(found.topology_description)],
    )


def partitions_read(found: DescribedGroup, image: MetadataImage) -> set[tuple[str, int]]:
    """Returns the existing partitions that the active tasks of all members read."""
    topology = found.topology
    reads = {each.subtopology_id: read_topics(each) for each in (topology.subtopologies if topology else None) or ()}
    return {
        (topic, partition)
        for member in found.members
        for tasks in member.assignment.active_tasks
        for topic in reads.get(tasks.subtopology_id, ())
        for partition in tasks.partitions
        if image.has_partition((topic, partition))
    }


def read_topics(subtopology: Subtopology) -> list[str]:
    return [*subtopology.source_topics, *(each.name for each in subtopology.repartition_source_topics)]


def _subtopology(each: Subtopology, image: MetadataImage) -> SubtopologyFacts:
    topics = [image.topics.get(name) for name in read_topics(each)]
    counts = [len(topic.partitions) for topic in topics if topic is not None]
    return SubtopologyFacts(
        each.subtopology_id,
        max(counts) if counts and len(counts) == len(topics) else None,
        each.source_topics,
        _internal_topics(each.repartition_source_topics),
        each.repartition_sink_topics,
        _internal_topics(each.state_changelog_topics),
    )


def _internal_topics(topics: Iterable[TopicInfo]) -> list[InternalTopic]:
    return [InternalTopic(each.name, each.partitions or None) for each in topics]


def _owner(each: Member) -> TaskOwner:
    endpoint = each.user_endpoint
    return TaskOwner(
        each.member_id,
        each.client_id,
        each.client_host,
        each.instance_id,
        each.member_epoch,
        each.process_id,
        None if endpoint is None else f"{endpoint.host}:{endpoint.port}",
        [*_task_names(each.assignment.active_tasks)],
        [*_task_names(each.assignment.standby_tasks)],
    )


def _task_names(listed: Iterable[TaskIds]) -> Iterator[str]:
    for tasks in listed:
        for partition in tasks.partitions:
            yield f"{tasks.subtopology_id}_{partition}"


def _lines(description: TopologyDescription) -> Iterator[str]:
    """Yields lines like those of `Topology.describe` in Kafka Streams."""
    for subtopology in description.subtopologies:
        yield f"Sub-topology: {subtopology.subtopology_id}"
        for node in subtopology.nodes:
            yield f"  {_node(node)}"
    for store in description.global_stores:
        yield "Global store"
        yield f"  {_node(store.source)}"
        yield f"  {_node(store.processor)}"


def _node(node: TopologyDescriptionNode) -> str:
    about = []
    if node.source_topics:
        about.append(f"topics: {', '.join(node.source_topics)}")
    if node.sink_topic is not None:
        about.append(f"topic: {node.sink_topic}")
    if node.stores:
        about.append(f"stores: {', '.join(node.stores)}")
    text = f"{KINDS_OF_NODES.get(node.node_type, 'Node')}: {node.name}"
    if about:
        text += f" ({'; '.join(about)})"
    return f"{text} → {', '.join(node.successors)}" if node.successors else text
