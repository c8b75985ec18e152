"""The topology of a Kafka Streams application, as members send it and as the group stores it (KIP-1071).

A topology consists of subtopologies: parts of the application that exchange data only through topics. Each subtopology
reads source topics and repartition topics and keeps its state stores in changelog topics. Source:
docs/spec/streams-groups.md#s3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages import streams_group_heartbeat_request as wire
from odradek.protocol.messages import streams_group_topology_value as stored
from odradek.protocol.topic_partition import INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """An internal topic of an application. Internal topics are created by the broker.

    partitions          0 if the broker decides
    replication_factor  0 or less for the broker's default
    """

    name: str
    partitions: int = 0
    replication_factor: int = -1
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CopartitionGroup:
    """A group of topics that must have the same number of partitions.

    Each topic is identified by its index in one of the subtopology's topic lists.
    """

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Subtopology:
    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    changelog_topics: tuple[TopicInfo, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    repartition_sources: tuple[TopicInfo, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    @property
    def is_stateful(self) -> bool:
        """True if tasks of this subtopology have state and can therefore have standby tasks."""
        return bool(self.changelog_topics)

    def read_topics(self) -> Iterator[str]:
        """Yields the topics whose partitions the tasks of this subtopology read."""
        yield from self.source_topics
        for topic in self.repartition_sources:
            yield topic.name

    def required_topics(self) -> Iterator[str]:
        """Yields the topics that must exist before tasks can be assigned."""
        yield from self.read_topics()
        for topic in self.changelog_topics:
            yield topic.name


@dataclass(frozen=True, slots=True)
class Topology:
    """One version of an application's topology: its subtopologies by id.

    Two topologies are equal if they have the same epoch and the same subtopologies. The order of the subtopologies does
    not matter, but the order of all lists inside them does.
    """

    epoch: int
    subtopologies: Mapping[str, Subtopology]

    def required_topics(self) -> frozenset[str]:
        return frozenset(name for each in self.subtopologies.values() for name in each.required_topics())

    def read_topics(self) -> frozenset[str]:
        """Returns the topics that the tasks read. The group is treated as subscribed to these topics."""
        return frozenset(name for each in self.subtopologies.values() for name in each.read_topics())


# Checks of the topology in a request.


def check_topics(
    topology: wire.Topology, is_valid_name: Callable[[str], bool], may_describe: Callable[[str], bool]
) -> Generator[None, None, None]:
    """Raises KafkaError if the topology contains internal topics of Kafka, invalid names, or topics that the client may
    not see. Yields after each name."""
    names: dict[str, None] = {}
    internal, invalid = [], []
    for name in _named_topics(topology):
        if name not in names:
            names[name] = None
            if name in INTERNAL_TOPICS:
                internal.append(name)
            elif not is_valid_name(name):
                invalid.append(name)
        yield
    if internal:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited.",
        )
    if invalid:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY, f"Topic names {','.join(invalid)} are not valid topic names."
        )
    is_hidden = False
    for name in names:
        is_hidden |= not may_describe(name)  # `may_describe` is called for every topic, because each decision is logged
        yield
    if is_hidden:
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def check_patterns(topology: wire.Topology) -> None:
    """Raises INVALID_REQUEST if a subtopology has a pattern for source topics. Kafka does not resolve these patterns
    either; the Java client resolves them itself."""
    if any(subtopology.source_topic_regex for subtopology in topology.subtopologies):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Regular expressions for source topics are not supported yet.")


def check_changelogs(topology: wire.Topology) -> None:
    """Raises STREAMS_INVALID_TOPOLOGY if the client specifies the partition count of a changelog topic."""
    for subtopology in topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions != 0:
                raise KafkaError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}.",
                )


def _named_topics(topology: wire.Topology) -> Iterator[str]:
    for subtopology in topology.subtopologies:
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            yield topic.name


def joining_topology(sent: wire.Topology, group: Topology | None) -> Topology:
    """Returns the topology of a member that joins a group. `group` is the group's topology, or None if the group has no
    topology yet.

    Raises KafkaError if the member may not join with its topology. If the member's topology epoch is lower than the
    group's, the member may join with any topology, and is then stale (see `is_stale`). Kafka responds with
    UNKNOWN_SERVER_ERROR if two subtopologies have the same id, or if the first topology of a group contains an invalid
    number.
    """
    topology = topology_of(sent)
    if len(topology.subtopologies) < len(sent.subtopologies):
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, "Two subtopologies have the same id.")
    if group is None:
        _check_numbers(topology)
    elif topology.epoch > group.epoch or (topology.epoch == group.epoch and topology != group):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    return topology


def _check_numbers(topology: Topology) -> None:
    if topology.epoch < 0:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY, f"The topology epoch must not be negative: {topology.epoch}."
        )
    for subtopology in topology.subtopologies.values():
        for topic in subtopology.repartition_sources:
            if topic.partitions < 0:
                raise KafkaError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Repartition topic {topic.name} cannot have {topic.partitions} partitions.",
                )
        for group in subtopology.copartition_groups:
            _check_indexes(group.source_topics, subtopology, len(subtopology.source_topics))
            _check_indexes(group.source_topic_regex, subtopology, len(subtopology.source_topic_regex))
            _check_indexes(group.repartition_source_topics, subtopology, len(subtopology.repartition_sources))


def _check_indexes(indexes: tuple[int, ...], subtopology: Subtopology, count: int) -> None:
    for index in indexes:
        if not 0 <= index < count:
            raise KafkaError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                f"A copartition group of subtopology {subtopology.subtopology_id} refers to topic {index} of {count}.",
            )


def is_stale(topology_epoch: int, group: Topology) -> bool:
    """Returns whether a member with this topology epoch runs an older version of the application than its group."""
    return topology_epoch < group.epoch


# Conversions.


def topology_of(sent: wire.Topology | stored.StreamsGroupTopologyValue) -> Topology:
    """Converts the topology in a request or a record. If two subtopologies have the same id, the last one is used."""
    return Topology(sent.epoch, {each.subtopology_id: _subtopology_of(each) for each in sent.subtopologies})


def _subtopology_of(sent: wire.Subtopology | stored.Subtopology) -> Subtopology:
    return Subtopology(
        subtopology_id=sent.subtopology_id,
        source_topics=tuple(sent.source_topics),
        source_topic_regex=tuple(sent.source_topic_regex),
        changelog_topics=tuple(_topic_of(topic) for topic in sent.state_changelog_topics),
        repartition_sinks=tuple(sent.repartition_sink_topics),
        repartition_sources=tuple(_topic_of(topic) for topic in sent.repartition_source_topics),
        copartition_groups=tuple(
            CopartitionGroup(
                tuple(group.source_topics), tuple(group.source_topic_regex), tuple(group.repartition_source_topics)
            )
            for group in sent.copartition_groups
        ),
    )


def _topic_of(sent: wire.TopicInfo | stored.TopicInfo) -> TopicInfo:
    configs = tuple((config.key, config.value) for config in sent.topic_configs)
    return TopicInfo(sent.name, sent.partitions, sent.replication_factor, configs)


def topology_value(topology: Topology) -> stored.StreamsGroupTopologyValue:
    """Converts a topology to the value of a record of type 23."""
    return stored.StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            stored.Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=list(each.source_topics),
                source_topic_regex=list(each.source_topic_regex),
                state_changelog_topics=[_stored_topic(topic) for topic in each.changelog_topics],
                repartition_sink_topics=list(each.repartition_sinks),
                repartition_source_topics=[_stored_topic(topic) for topic in each.repartition_sources],
                copartition_groups=[
                    stored.CopartitionGroup(
                        source_topics=list(group.source_topics),
                        source_topic_regex=list(group.source_topic_regex),
                        repartition_source_topics=list(group.repartition_source_topics),
                    )
                    for group in each.copartition_groups
                ],
            )
            for each in topology.subtopologies.values()
        ],
    )


def _stored_topic(topic: TopicInfo) -> stored.TopicInfo:
    configs = [stored.TopicConfig(key=key, value=value) for key, value in topic.configs]
    return stored.TopicInfo(
        name=topic.name, partitions=topic.partitions, replication_factor=topic.replication_factor, topic_configs=configs
    )
