"""The input and the output of an assignor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from odradek.broker.groups.common.epochs import Partitions
from odradek.broker.groups.consumer.assignors.java_order import (
    compared_as_java_does,
    hash_of_int,
    hash_of_text,
    hash_of_uuid,
    in_hash_order,
)

TargetAssignment = Mapping[str, Partitions]
"""Member id → its partitions; every member stands in it."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as an assignor sees it. topic_ids: of topics that exist. target: what it had in the last target."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[bytes]
    target: Partitions


@dataclass(frozen=True, slots=True)
class GroupView:
    """partition_counts: by topic id, of all topics that anybody is subscribed to."""

    subscribers: Mapping[str, Subscriber]
    partition_counts: Mapping[bytes, int]

    @property
    def is_homogeneous(self) -> bool:
        """All are subscribed to the same topics."""
        return len({subscriber.topic_ids for subscriber in self.subscribers.values()}) <= 1

    def in_hash_order(self) -> list[Subscriber]:
        return in_hash_order(self.subscribers.values(), lambda subscriber: hash_of_text(subscriber.member_id))

    def in_id_order(self) -> list[Subscriber]:
        """Static members by instance id, then dynamic ones by member id."""
        return sorted(
            self.subscribers.values(),
            key=lambda subscriber: (
                subscriber.instance_id is None,
                compared_as_java_does(
                    subscriber.member_id if subscriber.instance_id is None else subscriber.instance_id
                ),
            ),
        )


def topics_in_hash_order(topic_ids: Iterable[bytes]) -> list[bytes]:
    """Sorts by bucket. Within one the given order stays; it must not be that of a set, which is never the same."""
    return in_hash_order(topic_ids, hash_of_uuid)


def partitions_in_hash_order(partitions: frozenset[int]) -> list[int]:
    return in_hash_order(sorted(partitions), hash_of_int)
