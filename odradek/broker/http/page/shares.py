"""The view of share partitions: in-flight records by state, and the transactions with pending acknowledgements.

A leader keeps a share partition in memory only while members fetch from it. The share coordinator stores the state of
all share partitions. The list shows share partitions in a leader's memory, and the stored state of all other share
partitions. The list therefore includes transactions that have no connected client because the application died or the
broker was restarted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.broker.facts.shares import SharePartitionFacts, facts_in_memory, stored_facts, stored_states
from odradek.broker.http.page.served import SHOWN, Job, JsonValue, Query, View, ViewedBroker, order_of
from odradek.broker.shares.core.state import PendingCount, SharePartitionKey
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.coordinators.shard import Shard
    from odradek.broker.shares.core.state_core import StateCore
    from odradek.broker.shares.leader.live_partition import LiveSharePartition

RANGES_SHOWN = 50
SORTED_BY = ("group", "partition", "start_offset", "next_offset", "behind", "in_flight")
STORED = "stored"  # phase of a share partition that no leader has in memory


async def shares(served: ViewedBroker, query: Query) -> View | Job:
    """Lists share partitions. `find` is a substring of the group id; for `sort` and `from`, see `Order`.

    Unless the query names an order, share partitions with pending acknowledgements come first, then share partitions
    that members fetch from, then all others that have a stored state.
    """
    broker = served.broker
    part, order = query.get("find", ""), order_of(query, SORTED_BY)
    names = {topic_id: each.name for topic_id, each in broker.metadata.image.topics_by_id.items()}
    loading: str | None = None
    pending: dict[SharePartitionKey, None] = {}
    others: dict[SharePartitionKey, None] = {}

    def is_wanted(key: SharePartitionKey) -> bool:
        return part in key.group_id and key.topic_id in names

    def find(shard: Shard[StateCore]) -> None:
        if not shard.is_away:
            pending.update(dict.fromkeys(filter(is_wanted, shard.read_state(lambda core: core.pending_keys))))
            others.update(dict.fromkeys(filter(is_wanted, shard.read_state(lambda core: core.keys))))

    try:
        await served.visit(stored_states(broker), find)
    except KafkaError as error:
        loading = str(error)
    in_memory = {each.key: each for each in broker.shares.loaded_partitions} if broker.has_started("shares") else {}
    keys = pending | dict.fromkeys(filter(is_wanted, in_memory)) | others
    rows: list[dict[str, JsonValue]] = []

    def show(key: SharePartitionKey) -> None:
        live, topic = in_memory.get(key), names[key.topic_id]
        row = stored_row(broker, key, topic) if live is None else share_row(live, topic)
        if row is not None:
            rows.append({**row, "pending": [pending_shown(each) for each in pending_in(broker, key)]})

    await served.visit(list(keys) if order.by else list(keys)[order.start : order.end], show)
    listed: dict[str, JsonValue] = {"total": len(keys), "from": order.start, "loading": loading}
    if not order.by:
        return {**listed, "partitions": rows}
    return lambda: {**listed, "partitions": order.visible_rows(rows)}


def pending_in(broker: Broker, key: SharePartitionKey) -> Sequence[PendingCount]:
    try:
        return broker.share_coordinator.pending_in(key)
    except KafkaError:  # the share coordinator is loading
        return ()


def pending_shown(pending: PendingCount) -> View:
    return {
        "transactional_id": pending.transaction.transactional_id,
        "producer_id": pending.transaction.producer_id,
        "producer_epoch": pending.transaction.producer_epoch,
        "records": pending.record_count,
    }


def share_row(live: LiveSharePartition, topic: str) -> View:
    """Shows a share partition from its leader's memory."""
    head: dict[str, JsonValue] = {
        "group": live.key.group_id,
        "partition": f"{topic}-{live.key.partition}",
        "phase": live.phase.name.lower(),
        "failure": None if live.failure is None else str(live.failure),
        "high_watermark": live.partition.log.high_watermark,
    }
    if not live.is_loaded:
        return head
    flight = live.core.flight
    return {
        **head,
        "next_offset": flight.next_offset,
        "behind": live.partition.log.high_watermark - flight.next_offset,
        "in_flight": flight.size,
        **records_shown(facts_in_memory(live)),
    }


def stored_row(broker: Broker, key: SharePartitionKey, topic: str) -> View | None:
    """Shows a share partition that no leader has in memory, from the state that the share coordinator has stored.

    Returns None if the state has been deleted in the meantime.
    """
    stored = stored_facts(broker, key)
    if stored is None:
        return None
    try:
        high_watermark = broker.partitions.get(topic, key.partition).log.high_watermark
    except KafkaError:
        high_watermark = None
    return {
        "group": key.group_id,
        "partition": f"{topic}-{key.partition}",
        "phase": STORED,
        "failure": None,
        "high_watermark": high_watermark,
        **records_shown(stored),
    }


def records_shown(facts: SharePartitionFacts) -> View:
    """Counts a share partition's records by state and by number of deliveries and shows the first ranges."""
    states: Counter[str] = Counter()
    deliveries: Counter[str] = Counter()
    for each in facts.ranges:
        states[each.state.name] += each.record_count
        deliveries[str(each.delivery_count)] += each.record_count
    return {
        "start_offset": facts.start_offset,
        "states": dict(states),
        "deliveries": dict(deliveries),
        "ranges": [
            {
                "first": each.first_offset,
                "last": each.last_offset,
                "state": each.state.name,
                "deliveries": each.delivery_count,
                "member": each.member_id,
                "lock_until_ms": each.lock_deadline_ms,
                "producer_id": each.producer_id,
            }
            for each in facts.ranges[:RANGES_SHOWN]
        ],
    }


async def pending_by_producer(served: ViewedBroker) -> dict[int, int] | None:
    """Returns the number of pending records by producer id, or None while the share coordinator is loading. Producers
    without pending records are omitted."""
    found: Counter[int] = Counter()
    places: list[tuple[Shard[StateCore], SharePartitionKey]] = []

    def find(shard: Shard[StateCore]) -> None:
        if not shard.is_away:
            places.extend((shard, key) for key in shard.read_state(lambda core: core.pending_keys))

    def add(place: tuple[Shard[StateCore], SharePartitionKey]) -> None:
        shard, key = place
        for each in shard.read_state(lambda core: core.pending_in(key)):
            found[each.transaction.producer_id] += each.record_count

    try:
        await served.visit(stored_states(served.broker), find)
        await served.visit(places, add)
    except KafkaError:
        return None
    return found


def places_of(pending: Sequence[PendingCount], broker: Broker) -> list[JsonValue]:
    """Lists at most SHOWN share partitions in which a transaction has pending records."""
    topics = broker.metadata.image.topics_by_id
    return [
        {
            "group": each.key.group_id,
            "partition": f"{topics[each.key.topic_id].name}-{each.key.partition}",
            "records": each.record_count,
        }
        for each in pending[:SHOWN]
        if each.key.topic_id in topics
    ]
