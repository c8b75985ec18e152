"""A member of a streams group, with the information that it has sent and its assigned tasks. Members are immutable;
replaying a record creates a changed copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from odradek.broker.groups.streams.tasks import HeldTasks
from odradek.protocol.errors import ErrorCode, KafkaError


class StreamsMemberState(Enum):
    """A member's progress towards its target. The value is the byte stored in records of type 22."""

    STABLE = 1
    UNREVOKED_TASKS = 2  # the member must give up tasks and has not confirmed the revocation yet
    UNRELEASED_TASKS = 3  # other members still hold tasks of this member's target


class Endpoint(NamedTuple):
    """The address at which a member's application serves interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """A member of a streams group.

    topology_epoch  the epoch of the topology with which the member joined
    process_id      identifies the application instance; each of its threads is a separate member
    """

    member_id: str
    instance_id: str | None = None  # None for a dynamic member
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""  # an address in Java's format, such as "/127.0.0.1"
    rebalance_timeout_ms: int = -1
    topology_epoch: int = 0
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    # The following fields come from the record of type 22.
    epoch: int = 0
    previous_epoch: int = 0
    state: StreamsMemberState = StreamsMemberState.STABLE
    assigned: HeldTasks = field(default_factory=HeldTasks)
    revoking: HeldTasks = field(default_factory=HeldTasks)

    def require_epoch(self, epoch: int) -> None:
        """Raises STALE_MEMBER_EPOCH unless this is the member's epoch."""
        if epoch != self.epoch:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    @property
    def is_stable(self) -> bool:
        return self.state is StreamsMemberState.STABLE
