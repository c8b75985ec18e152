"""Topics and group settings for the group cores. In a broker, `broker.coordinators.cluster_view` provides them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from odradek.broker.coordinators.topic_searches import TopicSearches, check_regex
from odradek.broker.groups.common.registry import FoundTopics, TopicView
from odradek.broker.runtime.slices import Steps, run_to_end

T = TypeVar("T")


class FakeCluster:
    def __init__(self, **partition_counts: int) -> None:
        self.version = 0
        self.settings: dict[tuple[str, str], int] = {}  # settings of individual groups
        self.defaults: dict[str, int] = {
            "consumer.session.timeout.ms": 45_000,
            "consumer.heartbeat.interval.ms": 5_000,
            "consumer.assignment.interval.ms": 0,
            "streams.session.timeout.ms": 45_000,
            "streams.heartbeat.interval.ms": 5_000,
            "streams.assignment.interval.ms": 0,
            "streams.initial.rebalance.delay.ms": 0,
            "streams.num.standby.replicas": 0,
            "streams.task.offset.interval.ms": 60_000,
            "streams.acceptable.recovery.lag": 10_000,
        }
        self.texts: dict[str, str] = {}
        self.computes_later = False  # whether `compute_target` leaves each computation to the test
        self.computing: dict[str, Steps[Any]] = {}  # by group: computations that the test has not run yet
        self.forgotten: list[str] = []  # groups whose topic searches have been dropped
        self._topics: dict[str, TopicView] = {}
        self._made = 0
        self._searches = TopicSearches(lambda: (self.version, self._topics))
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

    def group_setting(self, group_id: str, name: str) -> int:
        return self.settings.get((group_id, name), self.defaults[name])

    def group_text(self, group_id: str, name: str) -> str:
        return self.texts.get(name, "")

    def check_regex(self, regex: str) -> None:
        check_regex(regex)

    def check_cost(self, regex: str) -> None:
        self._searches.check_cost(regex)

    def find_topics(
        self, group_id: str, regexes: Collection[str], may_see: Callable[[str], bool]
    ) -> FoundTopics | None:
        return self._searches.find(group_id, regexes, may_see)

    def forget_search(self, group_id: str) -> None:
        self.forgotten.append(group_id)
        self._searches.forget(group_id)

    def compute_target(self, group_id: str, work: int, steps: Steps[T]) -> T | None:
        if not self.computes_later:
            return run_to_end(steps)
        self.computing.setdefault(group_id, steps)
        return None

    def when_computed(self, notify: Callable[[str, Any], None]) -> None:
        """Does nothing, because the test runs the computations (see `computing`)."""

    def when_found(self, notify: Callable[[str], None]) -> None:
        self._searches.when_found(notify)
