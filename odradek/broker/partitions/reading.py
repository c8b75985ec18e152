"""Isolation levels and the check of the leader epoch: for Fetch, ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.partitions.partition import Partition

NO_EPOCH: Final = -1


class IsolationLevel(Enum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

    @classmethod
    def of(cls, level: int) -> IsolationLevel:
        """Raises UNKNOWN_SERVER_ERROR, as Kafka does, for one that does not exist."""
        try:
            return cls(level)
        except ValueError:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from None


def check_leader_epoch(partition: Partition, current_leader_epoch: int | None) -> None:
    """Raises if the client knows another leadership than ours: an older one (its metadata is stale) or a newer."""
    leader_epoch = partition.log.leader_epoch
    if current_leader_epoch is None or current_leader_epoch == leader_epoch:
        return
    if current_leader_epoch < leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
