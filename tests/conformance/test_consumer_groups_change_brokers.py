"""Tests that KIP-848 consumer groups move from Odradek to Apache Kafka and back with their members, epochs and
assignments."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from tests.clients.admin import create_topic
from tests.support.broker_process import Broker, BrokerProcess, KafkaProcess
from tests.support.oracle import needs_kafka
from tests.support.wire import Wire

pytestmark = needs_kafka

SETTINGS: dict[str, object] = {"offsets.topic.num.partitions": 3, "group.consumer.assignment.interval.ms": 0}
BROKERS: dict[str, type[BrokerProcess] | type[KafkaProcess]] = {"odradek": BrokerProcess, "kafka": KafkaProcess}
GROUPS = ("settling", "statics", "patterns", "nothing")
LOADING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.value,
    ErrorCode.NOT_COORDINATOR.value,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.value,
}
PATIENCE_S = 60


def beat(wire: Wire, group: str, member: str, epoch: int, **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **fields)
    return once_loaded(lambda: wire.ask(request, 1), lambda answer: answer.error_code)


def join(wire: Wire, group: str, member: str, **fields: Any) -> Any:
    answer = beat(wire, group, member, 0, rebalance_timeout_ms=60_000, topic_partitions=[], **fields)
    assert answer.error_code == 0, answer.error_message
    return answer


def once_loaded(ask: Any, code_of: Any) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while code_of(answer := ask()) in LOADING:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return answer


def described(wire: Wire) -> dict[str, Any]:
    found = once_loaded(
        lambda: wire.ask(ConsumerGroupDescribeRequest(group_ids=list(GROUPS)), 1),
        lambda answer: max((each.error_code for each in answer.groups), key=lambda code: code in LOADING),
    )
    return {
        group.group_id: (
            group.group_state,
            group.group_epoch,
            group.assignment_epoch,
            {member.member_id: shown(member) for member in group.members},
        )
        for group in found.groups
    }


def shown(member: Any) -> tuple[Any, ...]:
    return (
        member.member_epoch,
        member.instance_id,
        member.rack_id,
        member.subscribed_topic_names,
        member.subscribed_topic_regex,
        partitions(member.assignment),
        partitions(member.target_assignment),
    )


def partitions(assignment: Any) -> dict[str, list[int]]:
    return {each.topic_name: sorted(each.partitions) for each in assignment.topic_partitions}


def connected(broker: Broker) -> Wire:
    wire = Wire(broker.bootstrap)
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["any"])
    once_loaded(lambda: wire.ask(find, 4), lambda answer: answer.coordinators[0].error_code)
    return wire


@pytest.mark.parametrize(("first", "second"), [("odradek", "kafka"), ("kafka", "odradek")])
def test_a_group_of_one_broker_continues_on_the_other(first: str, second: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BROKERS[first](data, SETTINGS) as broker, connected(broker) as wire:
        topic = create_topic(broker.bootstrap, "t", partitions=6)
        deadline = time.monotonic() + PATIENCE_S
        while not join(wire, "settling", "A", subscribed_topic_names=[topic]).assignment.topic_partitions:
            assert time.monotonic() < deadline  # Kafka's coordinator learns about a topic a moment after its creation.
            time.sleep(0.1)
        held = join(wire, "settling", "A", subscribed_topic_names=[topic]).member_epoch
        join(wire, "settling", "B", subscribed_topic_names=[topic], rack_id="r")
        heartbeat = beat(wire, "settling", "A", held)
        assert heartbeat.assignment is not None
        join(wire, "statics", "S", subscribed_topic_names=[topic], instance_id="i")
        beat(wire, "statics", "S", -2, instance_id="i")
        join(wire, "patterns", "P", subscribed_topic_regex="t.*")
        while not beat(wire, "patterns", "P", 1, topic_partitions=[]).assignment:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        join(wire, "nothing", "N", subscribed_topic_names=[])
        before = described(wire)
        broker.kill9()
    with BROKERS[second](data, SETTINGS) as broker, connected(broker) as wire:
        assert described(wire) == before
        kept = [
            TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
            for each in heartbeat.assignment.topic_partitions
        ]
        after = beat(wire, "settling", "A", held, topic_partitions=kept)
        assert (after.error_code, after.member_epoch) == (0, held + 1)
        given = beat(wire, "settling", "B", held + 1).assignment
        assert sorted(given.topic_partitions[0].partitions) == sorted(
            set(range(6)) - set(heartbeat.assignment.topic_partitions[0].partitions)
        )
        back = join(wire, "statics", "N", subscribed_topic_names=[topic], instance_id="i")
        assert (back.member_epoch, sorted(back.assignment.topic_partitions[0].partitions)) == (2, list(range(6)))
        assert described(wire)["settling"][:3] == ("Stable", held + 1, held + 1)
