"""The groups of one `__consumer_offsets` partition by id, and the data on which decisions about them depend.

The caller provides the `ClusterView`: the topics, and the groups' own settings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from odradek.broker.groups.common.group import Group
from odradek.broker.groups.common.outcome import GroupConfig
from odradek.broker.groups.offsets import Offsets

T = TypeVar("T")


def half_of(limit: int) -> int:
    """Returns the middle of the range from which a random number would be drawn."""
    return limit // 2


class GroupRegistry:
    """The groups and offsets. Only `GroupCore.replay` and `GroupCore.settle` change them; requests of all types read
    them."""

    __slots__ = ("cluster", "config", "first_epoch", "groups", "offsets", "random_below")

    def __init__(
        self,
        config: GroupConfig,
        cluster: ClusterView,
        first_epoch: Callable[[], int] = int,
        random_below: Callable[[int], int] = half_of,
    ) -> None:
        """
        first_epoch   returns a number that is added to the first epoch or generation of a new group; 0 in Kafka
        random_below  returns a random number from 0 to its argument - 1
        """
        self.first_epoch = first_epoch
        self.random_below = random_below
        self.config = config
        self.cluster = cluster
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()

    def topic_id_of(self, name: str) -> bytes | None:
        """Returns the topic's id, or None if the topic does not exist."""
        topic = self.cluster.topic(name)
        return None if topic is None else topic.topic_id


class TopicView(NamedTuple):
    """A topic. `partition_racks` has, for each partition, the racks of its replicas in ascending order."""

    name: str
    topic_id: bytes
    partition_racks: tuple[tuple[str, ...], ...]

    @property
    def partition_count(self) -> int:
        return len(self.partition_racks)


class FoundTopics(NamedTuple):
    """The topics that match each regular expression. `version` is the version of the topics when the search began."""

    version: int
    topics: Mapping[str, frozenset[str]]


class ClusterView(Protocol):
    @property
    def version(self) -> int:
        """A number that increases whenever a topic is created, deleted or enlarged."""

    def topic(self, name: str) -> TopicView | None: ...

    def topic_of_id(self, topic_id: bytes) -> TopicView | None: ...

    def group_setting(self, group_id: str, name: str) -> int:
        """Returns the effective value of e.g. `consumer.session.timeout.ms`: the group's own value, or else the
        broker's."""

    def group_text(self, group_id: str, name: str) -> str:
        """Returns the effective value of e.g. `streams.rack.aware.assignment.tags`, like `group_setting`."""

    def check_regex(self, regex: str) -> None:
        """Raises KafkaError INVALID_REGULAR_EXPRESSION if this is not a valid regular expression."""

    def check_cost(self, regex: str) -> None:
        """Raises KafkaError INVALID_REGULAR_EXPRESSION if matching the topics has taken too long."""

    def find_topics(
        self, group_id: str, regexes: Collection[str], may_see: Callable[[str], bool]
    ) -> FoundTopics | None:
        """Returns the topics whose complete name matches each expression, including internal topics, limited to those
        that `may_see` allows. Returns None if the search takes longer. The group's REGEX timer then fires when the
        result is available, and the caller can call this method again, with the same object `may_see`."""

    def forget_search(self, group_id: str) -> None:
        """Gives up the search for the topics of this group, or drops its result, because the group needs it no longer.
        Does nothing if there is no search."""

    def compute_target(self, group_id: str, work: int, steps: Generator[None, None, T]) -> T | None:
        """Returns the result of a computation. Returns None if the computation takes longer; the callback of
        `when_computed` then receives the result. Until then no other computation for the group is begun.

        work   the number of things to assign, which decides whether the computation runs immediately or later
        steps  yields periodically so that other requests can be served, and reads only immutable data
        """

    def when_computed(self, notify: Callable[[str, Any], None]) -> None:
        """Registers `notify`, which receives the id of each group and the result of its computation after
        `compute_target` returned None."""

    def when_found(self, notify: Callable[[str], None]) -> None:
        """Registers `notify`, which receives the id of each group whose topics have been found after `find_topics`
        returned None."""
