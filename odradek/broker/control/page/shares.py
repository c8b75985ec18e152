"""Share partitions at work: which records are in flight, in which state, and how often they were delivered."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from odradek.broker.control.page.served import SHOWN

if TYPE_CHECKING:
    from odradek.broker.control.page.json_value import JsonValue, View
    from odradek.broker.control.page.served import Query, Served
    from odradek.broker.shares.leader.live_partition import LiveSharePartition

SPANS_SHOWN = 50


async def shares(served: Served, query: Query) -> View:
    """`find`: part of a group id. Only what leaders hold now: a share partition nobody fetches from is not there."""
    broker = served.broker
    if not broker.has_started("shares"):
        return {"total": 0, "partitions": []}
    part = query.get("find", "")
    names = {topic_id: each.name for topic_id, each in broker.metadata.image.topics_by_id.items()}
    live = [each for each in broker.shares.live if part in each.key.group_id and each.key.topic_id in names]
    rows: list[JsonValue] = []
    await served.visit(live[:SHOWN], lambda each: rows.append(row(each, names[each.key.topic_id])))
    return {"total": len(live), "partitions": rows}


def row(live: LiveSharePartition, topic: str) -> JsonValue:
    head: dict[str, JsonValue] = {
        "group": live.key.group_id,
        "partition": f"{topic}-{live.key.partition}",
        "phase": live.phase.name.lower(),
        "failure": None if live.failure is None else str(live.failure),
        "high_watermark": live.partition.log.high_watermark,
    }
    if not live.is_loaded:
        return head
    core = live.core
    spans = list(core.flight.spans())
    states: Counter[str] = Counter()
    deliveries: Counter[str] = Counter()
    for span in spans:
        states[span.state.name] += len(span)
        deliveries[str(span.delivery_count)] += len(span)
    return {
        **head,
        "start_offset": core.flight.start_offset,
        "next_offset": core.flight.next_offset,
        "in_flight": core.flight.size,
        "states": dict(states),
        "deliveries": dict(deliveries),
        "ranges": [
            {
                "first": span.first_offset,
                "last": span.last_offset,
                "state": span.state.name,
                "deliveries": span.delivery_count,
                "member": span.member_id or None,
                "lock_until_ms": span.lock_deadline_ms or None,
                "producer_id": None if span.pending is None else span.pending.transaction.producer_id,
            }
            for span in spans[:SPANS_SHOWN]
        ],
    }
