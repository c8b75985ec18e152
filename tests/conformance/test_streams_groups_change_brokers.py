"""Tests that a streams group continues when Apache Kafka takes over a directory from Odradek, and when Odradek takes it
back.

Rules: docs/spec/streams-groups.md#s11. Epochs, tasks, topology and static members are restored from the directory;
timers restart.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from tests.conformance.streams_scene import SETTINGS, Scene, talk_to, tasks_of
from tests.support.broker_process import Broker, BrokerProcess, KafkaProcess
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

GROUP = "moving"
LOADING = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
PATIENCE_S = 60.0
# Sessions must outlast the other broker's startup.
PATIENT = {**SETTINGS, "group.streams.session.timeout.ms": 300_000, "group.streams.max.session.timeout.ms": 300_000}


MEMBERS: Mapping[str, Mapping[str, Any]] = {"a": {}, "c": {}, "s": {"instance_id": "one"}}


def at(broker: Broker, group: str = GROUP) -> Scene:
    return Scene(talk_to(broker), group, broker.name == "kafka")


def description(scene: Scene) -> tuple[object, ...]:
    """Returns values from StreamsGroupDescribe: the group's state, epoch and topology, and the epochs, tasks and target
    assignments of its members."""
    deadline = time.monotonic() + PATIENCE_S
    while ErrorCode((group := scene.described()).error_code) in LOADING:
        assert time.monotonic() < deadline, group
        time.sleep(0.1)
    assert group.topology is not None, group
    members = [
        (
            each.member_id,
            each.instance_id,
            each.member_epoch,
            tasks_of(each.assignment.active_tasks),
            tasks_of(each.target_assignment.active_tasks),
        )
        for each in group.members
    ]
    subtopologies = [(each.subtopology_id, each.source_topics) for each in group.topology.subtopologies or []]
    return group.group_state, group.group_epoch, group.topology.epoch, subtopologies, sorted(members, key=str)


def continues(broker: Broker, before: tuple[object, ...], epoch: int) -> None:
    """Checks that the group is in the same state as before, and that each member continues at its epoch."""
    scene = at(broker)
    assert description(scene) == before
    for name, always in MEMBERS.items():
        member = scene.member(name)
        member.epoch = epoch
        answer = member.beat(**always)
        assert (answer.code, answer.epoch) == (ErrorCode.NONE, epoch), (name, answer)
    scene.talk.close()


@pytest.mark.parametrize("stop", [Broker.stop, Broker.kill9], ids=["stopped", "killed"])
def test_a_streams_group_goes_from_us_to_kafka_and_back(tmp_path: Path, stop: Callable[[Broker], None]) -> None:
    data = tmp_path / "data"
    ours = BrokerProcess(data, PATIENT)
    ours.start()
    scene = at(ours)
    scene.make_shared_topics()
    members = [scene.member(name, **always) for name, always in MEMBERS.items()]
    for each in members:
        each.join()
    for _ in range(len(members) + 1):  # A member must give up tasks before another member gets them.
        for each in members:
            each.beat(each.assigned[0] or {})
    before, epoch = description(scene), scene.state[1]
    assert before[0] == "Stable"
    scene.talk.close()
    stop(ours)

    with KafkaProcess(data, PATIENT, heap="-Xmx512M") as kafka:
        continues(kafka, before, epoch)
        theirs = at(kafka, "theirs")
        member = theirs.member("k")
        member.join()
        found = description(theirs)
        theirs.talk.close()
        stop(kafka)
    with BrokerProcess(data, PATIENT) as again:
        continues(again, before, epoch)
        written_by_kafka = at(again, "theirs")
        assert description(written_by_kafka) == found
        there = written_by_kafka.member("k")
        there.epoch = member.epoch
        assert there.beat().code is ErrorCode.NONE
        written_by_kafka.talk.close()
