"""Tests that durations are parsed as in Java. The refusals and the limits were observed on a running Kafka."""

import pytest

from odradek.broker.configuration.topic_settings import duration_ms


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H", 3_600_000),
        ("pt1h", 3_600_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("+PT1M", 60_000),
        ("-PT1M", -60_000),
        ("-PT-1M", 60_000),
        ("P1DT-23H", 3_600_000),
        ("PT1M-0.5S", 59_500),
        ("PT-0.5S", -500),
        ("PT1.S", 1_000),
        ("PT-0S", 0),
        ("P106751991167300D", 106751991167300 * 86_400_000),
        ("PT9223372036854775807S", 9223372036854775807 * 1_000),
    ],
)
def test_a_duration_is_read(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    ["", "P", "PT", "P1DT", "1H", "PT.5S", "PT0.-5S", "P1W", "P1Y", "P1D1H", "P106751991167301D", f"PT{1 << 63}S"],
)
def test_an_invalid_or_too_long_duration_is_none(text: str) -> None:
    assert duration_ms(text) is None
