"""Streams groups (KIP-1071) with a crash at every disk call: whatever a member was told holds after the restart.

The members play one story. Wherever the broker dies, they repeat to the next one what was not answered, as clients do,
and go on: no task has two owners, no committed offset is lost, and the story ends as it would. A member is fenced only
if the answer that was lost made its standby tasks active ones, as Kafka does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import dataclass, field

import pytest

from odradek.broker.metadata.supported_features import STREAMS_VERSION
from odradek.broker.metadata.topic_creation import internal_topic
from odradek.broker.metadata.topics import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from odradek.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from odradek.protocol.topic_partition import GROUP_OFFSETS
from tests.simulation.stage import GROUP, Stage
from tests.simulation.test_streams_groups import Task, task_ids, tasks_of
from tests.simulation.transaction_world import NOW_MS
from tests.support.fake_disk import Crashed, FakeDisk

SEED = int(os.environ.get("SEED", "1"))
E = ErrorCode
TOPIC, PARTITIONS = "orders", 4
SESSION_MS, HEARTBEAT_MS = 45_000, 5_000
SETTINGS = {
    "group_initial_rebalance_delay_ms": "0",
    "group_streams_initial_rebalance_delay_ms": "0",
    "group_streams_assignment_interval_ms": "0",
    "group_streams_num_standby_replicas": "1",
}
TOPOLOGY = Topology(
    epoch=0,
    subtopologies=[
        Subtopology(
            subtopology_id="0", source_topics=[TOPIC], state_changelog_topics=[TopicInfo(name="counts-changelog")]
        )
    ],
)
TASKS = {("0", index) for index in range(PARTITIONS)}


class StreamsStage(Stage):
    """A broker with a topic of four partitions."""

    def __init__(self, disk: FakeDisk | None = None, now_ms: int = NOW_MS) -> None:
        super().__init__(disk, now_ms, settings=SETTINGS)

    def _make_topics(self) -> None:
        offsets = internal_topic(GROUP_OFFSETS, self.config)
        assert offsets is not None
        self.broker.auto_creation.create([NewTopic(TOPIC, PARTITIONS, 1), offsets])
        self.broker.metadata.commit([FeatureLevelRecord(name=STREAMS_VERSION, feature_level=1)])


@dataclass(slots=True)
class Member:
    """It works with `active` and `standby`, as it was told; what it is told to drop, it drops before it says so."""

    name: str
    instance: str | None = None
    epoch: int = 0
    active: set[Task] = field(default_factory=set)
    standby: set[Task] = field(default_factory=set)
    tells_all: bool = True
    is_leaving: bool = False

    def request(self) -> StreamsGroupHeartbeatRequest:
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.name, member_epoch=self.epoch, instance_id=self.instance
        )
        if self.epoch == 0:
            request.topology = TOPOLOGY
        if self.tells_all:
            request.rebalance_timeout_ms = 60_000
            request.process_id = f"process of {self.instance or self.name}"
            request.active_tasks = task_ids(self.active)
            request.standby_tasks = task_ids(self.standby)
            request.warmup_tasks = []
        self.tells_all = True  # until it is answered
        return request


class World:
    """The story so far, across the brokers that played it."""

    def __init__(self, disk: FakeDisk) -> None:
        self.stage = StreamsStage(disk)
        self.members: dict[str, Member] = {}
        self.committed: int = -1
        self.doubtful: int = -1
        self.done = 0

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
        self.stage = StreamsStage(disk, self.stage.time.now_ms())
        assert self.stage.offset() in (self.committed, self.doubtful)
        told = {each.name: each.epoch for each in self.members.values() if each.epoch and not each.is_leaving}
        recorded = self.recorded()
        assert all(recorded.get(name, 0) >= epoch for name, epoch in told.items()), f"told {told}, recorded {recorded}"

    # What members do.

    def beat(self, member: Member) -> None:
        answer = self.stage.ask(member.request(), 1)
        if answer.error_code == E.UNRELEASED_INSTANCE_ID.value and member.epoch == 0:
            self.outlast_session(member)
            answer = self.stage.ask(member.request(), 1)
        if answer.error_code == E.FENCED_MEMBER_EPOCH.value and member.standby:
            member.epoch, member.active, member.standby = 0, set(), set()
            answer = self.stage.ask(member.request(), 1)
        assert answer.error_code == 0, f"{member.name} at {member.epoch}: {answer.error_message}"
        assert answer.member_epoch >= member.epoch, "an epoch went back"
        member.epoch, member.tells_all = answer.member_epoch, answer.active_tasks is not None
        if answer.active_tasks is not None:
            member.active, member.standby = tasks_of(answer.active_tasks), tasks_of(answer.standby_tasks)

    def outlast_session(self, member: Member) -> None:
        """A static member that was not told of its joining cannot join again, as with Kafka, before it times out."""
        for _ in range(SESSION_MS // HEARTBEAT_MS + 1):
            self.stage.wait(HEARTBEAT_MS)
            for other in self.members.values():
                if other is not member:
                    self.beat(other)

    def leave(self, member: Member, epoch: int) -> None:
        member.is_leaving, member.active, member.standby = True, set(), set()
        request = StreamsGroupHeartbeatRequest(
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

    def recorded(self) -> dict[str, int]:
        """Members and their epochs."""
        (group,) = self.stage.ask(StreamsGroupDescribeRequest(group_ids=[GROUP]), 1).groups
        return {each.member_id: each.member_epoch for each in group.members}

    def check(self) -> None:
        owners: dict[Task, str] = {}
        for member in self.members.values():
            assert not member.active & member.standby
            for task in member.active:
                other = owners.setdefault(task, member.name)
                assert other == member.name, f"{task} is with {other} and {member.name}"


Event = Callable[[World], None]


def steps(name: str, instance: str | None = None) -> Event:
    """One heartbeat; the first one joins."""

    def event(world: World) -> None:
        member = world.members.get(name)
        if member is None:
            member = world.members[name] = Member(name, instance)
        world.beat(member)

    return event


def leaves(name: str, epoch: int = -1) -> Event:
    return lambda world: world.leave(world.members[name], epoch)


def commits(name: str, offset: int) -> Event:
    return lambda world: world.commit(world.members[name], offset)


def waits(world: World) -> None:
    """For topics that are made."""
    world.stage.wait(100)


def settle(*names: str) -> list[Event]:
    return [steps(name) for _ in range(5) for name in names]


STORY: list[Event] = [
    steps("A"),
    waits,
    steps("A"),
    commits("A", 3),
    steps("C"),
    *settle("A", "C"),
    commits("A", 5),
    steps("S", "i"),
    *settle("A", "C", "S"),
    leaves("S", -2),
    steps("N", "i"),
    steps("A"),
    leaves("C"),
    *settle("A", "N"),
    commits("A", 8),
    leaves("N"),
    *settle("A"),
]


@pytest.fixture(scope="module")
def prepared() -> FakeDisk:
    stage = StreamsStage()
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
        for _ in range(3):
            waits(world)
            world.beat(world.members["A"])
        assert sorted(world.members) == ["A"]
        assert world.members["A"].active == TASKS
        assert world.stage.offset() == 8
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
