"""The `simple` assignor of share groups, in which several members may have the same partition.

Each partition is assigned to as many members as needed for every member to have at least one partition. Members keep
their partitions where an even distribution allows it. Source: docs/spec/share-groups.md#s2-4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from odradek.broker.groups.common.epochs import Partitions
from odradek.broker.groups.share.records import pairs_of, partitions_of

NAME = "simple"
P = TypeVar("P")


def assign(
    subscriptions: Mapping[str, frozenset[bytes]], current: Mapping[str, Partitions], initialized: Partitions
) -> dict[str, Partitions]:
    """Computes a target assignment.

    subscriptions  member id → the ids of the existing topics that the member subscribes to
    current        member id → the member's previous target
    initialized    the partitions that can be assigned
    """
    topics = set().union(*subscriptions.values())
    held = {member_id: pairs_of(current.get(member_id, {})) for member_id in subscriptions}
    if all(subscribed == topics for subscribed in subscriptions.values()):
        everything = [pair for pair in pairs_of(initialized) if pair[0] in topics]
        return {member_id: partitions_of(pairs) for member_id, pairs in share_out(everything, held).items()}
    together: dict[str, list[tuple[bytes, int]]] = {member_id: [] for member_id in subscriptions}
    for topic_id in sorted(topics):
        members = [member_id for member_id, subscribed in subscriptions.items() if topic_id in subscribed]
        pairs = [(topic_id, partition) for partition in sorted(initialized.get(topic_id, ()))]
        for member_id, got in share_out(pairs, {each: held[each] for each in members}).items():
            together[member_id] += got
    return {member_id: partitions_of(pairs) for member_id, pairs in together.items()}


def share_out(partitions: Sequence[P], held: Mapping[str, Iterable[P]]) -> dict[str, list[P]]:
    """Distributes partitions evenly. `held` contains the current partitions of each member. If the numbers cannot be
    equal, the order of `held` determines which members get an extra partition."""
    if not partitions or not held:
        return {member_id: [] for member_id in held}
    sharers = -(-len(held) // len(partitions))  # maximum number of members for each partition
    wishes = dict(zip(held, _partitions_per_member(sharers * len(partitions), len(held)), strict=True))
    free = dict.fromkeys(partitions, sharers)
    got: dict[str, list[P]] = {}
    for member_id, before in held.items():
        retained = got[member_id] = []
        for partition in before:
            if len(retained) < wishes[member_id] and free.get(partition, 0) > 0:
                free[partition] -= 1
                retained.append(partition)
    for member_id, wish in wishes.items():
        mine = got[member_id]
        # Partitions with the fewest members come first, so that every partition gets a member.
        for partition in sorted(partitions, key=lambda each: -free[each]):
            if len(mine) >= wish or free[partition] == 0:
                break
            if partition not in mine:
                free[partition] -= 1
                mine.append(partition)
    return got


def _partitions_per_member(places: int, members: int) -> list[int]:
    """Returns the number of partitions for each member. The numbers are differences of rounded sums, so that their
    total is exactly `places`."""
    rounded = [-(-places * number // members) for number in range(members + 1)]
    return [after - before for before, after in pairwise(rounded)]
