"""Tests that group settings are clamped to the broker's current limits, which may have changed after the settings were
made (docs/spec/share-groups.md#s2-6)."""

import pytest

from odradek.broker.configuration.topic_settings import clamp, limit_name

LIMITS = {
    "group.share.min.record.lock.duration.ms": "15000",
    "group.share.max.record.lock.duration.ms": "60000",
}


@pytest.mark.parametrize(("value", "counts"), [(14_999, 15_000), (15_000, 15_000), (60_000, 60_000), (60_001, 60_000)])
def test_a_value_outside_the_limits_counts_as_the_nearest_one(value: int, counts: int) -> None:
    assert clamp("share.record.lock.duration.ms", value, LIMITS.__getitem__) == counts


def test_a_setting_without_limits_is_not_clamped() -> None:
    assert limit_name("share.isolation.level", "min") is None
    assert clamp("share.unheard.of", -5, LIMITS.__getitem__) == -5
