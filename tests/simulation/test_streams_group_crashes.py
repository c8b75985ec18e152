"""Tests that everything that members of streams groups (KIP-1071) have learned is still true after a crash at any disk
call.

The members play a story. Wherever the broker dies, they repeat unanswered requests to the next broker, as clients do,
and continue. No task has two owners, no committed offset is lost, and the story ends as planned. As in Kafka, a member
is fenced only if the lost response turned its standby tasks into active ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import pytest

from odradek.broker.metadata.supported_features import STREAMS_VERSION
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from odradek.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from tests.simulation.group_crashes import (
    TOPIC,
    Event,
    GroupMember,
    GroupStage,
    GroupWorld,
    beats,
    check_owners,
    commits,
    fail_power_at_every_call,
    kill_at_every_call,
    leaves,
    play_without_a_crash,
    prepared_disk,
    waits,
)
from tests.simulation.simulated_broker import Parts, computing_in_turns
from tests.simulation.stage import GROUP
from tests.simulation.test_streams_groups import Task, task_ids, tasks_of
from tests.simulation.transaction_world import NOW_MS
from tests.support.fake_disk import FakeDisk

PARTITIONS = 4
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


@dataclass(slots=True)
class Member(GroupMember):
    """A member that works on the `active` and `standby` tasks of the last response. It stops working on a task before
    the next heartbeat reports this."""

    active: set[Task] = field(default_factory=set)
    standby: set[Task] = field(default_factory=set)

    def drop_all(self) -> None:
        self.active, self.standby = set(), set()

    def request(self) -> StreamsGroupHeartbeatRequest:
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.name, member_epoch=self.epoch, instance_id=self.instance
        )
        if self.epoch == 0:
            request.topology = TOPOLOGY
        if self.sends_full_heartbeat:
            request.rebalance_timeout_ms = 60_000
            request.process_id = f"process of {self.instance or self.name}"
            request.active_tasks = task_ids(self.active)
            request.standby_tasks = task_ids(self.standby)
            request.warmup_tasks = []
        self.sends_full_heartbeat = True  # Reset when a response arrives.
        return request


def steps(name: str) -> Event:
    return beats(Member, name)


def steps_static(name: str) -> Event:
    return beats(partial(Member, instance="i"), name)


def settle(*names: str) -> list[Event]:
    return [steps(name) for _ in range(5) for name in names]


class StreamsGroupWorld(GroupWorld[Member]):
    story = (
        steps("A"),
        waits,
        steps("A"),
        commits("A", 3),
        steps("C"),
        *settle("A", "C"),
        commits("A", 5),
        steps_static("S"),
        *settle("A", "C", "S"),
        leaves("S", -2),
        steps_static("N"),
        steps("A"),
        leaves("C"),
        *settle("A", "N"),
        commits("A", 8),
        leaves("N"),
        *settle("A"),
    )

    @staticmethod
    def broker_on(disk: FakeDisk | None = None, now_ms: int = NOW_MS) -> GroupStage:
        return GroupStage(disk, now_ms, partitions=PARTITIONS, feature=STREAMS_VERSION, settings=SETTINGS)

    def beat(self, member: Member) -> None:
        answer = self.joined(member, member.request)
        if answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH.value and member.standby:
            member.epoch = 0
            member.drop_all()
            answer = self.joined(member, member.request)
        assert answer.error_code == 0, f"{member.name} at {member.epoch}: {answer.error_message}"
        assert answer.member_epoch >= member.epoch, "an epoch went back"
        member.epoch, member.sends_full_heartbeat = answer.member_epoch, answer.active_tasks is not None
        if answer.active_tasks is not None:
            member.active, member.standby = tasks_of(answer.active_tasks), tasks_of(answer.standby_tasks)

    def farewell(self, member: Member, epoch: int) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=member.name, member_epoch=epoch, instance_id=member.instance
        )

    def recorded(self) -> dict[str, int]:
        (group,) = self.stage.ask(StreamsGroupDescribeRequest(group_ids=[GROUP]), 1).groups
        return {each.member_id: each.member_epoch for each in group.members}

    def check(self) -> None:
        for member in self.members.values():
            assert not member.active & member.standby
        check_owners({each.name: each.active for each in self.members.values()})

    def check_end(self) -> None:
        for _ in range(3):
            waits(self)
            self.beat(self.members["A"])
        assert sorted(self.members) == ["A"]
        assert self.members["A"].active == TASKS
        assert self.stage.offset() == 8


def waits_for_steps(world: GroupWorld[Member]) -> None:
    """Lets a target computation run some of its steps. The whole computation takes about 15 ms."""
    world.stage.wait(4)


class LargeGroupWorld(StreamsGroupWorld):
    """Plays the same story on a broker that computes each target, and encodes its records, between requests. Some
    events happen during a computation."""

    story = tuple(each for event in StreamsGroupWorld.story for each in (event, waits_for_steps))

    @staticmethod
    def broker_on(disk: FakeDisk | None = None, now_ms: int = NOW_MS) -> GroupStage:
        parts = Parts(targets=computing_in_turns)
        return GroupStage(disk, now_ms, partitions=PARTITIONS, feature=STREAMS_VERSION, settings=SETTINGS, parts=parts)


@pytest.fixture(params=[StreamsGroupWorld, LargeGroupWorld])
def world(request: pytest.FixtureRequest) -> type[StreamsGroupWorld]:
    kind: type[StreamsGroupWorld] = request.param
    return kind


@pytest.fixture(scope="module")
def prepared() -> FakeDisk:
    return prepared_disk(StreamsGroupWorld.broker_on)


def test_the_story_ends_well_without_a_crash(world: type[StreamsGroupWorld], prepared: FakeDisk) -> None:
    play_without_a_crash(world, prepared)


@pytest.mark.parametrize("half_write", [False, True])
def test_a_killed_broker_keeps_the_state_that_it_reported_to_members(
    world: type[StreamsGroupWorld], prepared: FakeDisk, half_write: bool
) -> None:
    kill_at_every_call(world, prepared, half_write=half_write)


def test_a_power_failure_loses_no_state_that_was_reported_to_members(
    world: type[StreamsGroupWorld], prepared: FakeDisk
) -> None:
    fail_power_at_every_call(world, prepared)
