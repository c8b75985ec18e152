"""Topics and group settings for the cores of groups: what `broker.coordinators.cluster_view` shows of a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek.broker.groups.common.registry import TopicView
from odradek.broker.patterns.re2 import InvalidPattern, Pattern
from odradek.protocol.errors import ErrorCode, KafkaError


class FakeCluster:
    def __init__(self, **partition_counts: int) -> None:
        self.version = 0
        self.settings: dict[tuple[str, str], int] = {}  # of one group
        self.defaults: dict[str, int] = {
            "consumer.session.timeout.ms": 45_000,
            "consumer.heartbeat.interval.ms": 5_000,
            "consumer.assignment.interval.ms": 0,
        }
        self._topics: dict[str, TopicView] = {}
        self._made = 0
        for name, count in partition_counts.items():
            self.make(name, count)

    def make(self, name: str, partitions: int, topic_id: bytes | None = None) -> bytes:
        self._made += 1
        topic_id = topic_id or self._made.to_bytes(16, "big")
        self._topics[name] = TopicView(name, topic_id, ((),) * partitions)
        self.version += 1
        return topic_id

    def grow(self, name: str, partitions: int) -> None:
        self._topics[name] = self._topics[name]._replace(partition_racks=((),) * partitions)
        self.version += 1

    def delete(self, name: str) -> None:
        del self._topics[name]
        self.version += 1

    def topic(self, name: str) -> TopicView | None:
        return self._topics.get(name)

    def topic_of_id(self, topic_id: bytes) -> TopicView | None:
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    def topic_names(self) -> Iterable[str]:
        return list(self._topics)

    def group_setting(self, group_id: str, name: str) -> int:
        return self.settings.get((group_id, name), self.defaults[name])

    def pattern(self, text: str) -> Callable[[str], bool]:
        try:
            return Pattern(text).matches
        except InvalidPattern as error:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
