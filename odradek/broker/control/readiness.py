"""Readiness: the broker is ready when every coordinator has loaded its topic. A partition that cannot be read keeps it
from being ready, because the groups or transactional ids of that partition have no coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from odradek.protocol.topic_partition import GROUP_OFFSETS, TRANSACTION_STATE

if TYPE_CHECKING:
    from odradek.broker.broker import Broker


class Readiness(NamedTuple):
    """`waiting_for`: names of topics whose coordinators are not loaded; `offline`: partitions that cannot be used."""

    waiting_for: tuple[str, ...]
    offline: tuple[str, ...]

    @property
    def is_ready(self) -> bool:
        return not self.waiting_for


def readiness(broker: Broker) -> Readiness:
    topics = broker.metadata.image.topics
    loaded = {
        GROUP_OFFSETS: broker.has_started("groups") and all(shard.is_loaded for shard in broker.groups.shards),
        TRANSACTION_STATE: broker.has_started("transactions") and broker.transactions.is_loaded,
    }
    offline = sorted(broker.partitions.offline)
    damaged = {topic for topic, _ in offline}
    return Readiness(
        waiting_for=tuple(
            topic for topic, is_loaded in loaded.items() if topic in topics and (not is_loaded or topic in damaged)
        ),
        offline=tuple(f"{topic}-{index}" for topic, index in offline),
    )
