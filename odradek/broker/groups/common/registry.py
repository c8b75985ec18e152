"""The groups of one `__consumer_offsets` partition by id, and the data that decisions about them depend on.

The shell provides the view of the cluster: topics, and the groups' own settings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from odradek.broker.groups.common.group import Group
from odradek.broker.groups.common.outcome import GroupConfig
from odradek.broker.groups.offsets import Offsets


class GroupRegistry:
    """State. Changed by `GroupCore.replay` and `GroupCore.settle` only; requests of every type read it."""

    __slots__ = ("cluster", "config", "first_epoch", "groups", "offsets")

    def __init__(self, config: GroupConfig, cluster: ClusterView, first_epoch: Callable[[], int] = int) -> None:
        """first_epoch: gives what is added to the first epoch, or generation, of a new group; 0 in Kafka"""
        self.first_epoch = first_epoch
        self.config = config
        self.cluster = cluster
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()

    def topic_id_of(self, name: str) -> bytes | None:
        """None: there is no such topic."""
        topic = self.cluster.topic(name)
        return None if topic is None else topic.topic_id


class TopicView(NamedTuple):
    """partition_racks: per partition, the racks of its replicas in ascending order."""

    name: str
    topic_id: bytes
    partition_racks: tuple[tuple[str, ...], ...]

    @property
    def partition_count(self) -> int:
        return len(self.partition_racks)


class FoundTopics(NamedTuple):
    """Topics by regular expression. version: of the cluster's topics when the search for them began"""

    version: int
    topics: Mapping[str, frozenset[str]]


class ClusterView(Protocol):
    @property
    def version(self) -> int:
        """Grows whenever a topic is created, deleted or enlarged."""

    def topic(self, name: str) -> TopicView | None: ...

    def topic_of_id(self, topic_id: bytes) -> TopicView | None: ...

    def group_setting(self, group_id: str, name: str) -> int:
        """The effective value of `consumer.session.timeout.ms` and the like: the group's own, else the broker's."""

    def check_regex(self, regex: str) -> None:
        """Raises KafkaError INVALID_REGULAR_EXPRESSION if this is no regular expression."""

    def check_cost(self, regex: str) -> None:
        """Raises KafkaError INVALID_REGULAR_EXPRESSION if matching the topics turned out to take too long."""

    def find_topics(
        self, group_id: str, regexes: Collection[str], may_see: Callable[[str], bool]
    ) -> FoundTopics | None:
        """Returns the topics that each expression matches as a whole, internal ones included, as far as `may_see`
        allows; None if that takes longer. Then the group's REGEX timer fires when they are known; ask again.
        """

    def when_found(self, notify: Callable[[str], None]) -> None:
        """notify: gets the id of each group for which `find_topics` returned None, once its topics are known"""
