"""What groups know of the cluster: topics, and their own settings. The shell provides it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol


class TopicView(NamedTuple):
    """partition_racks: per partition, the racks of its replicas in ascending order."""

    name: str
    topic_id: bytes
    partition_racks: tuple[tuple[str, ...], ...]

    @property
    def partition_count(self) -> int:
        return len(self.partition_racks)


class ClusterView(Protocol):
    @property
    def version(self) -> int:
        """Grows whenever a topic is created, deleted or enlarged."""

    def topic(self, name: str) -> TopicView | None: ...

    def topic_of_id(self, topic_id: bytes) -> TopicView | None: ...

    def topic_names(self) -> Iterable[str]:
        """Internal topics included."""

    def group_setting(self, group_id: str, name: str) -> int:
        """The effective value of `consumer.session.timeout.ms` and the like: the group's own, else the broker's."""

    def pattern(self, text: str) -> Callable[[str], bool]:
        """Whether a topic name matches as a whole. Raises KafkaError INVALID_REGULAR_EXPRESSION."""
