"""Tests the broker's loggers as a config resource, which maps Kafka's level names to Python's loggers."""

import logging

import pytest

from odradek.broker.configuration.resources import ROOT, PythonLoggers, SettingChange, alter_levels, level_name
from odradek.protocol.errors import ErrorCode, KafkaError

SET, DELETE, APPEND, SUBTRACT = range(4)


class Levels:
    def __init__(self, **levels: int) -> None:
        self.level_by_name = {ROOT: logging.INFO, **levels}

    def levels(self) -> dict[str, int]:
        return dict(self.level_by_name)

    def set_level(self, name: str, level: int) -> None:
        self.level_by_name[name] = level


def refusal(change: SettingChange) -> tuple[ErrorCode, str | None]:
    with pytest.raises(KafkaError) as refused:
        alter_levels(Levels(mine=logging.INFO), [change], validate_only=False)
    return refused.value.code, refused.value.message


def test_a_level_is_set_and_unset() -> None:
    loggers = Levels(mine=logging.INFO)
    alter_levels(loggers, [SettingChange("mine", SET, "DEBUG"), SettingChange(ROOT, SET, "ERROR")], validate_only=False)
    assert loggers.level_by_name == {ROOT: logging.ERROR, "mine": logging.DEBUG}
    alter_levels(loggers, [SettingChange("mine", DELETE, None)], validate_only=False)
    assert loggers.level_by_name["mine"] == logging.NOTSET


def test_validating_changes_nothing() -> None:
    loggers = Levels()
    alter_levels(loggers, [SettingChange(ROOT, SET, "DEBUG")], validate_only=True)
    assert loggers.level_by_name == {ROOT: logging.INFO}


def test_all_changes_are_made_or_none() -> None:
    loggers = Levels(mine=logging.INFO)
    with pytest.raises(KafkaError):
        alter_levels(
            loggers, [SettingChange("mine", SET, "DEBUG"), SettingChange("nobody", SET, "DEBUG")], validate_only=False
        )
    assert loggers.level_by_name["mine"] == logging.INFO


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (SettingChange("nobody", SET, "DEBUG"), ErrorCode.INVALID_CONFIG, "Logger nobody does not exist!"),
        (
            SettingChange("mine", SET, "info"),
            ErrorCode.INVALID_CONFIG,
            (
                "Cannot set the log level of mine to info as it is not a supported log level. "
                "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
            ),
        ),
        (
            SettingChange(ROOT, DELETE, None),
            ErrorCode.INVALID_REQUEST,
            "Removing the log level of the root logger is not allowed",
        ),
        (
            SettingChange("mine", APPEND, "X"),
            ErrorCode.INVALID_REQUEST,
            "APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
    ],
)
def test_an_invalid_change_of_a_logger_is_refused(change: SettingChange, code: ErrorCode, words: str) -> None:
    assert refusal(change) == (code, words)


@pytest.mark.parametrize(
    ("level", "name"),
    [
        (0, "TRACE"),
        (1, "TRACE"),
        (10, "DEBUG"),
        (15, "DEBUG"),
        (20, "INFO"),
        (30, "WARN"),
        (40, "ERROR"),
        (50, "FATAL"),
    ],
)
def test_a_level_is_shown_under_the_name_of_the_next_lower_one(level: int, name: str) -> None:
    assert level_name(level) == name


def test_python_loggers_are_found_by_name() -> None:
    logger = logging.getLogger("odradek.test.loggers")
    loggers = PythonLoggers()
    loggers.set_level("odradek.test.loggers", logging.ERROR)
    assert loggers.levels()["odradek.test.loggers"] == logging.ERROR
    loggers.set_level("odradek.test.loggers", logging.NOTSET)
    assert logger.level == logging.NOTSET
    assert ROOT in loggers.levels()
