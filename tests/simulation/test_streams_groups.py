"""Tests that each task of a Kafka Streams application has at most one owner, while the application's instances join,
work, fall silent and leave at random.

The network between the instances and the broker loses, repeats and delays heartbeats, and the broker is sometimes
killed.

After every event, no two members believe that they work on the same task, and no process has a task in two roles. When
the faults end, each task gets its owner before the session and rebalance timeouts have passed.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from odradek.broker.metadata.supported_features import STREAMS_VERSION
from odradek.broker.metadata.topic_creation import internal_topic
from odradek.broker.metadata.topics import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from odradek.protocol.messages.streams_group_describe_response import DescribedGroup
from odradek.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from odradek.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from odradek.protocol.topic_partition import GROUP_OFFSETS
from tests.simulation.seeds import seeds
from tests.simulation.stage import GROUP, Stage
from tests.simulation.transaction_world import NOW_MS
from tests.support.fake_disk import FakeDisk

SEEDS = seeds(60)
EVENTS = 80
SESSION_MS, REBALANCE_MS, BEAT_MS = 10_000, 15_000, 1_000
LOST = {ErrorCode.UNKNOWN_MEMBER_ID.value, ErrorCode.FENCED_MEMBER_EPOCH.value, ErrorCode.FENCED_INSTANCE_ID.value}
# The broker has not loaded its groups, or does not coordinate them yet. The member repeats its request.
LATER = {ErrorCode.NOT_COORDINATOR.value, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.value}
STATELESS, STATEFUL = "lines", "words"  # names of two topics
TOPICS = {STATELESS: 3, STATEFUL: 4}
TASKS = {("0", index) for index in range(3)} | {("1", index) for index in range(4)}
TOPOLOGY = Topology(
    epoch=0,
    subtopologies=[
        Subtopology(subtopology_id="0", source_topics=[STATELESS]),
        Subtopology(
            subtopology_id="1", source_topics=[STATEFUL], state_changelog_topics=[TopicInfo(name="counts-changelog")]
        ),
    ],
)
Task = tuple[str, int]


class StreamsStage(Stage):
    """A broker with the source topics, whose streams groups have one standby replica."""

    def __init__(self, disk: FakeDisk | None, now_ms: int, interval_ms: int) -> None:
        settings = {
            "group_initial_rebalance_delay_ms": "0",
            "group_streams_initial_rebalance_delay_ms": "0",
            "group_streams_assignment_interval_ms": str(interval_ms),
            "group_streams_num_standby_replicas": "1",
            "group_streams_min_session_timeout_ms": str(SESSION_MS),
            "group_streams_session_timeout_ms": str(SESSION_MS),
        }
        super().__init__(disk, now_ms, settings=settings)

    def _make_topics(self) -> None:
        offsets = internal_topic(GROUP_OFFSETS, self.config)
        assert offsets is not None
        self.broker.auto_creation.create([offsets, *(NewTopic(name, count, 1) for name, count in TOPICS.items())])
        self.broker.metadata.commit([FeatureLevelRecord(name=STREAMS_VERSION, feature_level=1)])


class Instance:
    """A member that behaves like a real one: it works on its last assignment and closes revoked tasks before its next
    heartbeat.

    `active` and `standby` contain the tasks that the member believes it has.
    """

    def __init__(self, number: int, world: World) -> None:
        self.number, self.world = number, world
        self.process = f"process {number // 2}"
        self.is_static = number % 3 == 0
        self.is_alive = False
        self.lives = 0
        self.start_over()

    def start_over(self) -> None:
        self.lives += 1
        self.name = f"m{self.number}-{self.lives}"
        self.instance = f"i{self.number}" if self.is_static else None
        self.lose_tasks()

    def lose_tasks(self) -> None:
        self.epoch = 0
        self.active: set[Task] = set()
        self.standby: set[Task] = set()
        self.sends_full_heartbeat = True

    @property
    def is_in(self) -> bool:
        return self.is_alive and self.epoch > 0

    def request(self) -> StreamsGroupHeartbeatRequest:
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.name, member_epoch=self.epoch, instance_id=self.instance
        )
        if self.epoch == 0:
            request.topology = TOPOLOGY
        if self.sends_full_heartbeat:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.process_id = self.process
            request.active_tasks = task_ids(self.active)
            request.standby_tasks = task_ids(self.standby)
            request.warmup_tasks = []
        return request

    def step(self) -> None:
        """Sends a heartbeat through the network."""
        request = self.request()
        if (answer := self.world.sent(self, request)) is None:
            self.sends_full_heartbeat = True  # The heartbeat or its response was lost.
        else:
            self.apply(answer)

    def apply(self, answer: StreamsGroupHeartbeatResponse) -> None:
        if answer.error_code in LATER:
            self.sends_full_heartbeat = True
        elif answer.error_code in LOST:
            self.lose_tasks()
        elif answer.error_code == ErrorCode.UNRELEASED_INSTANCE_ID.value:
            self.sends_full_heartbeat = True  # The member has already joined, but has not received the response.
        else:
            assert answer.error_code == 0, answer
            assert answer.member_epoch >= self.epoch, "an epoch went back"
            is_new = answer.active_tasks is not None
            self.epoch, self.sends_full_heartbeat = answer.member_epoch, is_new
            if answer.active_tasks is not None:
                self.active = tasks_of(answer.active_tasks)
                self.standby = tasks_of(answer.standby_tasks or [])

    def leave(self, epoch: int) -> None:
        """Closes the tasks, then sends the heartbeat that leaves the group."""
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.name, member_epoch=epoch, instance_id=self.instance
        )
        self.is_alive = False
        self.lose_tasks()
        self.world.stage.ask(request, 1)


def task_ids(tasks: set[Task]) -> list[TaskIds]:
    found: dict[str, list[int]] = {}
    for name, partition in sorted(tasks):
        found.setdefault(name, []).append(partition)
    return [TaskIds(subtopology_id=name, partitions=partitions) for name, partitions in found.items()]


def tasks_of(given: list[Any]) -> set[Task]:
    return {(each.subtopology_id, partition) for each in given for partition in each.partitions}


class World:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.interval_ms = self.rng.choice([0, 0, 1_000])
        self.stage = StreamsStage(None, NOW_MS, self.interval_ms)
        self.instances = [Instance(number, self) for number in range(6)]
        self.late: list[tuple[Instance, StreamsGroupHeartbeatRequest]] = []
        self.is_stormy = True
        self.trace = [f"SEED={seed}"]

    def sent(self, instance: Instance, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse | None:
        """Sends a heartbeat. Returns the response, or None if it does not reach the member."""
        fate = self.rng.random() if self.is_stormy else 1.0
        if fate < 0.04:
            return None
        if fate < 0.08 and request.member_epoch > 0:  # A late join would come from the member's earlier life.
            self.late.append((instance, request))
            return None
        answer: StreamsGroupHeartbeatResponse = self.stage.ask(request, 1, instance.name)
        if fate < 0.12:
            return None
        if fate < 0.16:  # The request arrives twice, over the connections before and after a reconnect.
            self.stage.ask(request, 1, instance.name)
            return None
        return answer

    def event(self) -> None:
        rng, instance = self.rng, self.rng.choice(self.instances)
        event = rng.choices(
            ["step", "time", "start", "die", "leave", "away", "late", "crash"], [50, 14, 14, 4, 4, 4, 6, 4]
        )[0]
        self.trace.append(f"{self.stage.time.now_ms() - NOW_MS} {event} {instance.name}")
        match event:
            case "step":
                for each in rng.sample(self.instances, rng.randint(1, len(self.instances))):
                    if each.is_alive:
                        each.step()
                        self.check()
            case "time":
                self.stage.wait(rng.choice([10, 1_000, 4_000, 11_000]))
            case "start" if not instance.is_alive:
                instance.is_alive = True
                instance.start_over()
            case "die":
                instance.is_alive = False
                instance.lose_tasks()
            case "leave" if instance.is_in:
                instance.leave(-1)
            case "away" if instance.is_in and instance.is_static:
                instance.leave(-2)
            case "late" if self.late:
                sender, request = self.late.pop(rng.randrange(len(self.late)))
                self.stage.ask(request, 1, "late")
                sender.sends_full_heartbeat = True  # The member has a new connection.
            case "crash":
                self.restart()

    def restart(self) -> None:
        self.stage.broker.kill()
        self.stage = StreamsStage(self.stage.disk.after_kill(), self.stage.time.now_ms(), self.interval_ms)

    def described(self) -> DescribedGroup:
        (group,) = self.stage.ask(StreamsGroupDescribeRequest(group_ids=[GROUP]), 1).groups
        assert isinstance(group, DescribedGroup)
        return group

    def check(self) -> None:
        members = {each.member_id for each in self.described().members}
        for instance in self.instances:
            if instance.is_in and instance.name not in members:
                instance.lose_tasks()  # After its session timeout, the member has stopped working too.
        owners: dict[Task, str] = {}
        of_process: dict[tuple[str, Task], str] = {}
        for each in self.instances:
            for task in each.active:
                other = owners.setdefault(task, each.name)
                assert other == each.name, f"{task} is with {other} and {each.name}"
            for role, tasks in (("active", each.active), ("standby", each.standby)):
                for task in tasks:
                    here = f"{each.name} {role}"
                    other = of_process.setdefault((each.process, task), here)
                    assert other == here, f"{task} is in {each.process} with {other} and {here}"

    def settle(self) -> int:
        """Stops all faults. Returns how many milliseconds pass until every task has its owner and the group is
        stable."""
        self.is_stormy = False
        self.instances[0].is_alive = True
        begun_ms = self.stage.time.now_ms()
        for _ in range(3 * (SESSION_MS + REBALANCE_MS) // BEAT_MS):
            for each in self.instances:
                if each.is_alive:
                    each.step()
                    self.check()
            if self.is_settled():
                return self.stage.time.now_ms() - begun_ms
            self.stage.wait(BEAT_MS)
        raise AssertionError(f"not settled: {self.described()}")

    def is_settled(self) -> bool:
        living = [each for each in self.instances if each.is_alive]
        described = self.described()
        names = {each.member_id for each in described.members}
        owned = {task for each in living for task in each.active}
        return described.group_state == "Stable" and names == {each.name for each in living} and owned == TASKS


@pytest.mark.parametrize("seed", SEEDS)
def test_a_task_has_one_owner_at_a_time_and_is_not_left_for_longer_than_a_time_out(seed: int) -> None:
    world = World(seed)
    try:
        for _ in range(EVENTS):
            world.event()
            world.check()
        assert world.settle() <= SESSION_MS + REBALANCE_MS
    except AssertionError as failure:
        raise AssertionError("\n".join([*world.trace, str(failure)])) from failure
    finally:
        world.stage.broker.kill()
