"""Records of a transaction made durable, before anybody is told that it is a two-phase commit.

An ordinary transaction is acknowledged as the flush settings ask, which may be before any fdatasync. When its new owner
asks for Enable2Pc, the answer promises that what was written so far survives a power failure as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from odradek.broker.runtime.delayed import Deferred
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.partitions.registry import Partitions
    from odradek.protocol.topic_partition import TopicPartition

logger = logging.getLogger("odradek.transactions")

OnSynced = Callable[[KafkaError | None], None]


class PartitionSync(Protocol):
    def sync(self, partitions: Collection[TopicPartition], then: OnSynced) -> None:
        """Calls `then`, maybe at once, when all that these partitions hold by now survives a power failure; with the
        first failure, if there is one. A partition that is gone has nothing to lose."""


class LocalPartitionSync:
    """The partitions of this broker."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def sync(self, partitions: Collection[TopicPartition], then: OnSynced) -> None:
        syncing = Syncing(then)
        for topic, index in sorted(partitions):
            try:
                partition = self._partitions.get(topic, index)
            except KafkaError:
                continue  # its topic was deleted
            syncing.begin()
            partition.flush()
            partition.when_durable(partition.log.log_end_offset, syncing.ended, must_sync=True)
        syncing.ended(None)


class Syncing:
    """Syncs under way. The first one is the caller's own, which ends when all others have begun."""

    def __init__(self, then: OnSynced) -> None:
        self._then = then
        self._missing = 1
        self._failure: KafkaError | None = None

    def begin(self) -> None:
        self._missing += 1

    def ended(self, failure: KafkaError | None) -> None:
        # A topic that is deleted meanwhile takes its records along.
        if failure is not None and failure.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._failure = self._failure or failure
        self._missing -= 1
        if self._missing == 0:
            self._then(self._failure)


async def synced(sync: PartitionSync, partitions: Collection[TopicPartition]) -> None:
    """Waits until these partitions are synced. Raises COORDINATOR_NOT_AVAILABLE if they cannot be, after which
    clients ask again."""
    ended: Deferred[None] = Deferred()
    sync.sync(partitions, ended.settle)
    try:
        await ended
    except KafkaError as failure:
        logger.error("a transaction was not made a two-phase commit, its records cannot be synced: %s", failure)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from None
