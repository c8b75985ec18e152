"""Tests that a number with thousands of digits, which Python does not parse, is refused like any other number that is
too large."""

import pytest

from odradek.broker.configuration.settings import InvalidSetting
from odradek.broker.configuration.topic_settings import TOPIC_SETTINGS, duration_ms
from odradek.broker.metadata.config_rules import check_client_metrics
from odradek.protocol.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("digits", ["9" * 5_000, "-" + "9" * 5_000, "9" * 20])
def test_an_integer_that_is_too_long_is_refused(digits: str) -> None:
    with pytest.raises(InvalidSetting, match="Not a number of type LONG") as refused:
        TOPIC_SETTINGS["retention.ms"].parse(digits)
    assert len(str(refused.value)) < 2_100


def test_zeros_before_an_integer_do_not_make_it_too_long() -> None:
    assert TOPIC_SETTINGS["retention.ms"].parse("0" * 5_000 + "42") == 42
    assert TOPIC_SETTINGS["retention.ms"].parse("-" + "0" * 5_000 + "1") == -1
    assert TOPIC_SETTINGS["retention.ms"].parse("9223372036854775807") == 9223372036854775807


@pytest.mark.parametrize("digits", ["9" * 5_000, "1e999"])
def test_a_double_that_is_infinite_is_refused_as_java_writes_it(digits: str) -> None:
    with pytest.raises(InvalidSetting, match="Invalid value Infinity for configuration min"):
        TOPIC_SETTINGS["min.cleanable.dirty.ratio"].parse(digits)


def test_a_duration_of_very_many_digits_is_none() -> None:
    assert duration_ms("P" + "9" * 5_000 + "D") is None


@pytest.mark.parametrize("pattern", ["(" * 20_000, "(" * 20_000 + ")" * 20_000, "a{99999999999999999999}"])
def test_a_pattern_that_pythons_re_gives_up_on_is_invalid(pattern: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_client_metrics("s", {"match": f"client_id={pattern}"})
    assert refused.value.code is ErrorCode.INVALID_CONFIG
