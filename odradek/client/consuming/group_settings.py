"""How a consumer takes part in its group."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

LEAVE_TIMEOUT_MS = 5_000


class GroupProtocol(Enum):
    """Who computes the assignment (`group.protocol`): a member of the group, or the coordinator (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """By Kafka's names. `assignors` by preference, of the classic protocol; `remote_assignor` of the other one."""

    group_id: str
    group_instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: float
    max_poll_interval_ms: int
    assignors: tuple[str, ...]
    protocol: GroupProtocol = GroupProtocol.CLASSIC
    remote_assignor: str | None = None
    client_rack: str | None = None
