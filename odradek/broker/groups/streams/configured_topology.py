"""Compares a topology with the existing topics, to find out whether tasks can be assigned, how many tasks there are,
and which internal topics the broker must create. Source: docs/spec/streams-groups.md#s4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from odradek.broker.groups.common.java_order import compared_as_java_does, hash_of_text, in_hash_order
from odradek.broker.groups.streams.partition_counts import PartitionCounts, WronglyPartitioned
from odradek.broker.groups.streams.status import Status, StatusCode
from odradek.broker.groups.streams.tasks import TaskRoles, Tasks
from odradek.broker.groups.streams.topology import Subtopology, TopicInfo, Topology
from odradek.protocol.errors import ErrorCode, KafkaError

MAX_NAMED_TOPICS = 3  # maximum number of topics listed in a status text


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """The result of comparing a topology with the existing topics.

    status       the reason no tasks can be assigned, or None if the topology is ready
    task_counts  the number of tasks of each subtopology; empty if source topics are missing or topics are wrongly
                 partitioned
    internal     the internal topics by name, with the partition counts that they should have
    missing      the internal topics that must be created
    """

    topology: Topology
    status: Status | None
    task_counts: Mapping[str, int] = field(default_factory=dict)
    internal: Mapping[str, TopicInfo] = field(default_factory=dict)
    missing: Sequence[TopicInfo] = ()

    @property
    def is_ready(self) -> bool:
        return self.status is None

    @property
    def stateful(self) -> frozenset[str]:
        """The ids of the subtopologies whose tasks can have standby tasks."""
        return frozenset(each.subtopology_id for each in self.topology.subtopologies.values() if each.is_stateful)

    def check_owned(self, owned: TaskRoles) -> None:
        """Raises INVALID_REQUEST if a member reports a task that does not exist in the topology. Until the topology is
        ready, every report is accepted."""
        if self.is_ready:
            for tasks in (owned.active, owned.standby, owned.warmup):
                self._check_tasks(tasks)

    def _check_tasks(self, tasks: Tasks) -> None:
        for subtopology_id, partitions in tasks.items():
            count = self.task_counts.get(subtopology_id)
            if count is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"Subtopology {subtopology_id} does not exist in the topology."
                )
            unknown = [partition for partition in partitions if not 0 <= partition < count]
            if unknown:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Task {min(unknown)} for subtopology {subtopology_id} is invalid. Number of tasks for this "
                    f"subtopology: {count}",
                )


def configure(topology: Topology, existing: Mapping[str, int]) -> ConfiguredTopology:
    """Compares the topology with the existing topics. `existing` contains the partition counts of the required topics
    that exist.

    Raises STREAMS_INVALID_TOPOLOGY if the partition counts cannot be derived from the topology.
    """
    absent = {
        name
        for subtopology in topology.subtopologies.values()
        for name in subtopology.source_topics
        if name not in existing
    }
    if absent:
        named = _shortened_list(sorted(absent, key=compared_as_java_does))
        return ConfiguredTopology(
            topology, Status(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {named} are missing.")
        )
    try:
        counts = PartitionCounts(topology, existing)
        internal = _internal_topics(topology, counts)
    except WronglyPartitioned as error:
        return ConfiguredTopology(topology, error.status)
    missing = [topic for name, topic in internal.items() if name not in existing]
    status = missing_topics_status([topic.name for topic in missing]) if missing else None
    return ConfiguredTopology(topology, status, counts.task_counts, internal, missing)


def _internal_topics(topology: Topology, counts: PartitionCounts) -> dict[str, TopicInfo]:
    """Returns the internal topics, in the order in which Kafka lists them."""
    topics: dict[str, TopicInfo] = {}
    for subtopology in topology.subtopologies.values():
        for topic in (*subtopology.repartition_sources, *subtopology.changelog_topics):
            topics[topic.name] = replace(topic, partitions=counts.decided[topic.name])
    topics = {name: topics[name] for name in in_hash_order(topics, hash_of_text)}
    for name, topic in topics.items():
        found = counts.existing.get(name, topic.partitions)
        if found != topic.partitions:
            raise WronglyPartitioned(
                f"Existing topic {name} has different number of partitions: expected {topic.partitions}, found {found}"
            )
    return topics


def missing_topics_status(
    missing: Sequence[str], unauthorized: Sequence[str] = (), failures: Mapping[str, str] | None = None
) -> Status:
    """Returns the status that reports missing internal topics.

    unauthorized  the missing topics that the member is not allowed to create
    failures      the error messages of recent failed attempts to create topics, by topic
    """
    detail = f"Internal topics are missing: {_shortened_list(missing)}"
    if unauthorized:
        detail += f"; Unauthorized to CREATE on topics {', '.join(unauthorized)}."
    if failures:
        shown = [f"{name} ({failures[name]})" for name in [*failures][:MAX_NAMED_TOPICS]]
        more = f" and {len(failures) - MAX_NAMED_TOPICS} more" if len(failures) > MAX_NAMED_TOPICS else ""
        detail += f"; Creation failed: {', '.join(shown)}{more}."
    return Status(StatusCode.MISSING_INTERNAL_TOPICS, detail)


def _shortened_list(topics: Sequence[str]) -> str:
    named = ", ".join(topics[:MAX_NAMED_TOPICS])
    more = len(topics) - MAX_NAMED_TOPICS
    return f"{named} and {more} additional topics" if more > 0 else named


def described_subtopologies(topology: Topology, configured: ConfiguredTopology | None) -> list[Subtopology]:
    """Returns the subtopologies as StreamsGroupDescribe reports them. Subtopologies are sorted by id, and topics by
    name. Once the topology is ready, the internal topics include their computed partition counts."""
    internal = configured.internal if configured is not None and configured.is_ready else {}
    return [
        replace(
            subtopology,
            source_topics=tuple(sorted(subtopology.source_topics)),
            repartition_sinks=tuple(sorted(subtopology.repartition_sinks)),
            changelog_topics=_configured_topics(subtopology.changelog_topics, internal),
            repartition_sources=_configured_topics(subtopology.repartition_sources, internal),
        )
        for subtopology in sorted(
            topology.subtopologies.values(), key=lambda each: compared_as_java_does(each.subtopology_id)
        )
    ]


def _configured_topics(topics: Iterable[TopicInfo], internal: Mapping[str, TopicInfo]) -> tuple[TopicInfo, ...]:
    return tuple(sorted((internal.get(topic.name, topic) for topic in topics), key=lambda topic: topic.name))
