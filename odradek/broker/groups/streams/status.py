"""The statuses that heartbeat responses contain to inform members of problems that do not cause an error. Source:
docs/spec/streams-groups.md#s1-2, W2 and W3."""

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
    # Sent only to clients with heartbeat version 1 or later, because earlier clients terminate when they receive this
    # status.
    MISSING_CLIENT_TAGS = 6


class Status(NamedTuple):
    code: StatusCode
    detail: str
