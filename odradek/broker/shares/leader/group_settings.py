"""A share group's settings. A group's own settings are the configs of its resource of type GROUP. If a group lacks a
setting, the broker's value or the default applies.

Parsed settings are cached until the group's settings change. `SharePartitionManager` then passes the new settings to
the group's share partitions, so a changed setting takes effect with the next decision.

Source: docs/spec/share-groups.md#s2-6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek.broker.configuration.broker_settings import BROKER_SETTINGS
from odradek.broker.configuration.resources import ConfigResourceType
from odradek.broker.configuration.settings import InvalidSetting
from odradek.broker.configuration.topic_settings import (
    DEAD_LETTER_COPY_RECORD,
    DEAD_LETTER_TOPIC_NAME,
    GROUP_SETTINGS,
    clamp,
)
from odradek.broker.shares.core.in_flight import Limits

if TYPE_CHECKING:
    from odradek.broker.metadata.image import MetadataImage

EARLIEST, LATEST = "earliest", "latest"
READ_COMMITTED: Final = "read_committed"
NO_SETTINGS: Final[Mapping[str, str]] = {}


class _ParsedSettings(NamedTuple):
    """The parsed values of the group settings that affect decisions.

    limits_with_queue  the limits while dead-letter queues are enabled; None if the group has no dead-letter topic
    """

    limits: Limits
    limits_with_queue: Limits | None
    is_read_committed: bool


class ShareGroupSettings:
    def __init__(self, image: MetadataImage, broker_setting: Callable[[str], str | None]) -> None:
        """`broker_setting` returns a broker setting's current value as a string."""
        self._image = image
        self._broker_setting = broker_setting
        self._broker_numbers: dict[str, int] = {}  # parsed broker settings, which can only be set in the broker's file
        self._without_own: _ParsedSettings | None = None  # shared by all groups that have no settings
        self._parsed: dict[str, _ParsedSettings] = {}  # group id → settings, only for groups that have settings

    def changed(self, group_id: str) -> None:
        """Discards the cached settings of a group after its own settings have changed."""
        self._parsed.pop(group_id, None)

    def limits(self, group_id: str) -> Limits:
        parsed = self._parsed_settings(group_id)
        if parsed.limits_with_queue is not None and self._image.has_dead_letter_queues:
            return parsed.limits_with_queue
        return parsed.limits

    def dead_letter_topic(self, group_id: str) -> str:
        """Returns the name of the group's dead-letter topic. The name is blank if the group has none."""
        name = self._group_value(group_id, DEAD_LETTER_TOPIC_NAME)
        assert isinstance(name, str)
        return name

    def copies_dead_letters(self, group_id: str) -> bool:
        """Returns whether copies in the group's dead-letter queue include the record's key and value."""
        return bool(self._group_value(group_id, DEAD_LETTER_COPY_RECORD))

    def lock_duration_ms(self, group_id: str) -> int:
        return self._parsed_settings(group_id).limits.lock_duration_ms

    def is_read_committed(self, group_id: str) -> bool:
        return self._parsed_settings(group_id).is_read_committed

    def _parsed_settings(self, group_id: str) -> _ParsedSettings:
        parsed = self._parsed.get(group_id)
        if parsed is None:
            if (ConfigResourceType.GROUP, group_id) in self._image.configs:
                parsed = self._parsed[group_id] = self._parse(group_id)
            elif self._without_own is None:
                parsed = self._without_own = self._parse(group_id)
            else:
                parsed = self._without_own
        return parsed

    def _parse(self, group_id: str) -> _ParsedSettings:
        limits = Limits(
            delivery_count_limit=self._number(group_id, "share.delivery.count.limit"),
            max_record_locks=self._number(group_id, "share.partition.max.record.locks"),
            lock_duration_ms=self._number(group_id, "share.record.lock.duration.ms"),
            renew_enabled=bool(self._group_value(group_id, "share.renew.acknowledge.enable")),
        )
        has_queue = bool(self.dead_letter_topic(group_id).strip())
        with_queue = limits._replace(has_dead_letter_queue=True) if has_queue else None
        return _ParsedSettings(
            limits, with_queue, bool(self._group_value(group_id, "share.isolation.level") == READ_COMMITTED)
        )

    def auto_offset_reset(self, group_id: str) -> str:
        """Returns `earliest`, `latest`, or `by_duration:` followed by a duration."""
        value = self._group_value(group_id, "share.auto.offset.reset")
        assert isinstance(value, str)
        return value

    def _group_value(self, group_id: str, name: str) -> Any:
        """Returns the group's own value, or the setting's default if the group has no value."""
        setting = GROUP_SETTINGS[name]
        text = self._image.configs.get((ConfigResourceType.GROUP, group_id), NO_SETTINGS).get(name)
        if text is not None:
            try:
                return setting.parse(text)
            except InvalidSetting:
                pass  # the value was recorded by a Kafka release that allowed it
        return setting.parse(setting.default)

    def _number(self, group_id: str, name: str) -> int:
        """Returns the group's own value, or the broker's value if the group has none."""
        own = self._image.configs.get((ConfigResourceType.GROUP, group_id))
        if own is not None and name in own:
            return clamp(name, self._group_value(group_id, name), self._broker_setting)
        if name not in self._broker_numbers:
            broker_name = f"group.{name}"
            value = BROKER_SETTINGS[broker_name].parse(self._broker_setting(broker_name))
            assert isinstance(value, int)
            self._broker_numbers[name] = value
        return self._broker_numbers[name]
