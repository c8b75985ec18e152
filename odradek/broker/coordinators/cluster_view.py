"""The group coordinator's view of the cluster: topics from the metadata image, and settings from the image and the
broker's configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from odradek.broker.configuration.broker_settings import BROKER_SETTINGS
from odradek.broker.configuration.resources import ConfigResourceType
from odradek.broker.configuration.settings import InvalidSetting
from odradek.broker.configuration.topic_settings import GROUP_SETTINGS, clamp
from odradek.broker.coordinators.target_computations import TargetComputations
from odradek.broker.coordinators.topic_searches import TopicSearches, check_regex
from odradek.broker.groups.common.registry import FoundTopics, TopicView

if TYPE_CHECKING:
    from odradek.broker.metadata.image import MetadataImage, TopicImage
    from odradek.broker.runtime.slices import Steps

T = TypeVar("T")

PARSED: Final = 256


@lru_cache(PARSED)
def parse_setting(name: str, text: str | None) -> object:
    """Returns the parsed value of a broker setting. Results are cached because every heartbeat reads two settings.
    Raises InvalidSetting if the value is not valid."""
    return BROKER_SETTINGS[name].parse(text)


class ImageView:
    def __init__(
        self,
        image: MetadataImage,
        broker_setting: Callable[[str], str | None],
        *,
        targets: TargetComputations | None = None,
    ) -> None:
        """Creates a view of a metadata image.

        broker_setting  returns the current value of a broker setting as text
        targets         computes the target assignments of large groups; None to create a new object
        """
        self._image = image
        self._broker_setting = broker_setting
        self._views: dict[bytes, TopicView] = {}  # by topic id; cached because every heartbeat needs its group's topics
        # The topics version and the broker racks that the views were created from.
        self._views_of: tuple[int, list[str | None]] | None = None
        self._searches = TopicSearches(lambda: (image.topics_version, image.topics))
        self._targets = TargetComputations() if targets is None else targets

    @property
    def version(self) -> int:
        return self._image.topics_version

    def topic(self, name: str) -> TopicView | None:
        return self._view(self._image.topics.get(name))

    def topic_of_id(self, topic_id: bytes) -> TopicView | None:
        return self._view(self._image.topics_by_id.get(topic_id))

    def group_setting(self, group_id: str, name: str) -> int:
        setting = GROUP_SETTINGS[name]
        own = self._image.configs.get((ConfigResourceType.GROUP, group_id))
        if own is not None and name in own:
            try:
                value = setting.parse(own[name])
            except InvalidSetting:
                value = None  # stored by a Kafka release that allowed the value
            if isinstance(value, int):
                return clamp(name, value, self._broker_setting)
        broker_name = f"group.{name}"
        default = parse_setting(broker_name, self._broker_setting(broker_name))
        assert isinstance(default, int)
        return default

    def group_text(self, group_id: str, name: str) -> str:
        own = self._image.configs.get((ConfigResourceType.GROUP, group_id), {}).get(name)
        return own if own is not None else self._broker_setting(f"group.{name}") or ""

    def check_regex(self, regex: str) -> None:
        check_regex(regex)

    def check_cost(self, regex: str) -> None:
        self._searches.check_cost(regex)

    def find_topics(
        self, group_id: str, regexes: Collection[str], may_see: Callable[[str], bool]
    ) -> FoundTopics | None:
        return self._searches.find(group_id, regexes, may_see)

    def forget_search(self, group_id: str) -> None:
        self._searches.forget(group_id)

    def when_found(self, notify: Callable[[str], None]) -> None:
        self._searches.when_found(notify)

    def compute_target(self, group_id: str, work: int, steps: Steps[T]) -> T | None:
        return self._targets.compute(group_id, work, steps)

    def when_computed(self, notify: Callable[[str, Any], None]) -> None:
        self._targets.when_computed(notify)

    def _view(self, topic: TopicImage | None) -> TopicView | None:
        if topic is None:
            return None
        brokers = self._image.brokers
        made_of = self._image.topics_version, [each.rack for each in brokers.values()]
        if made_of != self._views_of:
            self._views_of = made_of
            self._views.clear()
        view = self._views.get(topic.topic_id)
        if view is None:
            view = self._views[topic.topic_id] = self._create_view(topic)
        return view

    def _create_view(self, topic: TopicImage) -> TopicView:
        racks = {number: broker.rack for number, broker in self._image.brokers.items() if broker.rack is not None}
        if not racks:  # the common case: no broker has a rack
            return TopicView(topic.name, topic.topic_id, ((),) * len(topic.partitions))
        return TopicView(
            topic.name,
            topic.topic_id,
            tuple(
                tuple(sorted({racks[replica] for replica in partition.replicas if replica in racks}))
                for partition in topic.partitions
            ),
        )
