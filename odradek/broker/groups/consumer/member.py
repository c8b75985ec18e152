"""A member of a consumer group, with its subscription and its assigned partitions. Members are immutable; replaying a
record creates a changed copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from odradek.broker.groups.common.epochs import Partitions
from odradek.protocol.errors import ErrorCode, KafkaError

Assigned = Mapping[bytes, Mapping[int, int]]
"""Topic id → partition → the epoch at which the member received it (KIP-1251). A topic without partitions is
omitted."""


class MemberState(Enum):
    """A member's progress towards its target. The value is the byte stored in records of type 8."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # the member must give up partitions and has not confirmed the revocation yet
    UNRELEASED_PARTITIONS = 2  # other members still hold partitions of this member's target


@dataclass(frozen=True, slots=True)
class ClassicProtocols:
    """The session timeout and the protocols of a member that uses the classic protocol. `supported` contains the name
    and the metadata of each protocol, in order of preference."""

    session_timeout_ms: int
    supported: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    instance_id: str | None = None  # None for a dynamic member
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""  # an address in Java's format, such as "/127.0.0.1"
    topics: frozenset[str] = frozenset()
    regex: str = ""  # "" if the member has none
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicProtocols | None = None  # None if the member uses the consumer protocol
    # The following fields come from the record of type 8.
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assigned = field(default_factory=dict)
    revoking: Assigned = field(default_factory=dict)

    def require_epoch(self, epoch: int) -> None:
        """Raises KafkaError unless this is the member's epoch.

        The error is STALE_MEMBER_EPOCH, or ILLEGAL_GENERATION for a member that uses the classic protocol, whose epoch
        serves as the generation. Source: docs/spec/consumer-groups.md#s9-1, C6 to C8
        """
        if epoch != self.epoch:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH if self.classic is None else ErrorCode.ILLEGAL_GENERATION)

    @property
    def is_stable(self) -> bool:
        return self.state is MemberState.STABLE

    def holds(self, topic_id: bytes, partition: int) -> bool:
        """Returns whether the member may still be processing this partition, either because it is assigned to the
        member, or because the member has not yet confirmed giving it up."""
        return partition in self.assigned.get(topic_id, ()) or partition in self.revoking.get(topic_id, ())


def partitions_of(assigned: Assigned) -> Partitions:
    return {topic_id: frozenset(partitions) for topic_id, partitions in assigned.items()}


def overlaps(owned: Partitions, partitions: Assigned) -> bool:
    return any(not owned.get(topic_id, frozenset()).isdisjoint(held) for topic_id, held in partitions.items())


def is_within(owned: Partitions, assigned: Assigned) -> bool:
    return all(partitions <= assigned.get(topic_id, {}).keys() for topic_id, partitions in owned.items() if partitions)
