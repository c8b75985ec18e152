"""Determines the partition counts of a topology's internal topics.

As in Kafka, subtopologies are visited in the order of a Java hash map, because the result can depend on the order: the
first subtopology that writes to a repartition topic determines its partition count, even if a later subtopology would
require more partitions. Source: docs/spec/streams-groups.md#s4, T2 to T9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

from odradek.broker.groups.common.java_order import compared_as_java_does, hash_of_text, in_hash_order
from odradek.broker.groups.streams.status import Status, StatusCode
from odradek.broker.groups.streams.topology import CopartitionGroup, Subtopology, Topology
from odradek.protocol.errors import ErrorCode, KafkaError


class WronglyPartitioned(Exception):
    """Raised if topics must have the same number of partitions but do not. The message is sent to the client."""

    @property
    def status(self) -> Status:
        return Status(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, str(self))


class PartitionCounts:
    """The number of partitions of each topic in a topology, and the number of tasks of each subtopology.

    existing  the actual partition counts of existing topics, including all source topics
    decided   the computed partition counts of internal topics, including topics that exist with another count

    The constructor raises WronglyPartitioned if topics must have the same number of partitions but do not, or
    STREAMS_INVALID_TOPOLOGY if the partition counts cannot be derived from the topology.
    """

    __slots__ = ("decided", "existing", "repartition_topics", "task_counts")

    def __init__(self, topology: Topology, existing: Mapping[str, int]) -> None:
        self.existing = existing
        self.decided: dict[str, int] = {}
        self.task_counts: dict[str, int] = {}
        subtopologies = in_hash_order(
            topology.subtopologies.values(), lambda subtopology: hash_of_text(subtopology.subtopology_id)
        )
        self.repartition_topics = frozenset(
            topic.name for subtopology in subtopologies for topic in subtopology.repartition_sources
        )
        fixed = self._counts_of_client(subtopologies)
        self._follow_sinks(subtopologies)
        for subtopology in subtopologies:
            for group in subtopology.copartition_groups:
                self._align(_names_of(group, subtopology), fixed)
        for subtopology in subtopologies:
            self._size(subtopology)

    def _counts_of_client(self, subtopologies: Iterable[Subtopology]) -> dict[str, int]:
        """Returns the partition counts that the client has set, by repartition topic."""
        fixed: dict[str, int] = {}
        for subtopology in subtopologies:
            for topic in subtopology.repartition_sources:
                if topic.partitions > 0:
                    fixed.setdefault(topic.name, topic.partitions)
        self.decided |= fixed
        return fixed

    def _follow_sinks(self, subtopologies: list[Subtopology]) -> None:
        """Gives each remaining repartition topic the largest partition count among the topics that the writing
        subtopology reads.

        The subtopologies are visited in rounds until nothing changes. A subtopology must wait while none of the topics
        that it reads has a partition count. It is visited again when one of these topics gets a count.
        """
        readers: dict[str, list[int]] = {}  # topic without a partition count → subtopologies waiting for its count
        this_round, next_round = list(range(len(subtopologies))), list[int]()
        waiting: set[int] = set()
        while this_round:
            place = heappop(this_round)
            subtopology = subtopologies[place]
            open_sinks = [name for name in subtopology.repartition_sinks if name not in self.decided]
            counts = [
                self.decided[name] if name in self.decided else self.existing[name]
                for name in subtopology.read_topics()
                if name in self.decided or name not in self.repartition_topics
            ]
            if open_sinks and counts:
                waiting.discard(place)
                for name in open_sinks:
                    self.decided[name] = max(counts)
                    for reader in readers.pop(name, ()):
                        if reader in waiting:
                            waiting.remove(reader)
                            heappush(this_round if reader > place else next_round, reader)
            elif open_sinks:
                waiting.add(place)
                for topic in subtopology.repartition_sources:
                    readers.setdefault(topic.name, []).append(place)
            if not this_round:
                this_round, next_round = next_round, []
                heapify(this_round)
        if any(name not in self.decided for place in waiting for name in subtopologies[place].repartition_sinks):
            raise KafkaError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
                "that cannot be resolved.",
            )
        if not self.repartition_topics <= self.decided.keys():
            raise KafkaError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                "Failed to compute number of partitions for all repartition topics, because a repartition source topic "
                "is never used as a sink topic.",
            )

    def _count(self, name: str) -> int:
        """Returns the partition count of a topic. An existing topic keeps its count."""
        return self.existing[name] if name in self.existing else self.decided[name]

    def _align(self, names: Iterable[str], fixed: Mapping[str, int]) -> None:
        """Gives the repartition topics of a copartition group the same partition count. Raises WronglyPartitioned if
        that is impossible."""
        counts = {name: self._count(name) for name in sorted(names, key=compared_as_java_does)}
        external = {name: count for name, count in counts.items() if name not in self.repartition_topics}
        agreed = {name: fixed[name] for name in counts if name in fixed}
        count = _common_count(external or agreed)
        if count is None:
            count = max(counts.values(), default=0)
        for name in in_hash_order(agreed, hash_of_text):
            if agreed[name] != count:
                raise WronglyPartitioned(
                    f"Number of partitions [{agreed[name]}] of repartition topic [{name}] doesn't match number of "
                    f"partitions [{count}] of the source topic."
                )
        for name in counts.keys() - external.keys():
            self.decided[name] = count

    def _size(self, subtopology: Subtopology) -> None:
        """Determines the number of tasks of a subtopology, which is also the partition count of its changelog
        topics."""
        count = max((self._count(name) for name in subtopology.read_topics()), default=0)
        if count == 0:
            raise KafkaError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                f"No source topics found for subtopology {subtopology.subtopology_id}",
            )
        self.task_counts[subtopology.subtopology_id] = count
        for topic in subtopology.changelog_topics:
            self.decided[topic.name] = count


def _names_of(group: CopartitionGroup, subtopology: Subtopology) -> Iterable[str]:
    return {
        *(subtopology.source_topics[index] for index in group.source_topics),
        *(subtopology.repartition_sources[index].name for index in group.repartition_source_topics),
    }


def _common_count(counts: Mapping[str, int]) -> int | None:
    """Returns the partition count that all topics in `counts` have, or None if `counts` is empty. Raises
    WronglyPartitioned if the counts differ."""
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name}={count}" for name, count in counts.items())
        raise WronglyPartitioned(f"Following topics do not have the same number of partitions: [{{{listed}}}]")
    return next(iter(counts.values()), None)
