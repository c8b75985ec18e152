"""The groups of one `__consumer_offsets` partition by id, and the data that decisions about them depend on.

The caller provides a `ClusterView`, through which decisions read the topics and the groups' own settings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from odradek.broker.groups.common.group import Group
from odradek.broker.groups.common.outcome import GroupConfig
from odradek.broker.groups.offsets import Offsets

T = TypeVar("T")


def half_of(limit: int) -> int:
    """Returns half of the limit, as a fixed substitute for a random number below it."""
    return limit // 2


class GroupRegistry:
    """The groups and their offsets. Requests of all group types read the registry, but only `GroupCore.replay` and
    `GroupCore.settle` change it."""

    __slots__ = ("cluster", "config", "first_epoch", "groups", "offsets", "random_below")

    def __init__(
        self,
        config: GroupConfig,
        cluster: ClusterView,
        first_epoch: Callable[[], int] = int,
        random_below: Callable[[int], int] = half_of,
    ) -> None:
        """Creates an empty registry.

        first_epoch   returns a number that is added to the first epoch or generation of a new group; 0 in Kafka
        random_below  returns a random number from 0 to its argument minus 1
        """
        self.first_epoch = first_epoch
        self.random_below = random_below
        self.config = config
        self.cluster = cluster
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()

    def topic_id_of(self, name: str) -> bytes | None:
        """Returns the id of the topic with this name, or None if the topic does not exist."""
        topic = self.cluster.topic(name)
        return None if topic is None else topic.topic_id


class TopicView(NamedTuple):
    """A topic. For each partition, `partition_racks` lists the racks of its replicas in ascending order."""

    name: str
    topic_id: bytes
    partition_racks: tuple[tuple[str, ...], ...]

    @property
    def partition_count(self) -> int:
        return len(self.partition_racks)


class FoundTopics(NamedTuple):
    """The topics that match each regular expression. `version` is the cluster metadata version when the search
    began."""

    version: int
    topics: Mapping[str, frozenset[str]]


class ClusterView(Protocol):
    @property
    def version(self) -> int:
        """A number that increases whenever a topic is created, deleted or given more partitions."""

    def topic(self, name: str) -> TopicView | None: ...

    def topic_of_id(self, topic_id: bytes) -> TopicView | None: ...

    def group_setting(self, group_id: str, name: str) -> int:
        """Returns the effective value of a numeric setting such as `consumer.session.timeout.ms`: the group's own value
        if it has one, otherwise the broker's."""

    def group_text(self, group_id: str, name: str) -> str:
        """Returns the effective value of a text setting such as `streams.rack.aware.assignment.tags`: the group's own
        value if it has one, otherwise the broker's."""

    def check_regex(self, regex: str) -> None:
        """Raises KafkaError INVALID_REGULAR_EXPRESSION if the expression is not valid."""

    def check_cost(self, regex: str) -> None:
        """Raises KafkaError INVALID_REGULAR_EXPRESSION if matching this expression against the topics has taken too
        long."""

    def find_topics(
        self, group_id: str, regexes: Collection[str], may_see: Callable[[str], bool]
    ) -> FoundTopics | None:
        """Returns, for each expression, the topics whose complete name matches it. The result includes internal topics,
        but no topics that `may_see` rejects.

        Returns None if the search is not finished yet. The group's REGEX timer fires when the result is available, and
        the caller can then call this method again with the same `may_see` object.
        """

    def forget_search(self, group_id: str) -> None:
        """Cancels this group's topic search, or discards its result, because the group no longer needs the topics. Does
        nothing if there is no search."""

    def compute_target(self, group_id: str, work: int, steps: Generator[None, None, T]) -> T | None:
        """Runs a computation and returns its result. If the computation is not finished yet, returns None, and the
        callback of `when_computed` receives the result later. Until then, no other computation for the group starts.

        work   an estimate of the work; determines whether the computation runs immediately or later
        steps  yields periodically so that other requests can be handled, and reads only immutable data
        """

    def when_computed(self, notify: Callable[[str, Any], None]) -> None:
        """Registers a callback for computations that `compute_target` did not finish immediately. The callback receives
        the group's id and the result."""

    def when_found(self, notify: Callable[[str], None]) -> None:
        """Registers a callback for searches that `find_topics` did not finish immediately. The callback receives the
        group's id when the topics have been found."""
