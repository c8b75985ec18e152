"""Tests streams groups on Kafka 4.3.1, and on Odradek when it emulates Kafka 4.3.

Rules: docs/spec/streams-groups.md#s13-7.
"""

from collections.abc import Iterator

import pytest

from odradek.protocol.errors import ErrorCode
from tests.conformance.streams_scene import ALL, DELAYED, SETTINGS, Scene, talk_to
from tests.support.broker_process import EMULATED, Broker, BrokerProcess, KafkaProcess
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

RELEASE = "4.3.1"
VERSION = 0  # version of StreamsGroupHeartbeat
DEFAULT_HERE = "group.streams.assignment.interval.ms"  # The default is 1 s, so a second member has to wait.


@pytest.fixture(params=["kafka", "odradek"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    data_dir = tmp_path_factory.mktemp(f"streams-4.3-{request.param}") / "data"
    settings = {name: value for name, value in SETTINGS.items() if name != DEFAULT_HERE}
    broker: Broker = (
        KafkaProcess(data_dir, settings, version=RELEASE, heap="-Xmx512M")
        if request.param == "kafka"
        else BrokerProcess(data_dir, settings, emulate=EMULATED[RELEASE])
    )
    with broker:
        made = Scene(talk_to(broker), "app", broker.name == "kafka")
        made.make_topic("i4", 4)
        yield made
        made.talk.close()


def test_scenario_122_kafka_4_3_refuses_static_members_and_keeps_the_assignment_epoch(scene: Scene) -> None:
    a = scene.member("a")
    assert a.join(version=VERSION, instance_id="one").refused == (
        ErrorCode.INVALID_REQUEST,
        "Static membership is not yet supported.",
    )
    assert a.join(version=VERSION, task_offsets=[]).refused == (
        ErrorCode.INVALID_REQUEST,
        "TaskOffsets are not supported yet.",
    )
    joined = a.join(version=VERSION)
    if joined.active != ALL:  # Kafka's coordinator may not know the topic when the member joins.
        a.beat_until(lambda reply: reply.active == ALL, version=VERSION)
    epoch = scene.described(VERSION).assignment_epoch
    a.send(VERSION, member_epoch=-1)
    group = scene.described(VERSION)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Empty", epoch + 1, epoch)


def test_a_second_member_waits_for_the_assignment_interval_as_in_kafka_4_4(scene: Scene) -> None:
    a, c = scene.member("a"), scene.member("c")
    joined = a.join(version=VERSION)
    if joined.active != ALL:
        a.beat_until(lambda reply: reply.active == ALL, version=VERSION)
    assert c.join(version=VERSION).statuses == [DELAYED]
    group = scene.described(VERSION)
    assert (group.group_state, group.assignment_epoch) == ("Assigning", group.group_epoch - 1)
