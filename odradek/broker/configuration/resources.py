"""Defines the resource types that have settings, changes to individual settings, and the broker's loggers.

The broker's loggers (KIP-412) are Python loggers that use the names of Kafka's levels. A changed level lasts until the
process exits and is not stored.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from odradek.protocol.errors import ErrorCode, KafkaError


class ConfigResourceType(Enum):
    """The type of a resource in a ConfigRecord. The numbers are those of admin requests."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    __hash__ = object.__hash__  # Enum's own hash is slow, and every request looks up settings


class ConfigOperation(Enum):
    """The operation that IncrementalAlterConfigs performs on a value. The numbers are those of the request."""

    SET = 0
    DELETE = 1
    APPEND = 2  # adds values that the list does not contain
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A change to one setting. AlterConfigs only uses SET. `operation` is the number in the request."""

    name: str
    operation: int
    value: str | None


ROOT = "root"
# Maps the names of Kafka's loggers to loggers of this program. A level can be set under either name.
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
    """Reads and changes the levels of Python's loggers, which are global to the process."""

    def levels(self) -> dict[str, int]:
        """Returns every logger's effective level, keyed by the logger's name. The root logger is named ROOT."""

    def set_level(self, name: str, level: int) -> None: ...


class PythonLoggers:
    def levels(self) -> dict[str, int]:
        known = {name: one for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger)}
        levels = {ROOT: logging.root.level} | {name: one.getEffectiveLevel() for name, one in known.items()}
        return levels | {name: levels[ours] for name, ours in NAMES_OF_KAFKA.items() if ours in levels}

    def set_level(self, name: str, level: int) -> None:
        logging.getLogger(None if name == ROOT else NAMES_OF_KAFKA.get(name, name)).setLevel(level)


def level_name(level: int) -> str:
    """Returns the name of Kafka's highest level that is not above `level`."""
    return max((value, name) for name, value in LEVELS.items() if value <= max(level, 1))[1]


def alter_levels(loggers: Loggers, changes: Sequence[SettingChange], *, validate_only: bool) -> None:
    """Makes all of the changes, or none if any of them is invalid. Raises KafkaError with Kafka's codes and
    messages."""
    known = loggers.levels()
    new_levels: dict[str, int] = {}
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
        new_levels[change.name] = level
    if not validate_only:
        for name, level in new_levels.items():
            loggers.set_level(name, level)
