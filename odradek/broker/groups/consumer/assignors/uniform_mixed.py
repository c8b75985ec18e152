"""The `uniform` assignor for groups whose members have different subscriptions.

First, members keep the partitions that they own and are still subscribed to. Then, topic by topic, each unowned
partition goes to the subscriber with the fewest partitions. Finally, in repeated rounds over the topics, partitions
move from the subscribers with the most partitions to the subscribers with the fewest, until further moves no longer
improve the balance. For the same input, Kafka 4.3.1 computes the same result.
"""

from __future__ import annotations

import struct
from collections.abc import Collection

from odradek.broker.groups.consumer.assignors.group_view import GroupView, TargetAssignment, topics_in_hash_order

MAX_ROUNDS = 16  # maximum number of balancing rounds; each round visits all topics
NOBODY = -1
UUID_HALVES = struct.Struct(">qq")  # a UUID as two signed numbers, because Kafka compares UUIDs this way


def assign_mixed(group: GroupView) -> TargetAssignment:
    return MixedAssignment(group).assign()


class MixedAssignment:
    """An assignment being computed. Members are numbered in Kafka's order; `sizes[n]` is the number of partitions that
    member n has so far."""

    def __init__(self, group: GroupView) -> None:
        self._members = group.in_hash_order()
        self._topic_ids = topics_in_hash_order(
            sorted(frozenset[bytes]().union(*(each.topic_ids for each in self._members)))
        )
        self._subscribers: dict[bytes, list[int]] = {topic_id: [] for topic_id in self._topic_ids}
        self._owners = {topic_id: [NOBODY] * group.partition_counts[topic_id] for topic_id in self._topic_ids}
        self.sizes = [0] * len(self._members)
        for number, member in enumerate(self._members):
            for topic_id in member.topic_ids:
                self._subscribers[topic_id].append(number)

    def assign(self) -> TargetAssignment:
        self._retain_current_partitions()
        self._assign_remaining()
        self._balance([topic_id for topic_id in self._topic_ids if len(self._subscribers[topic_id]) > 1])
        assigned: dict[str, dict[bytes, frozenset[int]]] = {member.member_id: {} for member in self._members}
        for topic_id, owners in self._owners.items():
            owned: dict[int, list[int]] = {}
            for partition, owner in enumerate(owners):
                owned.setdefault(owner, []).append(partition)
            owned.pop(NOBODY, None)
            for number, partitions in owned.items():
                assigned[self._members[number].member_id][topic_id] = frozenset(partitions)
        return assigned

    def _retain_current_partitions(self) -> None:
        for number, member in enumerate(self._members):
            for topic_id, partitions in member.target.items():
                if topic_id not in member.topic_ids:
                    continue
                for partition in partitions:
                    if partition < len(self._owners[topic_id]):
                        self._assign_partition(topic_id, partition, number)

    def _assign_remaining(self) -> None:
        for topic_id in self._in_order(self._topic_ids):
            free = [partition for partition, owner in enumerate(self._owners[topic_id]) if owner == NOBODY]
            if free:
                loads = SubscribersByLoad(self._subscribers[topic_id], self.sizes)
                for partition in free:
                    self._assign_partition(topic_id, partition, loads.next_least_loaded())

    def _balance(self, topic_ids: Collection[bytes]) -> None:
        """Balances the topics one by one, in rounds. Stops after a complete round in which no partition has moved, or
        after MAX_ROUNDS rounds."""
        ordered = self._in_order(topic_ids)
        last_moved: int | None = None
        for _ in range(MAX_ROUNDS):
            for place, topic_id in enumerate(ordered):
                if place == last_moved:
                    return
                if self._balance_topic(topic_id) or last_moved is None:
                    last_moved = place

    def _balance_topic(self, topic_id: bytes) -> int:
        """Balances one topic. Returns the number of partitions that have moved."""
        owners = self._owners[topic_id]
        loads = SubscribersByLoad(self._subscribers[topic_id], self.sizes)
        if loads.spread <= 1:
            return 0
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            owned.setdefault(owner, []).append(partition)
        moved = 0
        while not loads.is_balanced:
            giver = loads.next_most_loaded()
            while giver != NOBODY and not owned.get(giver):
                loads.exclude_most_loaded()
                giver = loads.next_most_loaded()
            if giver == NOBODY:
                break
            partition = owned[giver].pop()
            taker = loads.next_least_loaded()
            if loads.is_balanced:
                break
            self._assign_partition(topic_id, partition, taker)
            moved += 1
        return moved

    def _assign_partition(self, topic_id: bytes, partition: int, number: int) -> None:
        owners = self._owners[topic_id]
        if owners[partition] != NOBODY:
            self.sizes[owners[partition]] -= 1
        owners[partition] = number
        self.sizes[number] += 1

    def _in_order(self, topic_ids: Collection[bytes]) -> list[bytes]:
        """Returns the topics in the order in which the assignor handles them.

        The topic with the most partitions per subscriber comes first. Ties go to the topic with fewer subscribers, then
        to the topic with the lower id.
        """

        def key(topic_id: bytes) -> tuple[float, int, tuple[int, int]]:
            count = len(self._subscribers[topic_id])
            high, low = UUID_HALVES.unpack(topic_id)
            return -(len(self._owners[topic_id]) / count), count, (high, low)

        return sorted(topic_ids, key=key)


class SubscribersByLoad:
    """The subscribers of a topic, sorted by load and traversed from both ends while partitions move between them.

    The least loaded subscribers form a range. Each pass over the range gives every subscriber in it one partition, and
    then the range grows to include the subscribers of the next load level. The most loaded subscribers form a similar
    range at the other end, which grows downwards.
    """

    def __init__(self, subscribers: Collection[int], sizes: list[int]) -> None:
        self._sizes = sizes
        self._sorted = sorted(subscribers, key=lambda number: (sizes[number], number))
        self._least_end = 0
        self._least_load = sizes[self._sorted[0]] - 1
        self._next_least = 0
        self._most_start = self._most_end = len(self._sorted)
        self._most_load = sizes[self._sorted[-1]] + 1
        self._next_most = len(self._sorted) - 1
        self.spread = sizes[self._sorted[-1]] - sizes[self._sorted[0]]

    @property
    def is_balanced(self) -> bool:
        return self._most_load - self._least_load <= 1

    def next_least_loaded(self) -> int:
        if self._next_least >= self._least_end:
            self._least_load += 1
            while (
                self._least_end < len(self._sorted) and self._sizes[self._sorted[self._least_end]] == self._least_load
            ):
                self._least_end += 1
            self._next_least = 0
        number = self._sorted[self._next_least]
        self._next_least += 1
        return number

    def next_most_loaded(self) -> int:
        """Returns the next most loaded subscriber, or NOBODY if none is left."""
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                self._most_load = self._sizes[self._sorted[self._most_start - 1]]
            else:
                self._most_load -= 1
            while self._most_start > 0 and self._sizes[self._sorted[self._most_start - 1]] == self._most_load:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return NOBODY
        number = self._sorted[self._next_most]
        self._next_most -= 1
        return number

    def exclude_most_loaded(self) -> None:
        """Excludes the subscriber that `next_most_loaded` returned last, because it has no partition to give away."""
        place, last = self._next_most + 1, self._most_end - 1
        self._sorted[place], self._sorted[last] = self._sorted[last], self._sorted[place]
        self._most_end -= 1
