"""Syncs a transaction's records before the owner is notified that the transaction is a two-phase commit.

The records of an ordinary transaction are acknowledged according to the flush settings, possibly before any fdatasync.
When a new owner requests Enable2Pc, the response promises that the records written so far also survive a power failure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from odradek.broker.runtime.waiting import Deferred
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.partitions.registry import Partitions
    from odradek.protocol.topic_partition import TopicPartition

logger = logging.getLogger("odradek.transactions")

OnSynced = Callable[[KafkaError | None], None]


class PartitionSync(Protocol):
    def sync(self, partitions: Collection[TopicPartition], then: OnSynced) -> None:
        """Calls `then` once the current contents of these partitions would survive a power failure (possibly
        immediately), or with the first error. A deleted partition is treated as synced."""


class LocalPartitionSync:
    """Syncs this broker's partitions."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def sync(self, partitions: Collection[TopicPartition], then: OnSynced) -> None:
        syncing = SyncCounter(then)
        for topic, index in sorted(partitions):
            try:
                partition = self._partitions.get(topic, index)
            except KafkaError:
                continue  # the topic has been deleted
            syncing.sync_started()
            partition.flush()
            partition.when_durable(partition.log.log_end_offset, syncing.sync_ended, must_sync=True)
        syncing.sync_ended(None)


class SyncCounter:
    """Counts the syncs in progress. The count starts at one, so that it cannot reach zero before the caller has started
    all syncs. After starting the last sync, the caller must call `sync_ended` once more."""

    def __init__(self, then: OnSynced) -> None:
        self._then = then
        self._missing = 1
        self._failure: KafkaError | None = None

    def sync_started(self) -> None:
        self._missing += 1

    def sync_ended(self, failure: KafkaError | None) -> None:
        # If a topic has been deleted in the meantime, its records need no sync.
        if failure is not None and failure.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._failure = self._failure or failure
        self._missing -= 1
        if self._missing == 0:
            self._then(self._failure)


async def sync_and_wait(sync: PartitionSync, partitions: Collection[TopicPartition]) -> None:
    """Waits until these partitions are synced. Raises COORDINATOR_NOT_AVAILABLE if a sync fails, so that the client
    retries."""
    ended: Deferred[None] = Deferred()
    sync.sync(partitions, ended.complete)
    try:
        await ended
    except KafkaError as failure:
        logger.error("a two-phase commit cannot be prepared, because its records cannot be synced: %s", failure)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from None
