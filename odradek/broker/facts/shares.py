"""Describes the records of share partitions and their states, from a leader's memory or from the share coordinator's
stored state.

A leader keeps a share partition in memory only while members fetch from it. The share coordinator stores the state of
all share partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.shares.core.state import SharePartitionKey, StoredState
from odradek.broker.shares.core.tables import LOADED_STATES, RecordState
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.coordinators.shard import Shard
    from odradek.broker.shares.core.state_core import StateCore
    from odradek.broker.shares.leader.live_partition import LiveSharePartition


class RecordRange(NamedTuple):
    """Adjacent records of a share partition that are in the same state. `producer_id` identifies the transaction in
    which their acknowledgement is pending, and is None if there is no such transaction."""

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int
    member_id: str | None = None
    lock_deadline_ms: int | None = None
    producer_id: int | None = None

    @property
    def record_count(self) -> int:
        return self.last_offset - self.first_offset + 1


def stored_ranges(stored: StoredState) -> Iterator[RecordRange]:
    """Yields the stored ranges of records in ascending order. The share coordinator stores records with a pending
    acknowledgement twice, as pending and as part of an available batch. For these records, only the pending range is
    yielded."""
    pending = [
        RecordRange(
            each.first_offset,
            each.last_offset,
            RecordState.TX_PENDING,
            each.delivery_count,
            each.member_id,
            each.lock_deadline_ms,
            each.producer_id,
        )
        for each in stored.pending
    ]
    found = list(pending)
    at = 0
    for first, last, delivery_state, delivery_count in stored.batches:
        state = LOADED_STATES.get(delivery_state, RecordState.AVAILABLE)
        while at < len(pending) and pending[at].last_offset < first:
            at += 1
        reached, over = first, at
        while over < len(pending) and pending[over].first_offset <= last:
            if pending[over].first_offset > reached:
                found.append(RecordRange(reached, pending[over].first_offset - 1, state, delivery_count))
            reached = pending[over].last_offset + 1
            over += 1
        if reached <= last:
            found.append(RecordRange(reached, last, state, delivery_count))
    return iter(sorted(found, key=lambda each: each.first_offset))


class SharePartitionFacts(NamedTuple):
    """A share partition's records in ascending order. All records before `start_offset` are acknowledged or archived.
    Records outside all ranges are available and have never been delivered."""

    key: SharePartitionKey
    start_offset: int
    ranges: Sequence[RecordRange]

    def at(self, offset: int) -> RecordRange:
        """Returns the range that contains `offset`, which must not be below the start offset."""
        never_delivered = RecordRange(offset, offset, RecordState.AVAILABLE, 0)
        covering = (each for each in self.ranges if each.first_offset <= offset <= each.last_offset)
        return next(covering, never_delivered)


def share_partitions(broker: Broker) -> Iterator[SharePartitionFacts]:
    """Yields the share partitions that leaders have in memory, followed by the stored state of all other share
    partitions."""
    in_memory = set()
    for live in broker.shares.loaded_partitions if broker.has_started("shares") else ():
        if live.is_loaded:
            in_memory.add(live.key)
            yield facts_in_memory(live)
    stored_keys = [
        key for shard in stored_states(broker) if shard.is_loaded for key in shard.read_state(lambda core: core.keys)
    ]
    for key in stored_keys:
        stored = None if key in in_memory else stored_facts(broker, key)
        if stored is not None:
            yield stored


def share_partition(broker: Broker, key: SharePartitionKey) -> SharePartitionFacts | None:
    """Returns the records from the leader's memory or, if no leader has loaded the share partition, from the share
    coordinator. Returns None if the share partition has no state, or while the share coordinator is loading."""
    for live in broker.shares.loaded_partitions if broker.has_started("shares") else ():
        if live.key == key and live.is_loaded:
            return facts_in_memory(live)
    return stored_facts(broker, key)


def facts_in_memory(live: LiveSharePartition) -> SharePartitionFacts:
    """Returns the records of a share partition that its leader has loaded."""
    flight = live.core.flight
    ranges = [
        RecordRange(
            span.first_offset,
            span.last_offset,
            span.state,
            span.delivery_count,
            span.member_id or None,
            span.lock_deadline_ms or None,
            None if span.pending is None else span.pending.transaction.producer_id,
        )
        for span in flight.spans()
    ]
    return SharePartitionFacts(live.key, flight.start_offset, ranges)


def stored_facts(broker: Broker, key: SharePartitionKey) -> SharePartitionFacts | None:
    """Returns the state that the share coordinator stores for a share partition. Returns None if it stores no state for
    this partition, or while it is loading."""
    if not broker.has_started("share_coordinator"):
        return None
    try:
        stored = broker.share_coordinator.shard_for(key).read_state(lambda core: core.stored_state(key))
    except KafkaError:
        return None
    return None if stored is None else SharePartitionFacts(key, stored.start_offset, list(stored_ranges(stored)))


def stored_states(broker: Broker) -> Sequence[Shard[StateCore]]:
    """Returns the share coordinator's shards, or an empty sequence if the share coordinator has never been used."""
    return list(broker.share_coordinator.shards) if broker.has_started("share_coordinator") else ()
