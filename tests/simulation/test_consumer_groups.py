"""Tests consumer groups with random members and random faults.

Members join, work, stop sending heartbeats, and leave. Responses are lost, writes to the disk fail, and the broker is
killed. After every event, no two members believe that they own the same partition, and epochs never decrease. After the
faults end, every partition gets one owner, and the group becomes Stable.
"""

from __future__ import annotations

from random import Random

import pytest

from odradek.protocol.errors import ErrorCode
from tests.simulation.seeds import seeds
from tests.support.consumer_scene import ConsumerScene, HeartbeatResult
from tests.support.group_scene import NOT_WRITTEN

SEEDS = seeds(150)
EVENTS = 150
SESSION_MS, REBALANCE_MS = 10_000, 20_000
LOST = {ErrorCode.UNKNOWN_MEMBER_ID.value, ErrorCode.FENCED_MEMBER_EPOCH.value, ErrorCode.FENCED_INSTANCE_ID.value}
TOPICS = {"T1": 1, "T3": 3, "T6": 6}


class Consumer:
    """A consumer that behaves like a real one: it works on its last assignment and stops its work on revoked partitions
    before its next heartbeat.

    `owned` contains the partitions that the consumer believes it may work on.
    """

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        self.rng = world.rng
        self.instance = name if self.rng.random() < 0.3 else None
        self.is_alive = False
        self.start_over()

    def start_over(self) -> None:
        self.epoch = 0
        self.owned: set[tuple[str, int]] = set()
        self.given: set[tuple[str, int]] | None = None  # an assignment that the consumer has not adopted
        self.sends_full_heartbeat = True
        self.topics = self.rng.sample(sorted(TOPICS), self.rng.randint(1, 3))

    @property
    def is_in(self) -> bool:
        return self.is_alive and self.epoch > 0

    def step(self) -> None:
        """Adopts the last assignment and sends a heartbeat whose response may be lost."""
        if self.given is not None:
            self.owned, self.given = self.given, None
        scene = self.world.scene
        owned: dict[str, str] = {}
        for topic, partition in sorted(self.owned):
            if scene.cluster.topic(topic) is not None:
                owned[topic] = owned.get(topic, "") + str(partition)
        if self.epoch == 0:
            result = scene.member(self.name, *self.topics, instance=self.instance, timeout_ms=REBALANCE_MS)
        elif self.sends_full_heartbeat:
            result = scene.beat(self.name, self.epoch, owned=owned, topics=self.topics, timeout_ms=REBALANCE_MS)
        else:
            result = scene.beat(self.name, self.epoch, owned=owned)
        if self.world.loses_replies and self.rng.random() < 0.1:
            self.sends_full_heartbeat = True  # The response was lost, so the consumer repeats everything.
            return
        self._apply(result)

    def _apply(self, result: HeartbeatResult) -> None:
        if result.code == NOT_WRITTEN.value:
            self.sends_full_heartbeat = True
        elif result.code in LOST:
            self.start_over()
        elif result.code == ErrorCode.NONE.value:
            assert result.epoch >= self.epoch or self.epoch == 0, "an epoch went back"
            self.epoch, self.sends_full_heartbeat = result.epoch, False
            if result.assignment is not None:
                self.given = partitions(result.assignment)
                self.owned &= self.given  # The consumer stops working before its next heartbeat reports this.

    def leave(self, epoch: int) -> None:
        result = self.world.scene.beat(self.name, epoch, instance=self.instance)
        if result.code == NOT_WRITTEN.value:
            return
        self.is_alive = False
        self.start_over()


def partitions(text: str) -> set[tuple[str, int]]:
    return {
        (topic, int(digit)) for part in text.split(", ") if part for topic, digits in [part.split()] for digit in digits
    }


class World:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.scene = ConsumerScene(topics=TOPICS, interval_ms=self.rng.choice([0, 0, 1_000]))
        self.scene.cluster.defaults["consumer.session.timeout.ms"] = SESSION_MS
        self.consumers = [Consumer(f"c{number}", self) for number in range(5)]
        self.assignor = self.rng.choice(["uniform", "range"])
        self.trace = [f"SEED={seed}"]
        self.epoch = 0
        self.loses_replies = True

    def event(self) -> None:
        rng, consumer = self.rng, self.rng.choice(self.consumers)
        event = rng.choices(
            ["step", "time", "start", "die", "leave", "away", "resubscribe", "topic", "crash", "disk"],
            [50, 12, 12, 5, 4, 4, 5, 4, 3, 4],
        )[0]
        self.trace.append(f"{self.scene.now_ms} {event} {consumer.name}")
        match event:
            case "step":
                for each in rng.sample(self.consumers, rng.randint(1, len(self.consumers))):
                    if each.is_alive:
                        each.step()
            case "time":
                self.scene.advance(rng.choice([1, 500, 1_000, 4_000, 12_000]))
                self.forget_the_dead()
            case "start" if not consumer.is_alive:
                consumer.is_alive = True
                consumer.start_over()
            case "die":
                consumer.is_alive = False  # The process exits, and its work stops.
                consumer.start_over()
            case "leave" if consumer.is_in:
                consumer.leave(-1)
            case "away" if consumer.is_in and consumer.instance is not None:
                consumer.leave(-2)
            case "resubscribe" if consumer.is_in:
                consumer.topics, consumer.sends_full_heartbeat = rng.sample(sorted(TOPICS), rng.randint(1, 3)), True
            case "topic":
                self.change_topics()
            case "crash":
                self.scene.writes_fail = False
                self.scene.restart()
            case "disk":
                self.scene.writes_fail = not self.scene.writes_fail

    def change_topics(self) -> None:
        if self.scene.cluster.topic("T1") is None:
            self.scene.cluster.make("T1", 1)
        elif self.rng.random() < 0.5:
            self.scene.cluster.delete("T1")
            for consumer in self.consumers:
                consumer.owned -= {("T1", 0)}
                if consumer.given is not None:
                    consumer.given -= {("T1", 0)}

    def forget_the_dead(self) -> None:
        """Removes silent consumers. A consumer that receives no response for its session timeout stops on its own,
        because it may no longer be a member."""
        members = self.scene.group_of().members if self.scene.groups() else {}
        for consumer in self.consumers:
            if consumer.is_in and consumer.name not in members:
                consumer.start_over()

    def check(self) -> None:
        owners: dict[tuple[str, int], str] = {}
        for consumer in self.consumers:
            if not consumer.is_alive:
                continue
            at_work = consumer.owned | (consumer.given or set())
            for partition in at_work:
                other = owners.setdefault(partition, consumer.name)
                assert other == consumer.name, f"{partition} is with {other} and {consumer.name}"
        if self.scene.groups():
            group = self.scene.group_of()
            assert group.epoch >= self.epoch or not group.members, "the group's epoch went back"
            self.epoch = group.epoch

    def settle(self) -> None:
        """Stops all faults and lets consumers continue. Revives the first consumer; other dead consumers remain dead.

        A static member that did not receive the response to its join joins again after its session has timed out.
        """
        self.loses_replies = False
        self.scene.writes_fail = False
        self.consumers[0].is_alive = True
        for _ in range(60):
            for consumer in self.consumers:
                if consumer.is_alive:
                    consumer.step()
                    self.check()
            self.scene.advance(500)
            self.forget_the_dead()

    @property
    def living(self) -> list[Consumer]:
        return [consumer for consumer in self.consumers if consumer.is_alive]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_partition_has_one_owner_at_a_time_and_in_the_end_exactly_one(seed: int) -> None:
    world = World(seed)
    try:
        for _ in range(EVENTS):
            world.event()
            world.check()
        world.settle()
        assert world.scene.groups() == {"billing": "Stable"}
        assert set(world.scene.group_of().members) == {consumer.name for consumer in world.living}
        expected = {
            (topic, partition)
            for consumer in world.living
            for topic in consumer.topics
            if world.scene.cluster.topic(topic) is not None
            for partition in range(TOPICS[topic])
        }
        owned = [partition for consumer in world.living for partition in consumer.owned]
        assert sorted(owned) == sorted(expected)
    except AssertionError as failure:
        raise AssertionError("\n".join([*world.trace, str(failure)])) from failure
