"""Configuration as admin requests see it: kinds of resources, one change of one setting, and loggers as a resource.

The broker's own loggers (KIP-412) are Python's under Kafka's level names. A change of them lasts as long as the
process; nothing is recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from odradek.protocol.errors import ErrorCode, KafkaError


class ConfigResourceType(Enum):
    """The kind of resource of a ConfigRecord; the same numbers as in the admin requests."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    __hash__ = object.__hash__  # Enum's own hashes the name, in Python; settings are looked up with every request


class ConfigOperation(Enum):
    """The operation of IncrementalAlterConfigs on a value; the number is that of the request."""

    SET = 0
    DELETE = 1
    APPEND = 2  # to a list, what it does not hold yet
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One setting of one resource; AlterConfigs only knows SET. `operation` is the request's number."""

    name: str
    operation: int
    value: str | None


ROOT = "root"
# Loggers that people know from Kafka → those of this program; they can be set under either name.
NAMES_OF_KAFKA = {"kafka.authorizer.logger": "odradek.authorizer"}
LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": logging.NOTSET + 1,
    "WARN": logging.WARNING,
}


class Loggers(Protocol):
    """The seam to `logging`, whose state is global."""

    def levels(self) -> dict[str, int]:
        """The effective level of every logger, by name; the root logger is ROOT."""

    def set_level(self, name: str, level: int) -> None: ...


class PythonLoggers:
    def levels(self) -> dict[str, int]:
        known = {name: one for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger)}
        levels = {ROOT: logging.root.level} | {name: one.getEffectiveLevel() for name, one in known.items()}
        return levels | {name: levels[ours] for name, ours in NAMES_OF_KAFKA.items() if ours in levels}

    def set_level(self, name: str, level: int) -> None:
        logging.getLogger(None if name == ROOT else NAMES_OF_KAFKA.get(name, name)).setLevel(level)


def level_name(level: int) -> str:
    """The nearest of Kafka's names that logs at least as much."""
    return max((value, name) for name, value in LEVELS.items() if value <= max(level, 1))[1]


def alter_levels(loggers: Loggers, changes: Sequence[SettingChange], *, validate_only: bool) -> None:
    """All changes, or none. Raises KafkaError in Kafka's codes and words."""
    known = loggers.levels()
    wanted: dict[str, int] = {}
    for change in changes:
        match ConfigOperation(change.operation):
            case ConfigOperation.SET:
                level = LEVELS.get(change.value or "")
                if level is None:
                    valid = ", ".join(LEVELS)
                    what = f"Cannot set the log level of {change.name} to {change.value}"
                    why = f"it is not a supported log level. Valid log levels are {valid}"
                    raise KafkaError(ErrorCode.INVALID_CONFIG, f"{what} as {why}")
            case ConfigOperation.DELETE:
                if change.name == ROOT:
                    what = "Removing the log level of the root logger is not allowed"
                    raise KafkaError(ErrorCode.INVALID_REQUEST, what)
                level = logging.NOTSET
            case operation:
                what = f"{operation.name} operation is not allowed for the BROKER_LOGGER resource"
                raise KafkaError(ErrorCode.INVALID_REQUEST, what)
        if change.name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
        wanted[change.name] = level
    if not validate_only:
        for name, level in wanted.items():
            loggers.set_level(name, level)
