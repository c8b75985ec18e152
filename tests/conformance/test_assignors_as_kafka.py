"""Tests that the assignors `uniform` and `range` of consumer groups compute the same assignments as Kafka's.

Each computation starts from the group's previous target. Members, some of them static, join, leave and change their
subscriptions. Topics are created, extended and deleted. Kafka's assignors are also given racks, which make no
difference in these cases.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from random import Random

import pytest

from odradek.broker.groups.consumer.assignors.group_view import GroupView, Subscriber, TargetAssignment
from odradek.broker.groups.consumer.assignors.registry import ASSIGNORS
from tests.conformance.tools import Tools
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

GROUPS, STEPS = 150, 12
SEED = int(os.environ.get("SEED", "0"))


class Life:
    """The history of one group, starting with its first members. `topics` has the partition counts by topic id."""

    def __init__(self, seed: str, assignor: str, *, mixed: bool) -> None:
        self.random = Random(seed)
        self.assignor = assignor
        self.mixed = mixed
        self.topics: dict[bytes, int] = {}
        self.members: dict[str, tuple[str | None, frozenset[bytes]]] = {}
        self.target: TargetAssignment = {}
        self.born = 0
        for _ in range(self.random.randint(1, 4)):
            self.make_topic()
        for _ in range(self.random.randint(1, 6)):
            self.join()

    def make_topic(self) -> None:
        self.topics[self.random.randbytes(16)] = self.random.choice((1, 1, 2, 3, 5, 8, 13, 30))

    def join(self) -> None:
        self.born += 1
        instance = f"i{self.born}" if self.random.random() < 0.3 else None
        member = f"{self.random.randbytes(6).hex()}-{self.born}"
        self.members[member] = (instance, self.subscription())

    def subscription(self) -> frozenset[bytes]:
        known = sorted(self.topics)
        if not self.mixed or not known:
            return frozenset(known)
        return frozenset(self.random.sample(known, self.random.randint(0, len(known))))

    def change(self) -> None:
        match self.random.randrange(7):
            case 0 | 1:
                self.join()
            case 2 | 3 if self.members:
                del self.members[self.random.choice(sorted(self.members))]
            case 4 if self.topics:
                grown = self.random.choice(sorted(self.topics))
                self.topics[grown] += self.random.randint(1, 4)
            case 5:
                self.make_topic()
            case 6 if len(self.topics) > 1:
                del self.topics[self.random.choice(sorted(self.topics))]
            case _:
                pass
        alive = frozenset(self.topics)
        for member, (instance, topics) in self.members.items():
            changes = self.mixed and self.random.random() < 0.2
            subscribed = self.subscription() if changes else topics & alive if self.mixed else alive
            self.members[member] = (instance, subscribed)

    def view(self) -> GroupView:
        subscribers = {
            member: Subscriber(member, instance, topics, self.target.get(member, {}))
            for member, (instance, topics) in self.members.items()
        }
        subscribed = frozenset[bytes]().union(*(topics for _, topics in self.members.values()))
        return GroupView(subscribers, {topic: count for topic, count in self.topics.items() if topic in subscribed})

    def cases(self) -> Iterator[tuple[str, str]]:
        """Yields Kafka's input and the expected output for each step. A step starts from the target of the previous
        step."""
        for _ in range(STEPS):
            view = self.view()
            self.target = ASSIGNORS[self.assignor](view)
            if view.subscribers:
                yield self.input_text(view), target_text(self.target)
            self.change()

    def input_text(self, view: GroupView) -> str:
        fields = [self.assignor, ",".join(f"{topic.hex()}={count}" for topic, count in view.partition_counts.items())]
        for each in view.subscribers.values():
            rack = self.random.choice(("-", "r0", "r1"))
            topics = ",".join(topic.hex() for topic in sorted(each.topic_ids))
            fields += [each.member_id, each.instance_id or "-", rack, topics, words(each.target.items())]
        return "\t".join(fields)


def words(partitions: Iterable[tuple[bytes, frozenset[int]]]) -> str:
    return ",".join(f"{topic.hex()}={'.'.join(map(str, sorted(indexes)))}" for topic, indexes in partitions if indexes)


def target_text(target: TargetAssignment) -> str:
    return "\t".join(
        f"{member}\t{words(sorted(partitions.items()))}" for member, partitions in sorted(target.items()) if partitions
    )


@pytest.mark.parametrize("mixed", [False, True], ids=["same-subscription", "mixed-subscriptions"])
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_the_same_group_is_assigned_alike(tools: Tools, assignor: str, *, mixed: bool) -> None:
    cases = [
        case
        for number in range(GROUPS)
        for case in Life(f"{SEED} {assignor} {mixed} {number}", assignor, mixed=mixed).cases()
    ]
    kafka = tools.run("assign", stdin="".join(f"{input_text}\n" for input_text, _ in cases)).lines
    assert len(kafka) == len(cases) > GROUPS
    differs = [
        (input_text, theirs, ours) for (input_text, ours), theirs in zip(cases, kafka, strict=True) if theirs != ours
    ]
    shown = "\n\n".join(f"{input_text}\n  Kafka: {theirs}\n  ours:  {ours}" for input_text, theirs, ours in differs[:3])
    assert not differs, f"{len(differs)} of {len(cases)} differ\n{shown}"
