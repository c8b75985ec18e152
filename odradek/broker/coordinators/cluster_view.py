"""The cluster as groups see it: topics of the metadata image, settings of the image and the configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from odradek.broker.configuration.resources import ConfigResourceType
from odradek.broker.configuration.settings import InvalidSetting
from odradek.broker.configuration.settings_table import BROKER_SETTINGS
from odradek.broker.configuration.topic_settings import GROUP_SETTINGS
from odradek.broker.groups.cluster import TopicView
from odradek.broker.patterns.re2 import InvalidPattern, Pattern
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.metadata.image import MetadataImage, TopicImage


class ImageView:
    def __init__(self, image: MetadataImage, broker_setting: Callable[[str], str | None]) -> None:
        """broker_setting: the current value of a broker's setting, as it would stand in a file."""
        self._image = image
        self._broker_setting = broker_setting

    @property
    def version(self) -> int:
        return self._image.topics_version

    def topic(self, name: str) -> TopicView | None:
        return self._view(self._image.topics.get(name))

    def topic_of_id(self, topic_id: bytes) -> TopicView | None:
        return self._view(self._image.topics_by_id.get(topic_id))

    def topic_names(self) -> Iterable[str]:
        return self._image.topics

    def group_setting(self, group_id: str, name: str) -> int:
        setting = GROUP_SETTINGS[name]
        own = self._image.configs.get((ConfigResourceType.GROUP, group_id))
        if own is not None and name in own:
            try:
                value = setting.parse(own[name])
            except InvalidSetting:
                value = None  # recorded by a Kafka that allowed it
            if isinstance(value, int):
                return value
        broker_name = f"group.{name}"
        value = BROKER_SETTINGS[broker_name].parse(self._broker_setting(broker_name))
        assert isinstance(value, int)
        return value

    def pattern(self, text: str) -> Callable[[str], bool]:
        try:
            return Pattern(text).matches
        except InvalidPattern as error:
            what = f"SubscribedTopicRegex `{text}` is not a valid regular expression: {error}."
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, what) from None

    def _view(self, topic: TopicImage | None) -> TopicView | None:
        if topic is None:
            return None
        brokers = self._image.brokers
        return TopicView(
            topic.name,
            topic.topic_id,
            tuple(
                tuple(
                    sorted(
                        {
                            rack
                            for replica in partition.replicas
                            if replica in brokers and (rack := brokers[replica].rack) is not None
                        }
                    )
                )
                for partition in topic.partitions
            ),
        )
