"""Statuses: hints in the response to a heartbeat that is not refused. Source: docs/spec/streams-groups.md#s1-2, W2 and
W3."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class StatusCode(Enum):
    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    # Requires version 1 of the heartbeat: earlier clients terminate when they read this status.
    MISSING_CLIENT_TAGS = 6


class Status(NamedTuple):
    code: StatusCode
    detail: str
