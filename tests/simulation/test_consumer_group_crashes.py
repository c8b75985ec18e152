"""Consumer groups (KIP-848) with a crash at every disk call: whatever a member was told holds after the restart.

The members play one story. Wherever the broker dies, they repeat to the next one what was not answered, as clients do,
and go on: nobody is fenced, no partition has two owners, no committed offset is lost, and the story ends as it would.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import dataclass, field

import pytest

from odradek.broker.metadata.supported_features import GROUP_VERSION
from odradek.broker.metadata.topic_creation import internal_topic
from odradek.broker.metadata.topics import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.topic_partition import GROUP_OFFSETS
from tests.simulation.stage import GROUP, Stage
from tests.simulation.transaction_world import NOW_MS
from tests.support.fake_disk import Crashed, FakeDisk

SEED = int(os.environ.get("SEED", "1"))
E = ErrorCode
TOPIC, PARTITIONS = "orders", 6
SESSION_MS, HEARTBEAT_MS = 45_000, 5_000
SETTINGS = {"group_consumer_assignment_interval_ms": "0", "group_initial_rebalance_delay_ms": "0"}


class GroupStage(Stage):
    """With a topic of six partitions, and consumer groups."""

    def __init__(self, disk: FakeDisk | None = None, now_ms: int = NOW_MS) -> None:
        super().__init__(disk, now_ms, settings=SETTINGS)

    def _make_topics(self) -> None:
        offsets = internal_topic(GROUP_OFFSETS, self.config)
        assert offsets is not None
        self.broker.auto_creation.create([NewTopic(TOPIC, PARTITIONS, 1), offsets])
        self.broker.metadata.commit([FeatureLevelRecord(name=GROUP_VERSION, feature_level=1)])


@dataclass(slots=True)
class Member:
    """What it works with is `owned`, by what it was told; what it is told to drop, it drops before it says so."""

    name: str
    topics: list[str] | None = field(default_factory=lambda: [TOPIC])
    regex: str | None = None
    instance: str | None = None
    epoch: int = 0
    owned: set[int] = field(default_factory=set)
    given: set[int] = field(default_factory=set)
    tells_all: bool = True
    is_leaving: bool = False

    def request(self, topic_id: bytes) -> ConsumerGroupHeartbeatRequest:
        self.owned |= self.given
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.name, member_epoch=self.epoch, instance_id=self.instance
        )
        if self.tells_all:
            request.rebalance_timeout_ms = 60_000
            request.subscribed_topic_names = self.topics
            request.subscribed_topic_regex = self.regex
        owned = [TopicPartitions(topic_id=topic_id, partitions=sorted(self.owned))] if self.owned else []
        request.topic_partitions = owned
        self.tells_all = True  # until it is answered
        return request

    @property
    def at_work(self) -> set[int]:
        return self.owned | self.given


class World:
    """The story so far, across the brokers that played it."""

    def __init__(self, disk: FakeDisk) -> None:
        self.stage = GroupStage(disk)
        self.members: dict[str, Member] = {}
        self.committed: int = -1
        self.doubtful: int = -1
        self.done = 0
        self.topic_id = self.stage.broker.metadata.image.topics[TOPIC].topic_id

    def play(self) -> None:
        while self.done < len(STORY):
            STORY[self.done](self)
            self.check()
            self.done += 1

    def fork(self) -> World:
        """For one of several states of the disk: what members know is theirs."""
        other = copy(self)
        other.members = deepcopy(self.members)
        return other

    def restart(self, disk: FakeDisk) -> None:
        self.stage.broker.kill()
        self.stage = GroupStage(disk, self.stage.time.now_ms())
        assert self.offset() in (self.committed, self.doubtful)
        told = {each.name: each.epoch for each in self.members.values() if each.epoch and not each.is_leaving}
        recorded = self.recorded()
        assert all(recorded.get(name, 0) >= epoch for name, epoch in told.items()), f"told {told}, recorded {recorded}"

    # What members do.

    def beat(self, member: Member) -> None:
        answer = self.stage.ask(member.request(self.topic_id), 1)
        if answer.error_code == E.UNRELEASED_INSTANCE_ID.value and member.epoch == 0:
            self.outlast_session(member)
            answer = self.stage.ask(member.request(self.topic_id), 1)
        assert answer.error_code == 0, f"{member.name} at {member.epoch}: {answer.error_message}"
        assert answer.member_epoch >= member.epoch, "an epoch went back"
        member.epoch, member.tells_all, member.given = answer.member_epoch, False, set()
        if answer.assignment is not None:
            given = {index for each in answer.assignment.topic_partitions for index in each.partitions}
            member.owned, member.given = member.owned & given, given

    def outlast_session(self, member: Member) -> None:
        """A static member that was not told of its joining cannot join again, as with Kafka, before it times out."""
        for _ in range(SESSION_MS // HEARTBEAT_MS + 1):
            self.stage.wait(HEARTBEAT_MS)
            for other in self.members.values():
                if other is not member:
                    self.beat(other)

    def leave(self, member: Member, epoch: int) -> None:
        member.is_leaving, member.owned, member.given = True, set(), set()
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=member.name, member_epoch=epoch, instance_id=member.instance
        )
        code = E(self.stage.ask(request, 1).error_code)
        assert code in (E.NONE, E.UNKNOWN_MEMBER_ID), code
        del self.members[member.name]

    def commit(self, member: Member, offset: int) -> None:
        self.doubtful = offset
        wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=GROUP,
            member_id=member.name,
            generation_id_or_member_epoch=member.epoch,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[wanted])],
        )
        assert self.stage.ask(request, 9).topics[0].partitions[0].error_code == 0
        self.committed = offset

    # Looking.

    def offset(self) -> int:
        return self.stage.offset()

    def recorded(self) -> dict[str, int]:
        """Members and their epochs."""
        (group,) = self.stage.ask(ConsumerGroupDescribeRequest(group_ids=[GROUP]), 1).groups
        return {each.member_id: each.member_epoch for each in group.members}

    def check(self) -> None:
        owners: dict[int, str] = {}
        for member in self.members.values():
            for partition in member.at_work:
                other = owners.setdefault(partition, member.name)
                assert other == member.name, f"{partition} is with {other} and {member.name}"


Event = Callable[[World], None]


def steps(name: str, **subscription: object) -> Event:
    """One heartbeat; the first one joins."""

    def event(world: World) -> None:
        member = world.members.get(name)
        if member is None:
            member = world.members[name] = Member(name)
            for key, value in subscription.items():
                setattr(member, key, value)
        world.beat(member)

    return event


def leaves(name: str, epoch: int = -1) -> Event:
    return lambda world: world.leave(world.members[name], epoch)


def commits(name: str, offset: int) -> Event:
    return lambda world: world.commit(world.members[name], offset)


def waits(world: World) -> None:
    """For what timers do, here the expressions."""
    world.stage.wait(100)


def settle(*names: str) -> list[Event]:
    return [steps(name) for _ in range(4) for name in names]


PATTERN: dict[str, object] = {"topics": None, "regex": "ord.*"}
STATIC: dict[str, object] = {"instance": "i"}
STORY: list[Event] = [
    steps("A"),
    commits("A", 3),
    steps("C"),
    *settle("A", "C"),
    commits("A", 5),
    steps("S", **STATIC),
    *settle("A", "C", "S"),
    leaves("S", -2),
    steps("N", **STATIC),
    steps("A"),
    leaves("C"),
    steps("P", **PATTERN),
    waits,
    *settle("A", "N", "P"),
    commits("A", 8),
    leaves("N"),
    *settle("A", "P"),
]


@pytest.fixture(scope="module")
def prepared() -> FakeDisk:
    stage = GroupStage()
    stage.broker.kill()
    return stage.disk.after_kill()


def calls_of(disk: FakeDisk) -> int:
    world = World(disk.after_kill())
    start = world.stage.disk.calls
    world.play()
    world.stage.broker.kill()
    return world.stage.disk.calls - start


def crashed(prepared: FakeDisk, call: int, *, half_write: bool = False) -> World:
    world = World(prepared.after_kill())
    world.stage.disk.crash_before(call, half_write=half_write)
    try:
        world.play()
    except Crashed:
        pass
    else:
        raise AssertionError("it did not crash where it should")
    return world


def goes_on(world: World, disk: FakeDisk, why: str) -> None:
    try:
        world.restart(disk)
        world.play()
        assert sorted(world.members) == ["A", "P"]
        assert sorted(partition for each in world.members.values() for partition in each.owned) == list(range(6))
        assert world.offset() == 8
    except AssertionError as failure:
        raise AssertionError(f"{why}, in event {world.done}: {failure}") from failure
    finally:
        world.stage.broker.kill()


def test_the_story_ends_well_without_a_crash(prepared: FakeDisk) -> None:
    world = World(prepared.after_kill())
    world.play()
    goes_on(world, world.stage.disk.after_kill(), "restarted at the end")


@pytest.mark.parametrize("half_write", [False, True])
def test_a_killed_broker_keeps_what_members_were_told(prepared: FakeDisk, half_write: bool) -> None:
    for call in range(1, calls_of(prepared) + 1):
        world = crashed(prepared, call, half_write=half_write)
        goes_on(world, world.stage.disk.after_kill(), f"killed at call {call}, after {world.stage.disk.log[-2:]}")


def test_a_power_failure_loses_nothing_that_members_were_told(prepared: FakeDisk) -> None:
    for call in range(1, calls_of(prepared) + 1):
        world = crashed(prepared, call)
        for state in world.stage.disk.after_power_failure(SEED + call, random_states=1):
            goes_on(world.fork(), state.disk, f"power failed at call {call}, {state.name}")
