"""One member of a share group: what it asked for, and what it was given. Immutable; records make the next one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

JOIN_EPOCH = 0
LEAVE_EPOCH = -1

Partitions = Mapping[bytes, frozenset[int]]
"""Topic id → partitions; no topic without partitions. Several members may hold the same partition."""


@dataclass(frozen=True, slots=True)
class ShareMember:
    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""  # as Java prints an address: "/127.0.0.1"
    topics: frozenset[str] = frozenset()
    # From key 14.
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = field(default_factory=dict)


def partitions_of(pairs: Iterable[tuple[bytes, int]]) -> Partitions:
    found: dict[bytes, set[int]] = {}
    for topic_id, partition in pairs:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}


def pairs_of(partitions: Partitions) -> list[tuple[bytes, int]]:
    return [(topic_id, partition) for topic_id, indexes in partitions.items() for partition in sorted(indexes)]
