"""The input and the output of consumer group assignors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from odradek.broker.groups.common.epochs import Partitions
from odradek.broker.groups.common.java_order import (
    compared_as_java_does,
    hash_of_int,
    hash_of_text,
    hash_of_uuid,
    in_hash_order,
)

TargetAssignment = Mapping[str, Partitions]
"""Member id → its partitions. Contains every member."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member, with the fields that assignors use. `topic_ids` contains only topics that exist. `target` is the
    member's part of the previous target assignment."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[bytes]
    target: Partitions


@dataclass(frozen=True, slots=True)
class GroupView:
    """The input of an assignor. `subscribers` contains the group's members by member id. `partition_counts` contains
    the number of partitions of each subscribed topic, by topic id."""

    subscribers: Mapping[str, Subscriber]
    partition_counts: Mapping[bytes, int]

    @property
    def is_homogeneous(self) -> bool:
        """True if all members are subscribed to the same topics."""
        return len({subscriber.topic_ids for subscriber in self.subscribers.values()}) <= 1

    def in_hash_order(self) -> list[Subscriber]:
        return in_hash_order(self.subscribers.values(), lambda subscriber: hash_of_text(subscriber.member_id))

    def in_id_order(self) -> list[Subscriber]:
        """Returns the static members by instance id, followed by the dynamic members by member id."""
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
    """Sorts topics by hash bucket. Topics in the same bucket keep the given order, so the input must have a
    reproducible order, unlike a set."""
    return in_hash_order(topic_ids, hash_of_uuid)


def partitions_in_hash_order(partitions: frozenset[int]) -> list[int]:
    return in_hash_order(sorted(partitions), hash_of_int)
