"""Configuration as admin requests see it: kinds of resources, and one change of one setting."""

from dataclasses import dataclass
from enum import Enum


class ConfigResourceType(Enum):
    """What a ConfigRecord is about; the same numbers as in the admin requests."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    __hash__ = object.__hash__  # Enum's own hashes the name, in Python; settings are looked up with every request


class ConfigOperation(Enum):
    """What IncrementalAlterConfigs does with a value; the number is that of the request."""

    SET = 0
    DELETE = 1
    APPEND = 2  # to a list, what it does not hold yet
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Change:
    """One setting of one resource; AlterConfigs only knows SET. `operation` is the request's number."""

    name: str
    operation: int
    value: str | None
