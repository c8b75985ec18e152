"""Tests that each task of a streams group (KIP-1071) has one owner at a time in a storm, even if instances and the
broker are killed with SIGKILL.

A proxy delivers requests late, twice or not at all, and loses responses. A watch queries the broker for the owner of
each task, over a listener that the storm does not affect. No task may have two owners at a time, or no owner for longer
than the rebalance timeout. Each of ROUNDS rounds (by default 8 with Kafka Streams and 15 with raw members) has a kill.
SEED repeats a run's choices, though not its timing. Rules: docs/spec/streams-groups.md#s5-2, #s9.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from odradek.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from tests.clients.admin import create_topic
from tests.clients.speakers import wait_for
from tests.conformance.streams_instances import (
    BROKER_SETTINGS,
    NEWEST,
    PARTITIONS,
    Application,
    Instance,
    class_path,
)
from tests.conformance.streams_scene import talk_to
from tests.crash.copying import Watcher
from tests.crash.storm import RULES, Owners, Storm, stormy, tasks_of_members
from tests.support.flaky_proxy import FlakyProxy
from tests.support.oracle import needs_kafka
from tests.support.wire import ClosedByBroker, Wire

SEED = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
ROUNDS = int(os.environ.get("ROUNDS") or 8)
RAW_ROUNDS = int(os.environ.get("ROUNDS") or 15)
PATIENCE_S = 120.0
REBALANCE_TIMEOUT_S = 30.0
VICTIMS = ("instance", "instance", "broker", "both")
WORDS = ("to", "be", "or", "not", "that", "is")
# If a response arrives twice, a Java client keeps the connection, and then matches all later responses with the wrong
# requests.
WAYS_OF_JAVA = RULES.keys() - {"doubled"}


class Instances:
    """The instances of an application. They reach the broker through the storm and are restarted after a failure."""

    def __init__(self, application: Application, bootstrap: str) -> None:
        self._application, self._bootstrap = application, bootstrap
        self._running: dict[str, Instance] = {}
        self.gave_up = 0

    def start(self, name: str) -> None:
        self._running[name] = self._application.start(
            name,
            bootstrap_servers=self._bootstrap,
            main_consumer_max_poll_interval_ms=int(REBALANCE_TIMEOUT_S * 1000),
        )

    def kill9(self, name: str) -> None:
        self._running[name].kill9()

    def keep_up(self) -> None:
        for name, instance in self._running.items():
            if not instance.is_running():
                self.gave_up += 1
                self.start(name)


@needs_kafka
def test_words_are_counted_once_and_each_task_has_one_owner(tmp_path: Path, proxy: FlakyProxy) -> None:
    """The application is Kafka Streams with exactly-once processing, so the updates of each word are 1, 2, 3 and so
    on."""
    print(f"SEED={SEED} {ROUNDS} rounds")
    rng = random.Random(SEED)
    with stormy(tmp_path / "data", proxy, BROKER_SETTINGS) as broker:
        application = Application(broker.bootstrap, "storm", tmp_path, class_path(NEWEST, tmp_path / "classes"), [], {})
        application.make_topics()
        instances = Instances(application, proxy.bootstrap)
        names = ("x", "y", "z")
        watcher = Watcher(broker.bootstrap, application.results, PARTITIONS, "watcher")
        owners = Owners(broker.bootstrap, application.name, tasks_of_members)
        storm = Storm(proxy, SEED, WAYS_OF_JAVA)

        def are_counted() -> bool:
            instances.keep_up()
            return watcher.count >= sum(application.counts.values())

        try:
            watcher.start()
            owners.start()
            for name in names:
                instances.start(name)
            kills: Counter[str] = Counter()
            application.say(*WORDS, times=2)
            wait_for("the first counts", are_counted, PATIENCE_S)
            storm.begin()
            while sum(kills.values()) < ROUNDS or min(storm.counts().values()) == 0:
                application.say(*WORDS, times=3)
                time.sleep(rng.uniform(0.0, 1.0))  # a random moment during a transaction or a rebalance
                victims, name = rng.choice(VICTIMS), rng.choice(names)
                kills[victims] += 1
                if victims != "broker":
                    instances.kill9(name)
                if victims != "instance":
                    broker.kill9()
                    broker.start()
                if victims != "broker":
                    instances.start(name)
                wait_for("counts", are_counted, PATIENCE_S)
            summary = storm.end()
            application.say(*WORDS)
            wait_for("the last counts", are_counted, PATIENCE_S)
            wait_for("owners of all tasks", lambda: _all_owned(owners, 2 * PARTITIONS), PATIENCE_S)
        finally:
            owners.finish()
            application.end()
            watcher.finish(reached_end=False)
        application.assert_counted_once_in_order()
    longest = max(owners.unowned_s.values())
    print(f"{summary}; {dict(kills)}; {instances.gave_up} instances gave up")
    print(f"{owners.looks} looks; a task was unowned for {longest:.1f} s")
    assert owners.shared == []
    assert owners.most_members > 1
    assert longest <= REBALANCE_TIMEOUT_S


def _all_owned(owners: Owners, tasks: int) -> bool:
    return sum(len(names) for names in owners.last.values()) == tasks


GROUP, SOURCE = "raw", "raw-source"
TASKS = 24  # number of tasks in each of the two subtopologies
MEMBERS = 8
RAW_SETTINGS: Mapping[str, object] = {
    **BROKER_SETTINGS,
    "group.streams.assignment.interval.ms": 0,
    "group.streams.min.session.timeout.ms": 1000,
    "group.streams.session.timeout.ms": 2000,
    "group.streams.min.heartbeat.interval.ms": 100,
    "group.streams.heartbeat.interval.ms": 100,
}
BEAT_S = 0.02
ANSWER_S = 1.0
TOPOLOGY = Topology(
    subtopologies=[
        Subtopology(subtopology_id="0", source_topics=[SOURCE], repartition_sink_topics=["raw-repartition"]),
        Subtopology(
            subtopology_id="1",
            repartition_source_topics=[TopicInfo(name="raw-repartition", replication_factor=-1)],
            state_changelog_topics=[TopicInfo(name="raw-changelog", replication_factor=-1)],
        ),
    ]
)


class RawMember(threading.Thread):
    """A member of the group in its own process. It may vanish or leave at any moment and returns with another member
    id."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.lives = 0
        self.refusals: Counter[ErrorCode] = Counter()
        self.is_calm = False
        self._servers = bootstrap
        self._rng = random.Random(seed)
        self._is_over = threading.Event()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.lives += 1
        self._member_id, self._epoch = str(uuid.uuid4()), 0
        self._active: list[TaskIds] = []
        self._standby: list[TaskIds] = []

    def run(self) -> None:
        while not self._is_over.is_set():
            try:
                with Wire(self._servers, timeout_s=ANSWER_S) as wire:
                    self._live(wire)
            except (ClosedByBroker, OSError):
                self._is_over.wait(BEAT_S)

    def _live(self, wire: Wire) -> None:
        while not self._is_over.wait(BEAT_S):
            chance = 1.0 if self.is_calm else self._rng.random()
            if chance < 0.002:  # The member vanishes without leaving the group.
                self._begin_anew()
            elif chance < 0.004:
                wire.ask(self._request(-1), 1)
                self._begin_anew()
            else:
                self._hear(wire.ask(self._request(self._epoch), 1, StreamsGroupHeartbeatResponse))

    def _hear(self, answer: StreamsGroupHeartbeatResponse) -> None:
        if (code := ErrorCode(answer.error_code)) is not ErrorCode.NONE:
            self.refusals[code] += 1
            if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
                self._epoch, self._active, self._standby = 0, [], []
            return
        self._epoch = answer.member_epoch
        if answer.active_tasks is not None:
            self._active = [_owned(each.subtopology_id, each.partitions) for each in answer.active_tasks]
            self._standby = [_owned(each.subtopology_id, each.partitions) for each in answer.standby_tasks or ()]

    def _request(self, epoch: int) -> StreamsGroupHeartbeatRequest:
        joins = epoch == 0
        return StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self._member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=int(REBALANCE_TIMEOUT_S * 1000) if joins else -1,
            topology=TOPOLOGY if joins else None,
            process_id=self._member_id if joins else None,
            active_tasks=[] if joins else self._active,
            standby_tasks=[] if joins else self._standby,
            warmup_tasks=[],
        )

    def finish(self) -> None:
        self._is_over.set()
        self.join()


def _owned(subtopology_id: str, partitions: list[int]) -> TaskIds:
    return TaskIds(subtopology_id=subtopology_id, partitions=list(partitions))


def test_no_task_has_two_owners_or_none_for_long_while_members_come_and_go(tmp_path: Path, proxy: FlakyProxy) -> None:
    """The group has standby tasks and a repartition topic. Its members send raw requests, and each member counts as a
    separate process."""
    print(f"SEED={SEED} {RAW_ROUNDS} rounds")
    rng = random.Random(SEED)
    with stormy(tmp_path / "data", proxy, RAW_SETTINGS) as broker:
        create_topic(broker.bootstrap, SOURCE, TASKS, exact=True)
        talk_to(broker).close()  # waits until there is a coordinator
        members = [RawMember(proxy.bootstrap, SEED + number) for number in range(MEMBERS)]
        owners, storm = Owners(broker.bootstrap, GROUP, tasks_of_members), Storm(proxy, SEED)
        try:
            owners.start()
            for member in members:
                member.start()
            wait_for("owners of all tasks", lambda: _all_owned(owners, 2 * TASKS), PATIENCE_S)
            storm.begin()
            kills = 0
            while kills < RAW_ROUNDS or min(storm.counts().values()) == 0:
                time.sleep(rng.uniform(0.5, 2.5))  # a random moment during a rebalance
                broker.kill9()
                broker.start()
                kills += 1
            summary = storm.end()
            for member in members:
                member.is_calm = True
            wait_for(
                "a fair share of all tasks for each member",
                lambda: sorted(map(len, owners.last.values())) == [2 * TASKS // MEMBERS] * MEMBERS,
                PATIENCE_S,
            )
        finally:
            for member in members:
                member.finish()
            owners.finish()
    refusals: Counter[ErrorCode] = sum((member.refusals for member in members), Counter())
    longest, lives = max(owners.unowned_s.values()), sum(member.lives for member in members)
    print(f"{summary}; {kills} kills; {lives} lives; {dict(refusals)}")
    print(f"{owners.looks} looks; a task was unowned for {longest:.1f} s")
    assert owners.shared == []
    assert longest <= REBALANCE_TIMEOUT_S
