"""Tests consumer groups (KIP-848) on a running broker (docs/spec/consumer-groups.md#s15), with raw requests and with
librdkafka's consumers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse, DescribedGroup
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.clients.admin import create_topic
from tests.clients.conftest import StartBroker
from tests.clients.speakers import SPEAKERS, Message
from tests.support.broker_process import Broker
from tests.support.wire import ClosedByBroker, Wire

PARTITIONS = 6
PATIENCE_S = 60.0
AT_ONCE = {"group.consumer.assignment.interval.ms": 0, "group.consumer.min.heartbeat.interval.ms": 100,
           "group.consumer.heartbeat.interval.ms": 100}  # fmt: skip
GROUP_RESOURCE, SET = 32, 0


def join(group: str, member: str, *topics: str, instance: str | None = None) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        instance_id=instance,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=list(topics),
        topic_partitions=[],
    )


def stay(group: str, member: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch)


def beat(wire: Wire, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    return wire.ask(request, 1, ConsumerGroupHeartbeatResponse)


def described(wire: Wire, group: str) -> DescribedGroup:
    return wire.ask(ConsumerGroupDescribeRequest(group_ids=[group]), 1, ConsumerGroupDescribeResponse).groups[0]


def with_coordinator(broker: Broker) -> Wire:
    wire = Wire(broker.bootstrap)
    found = wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4, FindCoordinatorResponse)
    assert found.coordinators[0].error_code == 0
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.value
    wait_until(lambda: described(wire, "g").error_code != loading)
    return wire


def test_scenario_014_an_unsupported_version_closes_the_connection(broker: Broker) -> None:
    from odradek.protocol.frames import request_bytes

    frame = bytearray(request_bytes(join("g", "A", "t"), 1, 1, "wire"))
    frame[7] = 2  # the low byte of the version
    with Wire(broker.bootstrap) as wire:
        wire.send_bytes(bytes(frame))
        with pytest.raises(ClosedByBroker):
            wire.receive_bytes()


def test_scenario_016_a_heartbeat_does_not_make_the_offsets_topic(start_broker: StartBroker) -> None:
    broker = start_broker({})
    topic = create_topic(broker.bootstrap, "t")
    with Wire(broker.bootstrap) as wire:
        assert beat(wire, join("g", "A", topic)).error_code == ErrorCode.NOT_COORDINATOR.value
    with with_coordinator(broker) as wire:
        answer = beat(wire, join("g", "A", topic))
        assert (answer.error_code, answer.member_epoch) == (0, 2)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "consumer.session.timeout.ms",
            "60001",
            "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        (
            "consumer.session.timeout.ms",
            "1000",
            "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        ("consumer.nope", "1", "Unknown group config name: consumer.nope"),
    ],
)
def test_scenario_079_settings_of_a_group_stay_within_the_brokers(
    broker: Broker, name: str, value: str, words: str
) -> None:
    with Wire(broker.bootstrap) as wire:
        assert alter(wire, "any", name, value) == (ErrorCode.INVALID_CONFIG.value, words)


def test_scenario_079_a_session_is_longer_than_the_heartbeat_interval(start_broker: StartBroker) -> None:
    broker = start_broker({"group.consumer.min.session.timeout.ms": 1_000})
    refused = (
        ErrorCode.INVALID_CONFIG.value,
        "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms",
    )
    with Wire(broker.bootstrap) as wire:
        assert alter(wire, "g", "consumer.session.timeout.ms", "4000") == refused
        assert alter(wire, "g", "consumer.session.timeout.ms", "6000") == (0, None)
        assert alter(wire, "g", "consumer.heartbeat.interval.ms", "6000") == refused


def alter(wire: Wire, group: str, name: str, value: str) -> tuple[int, str | None]:
    change = AlterableConfig(name=name, config_operation=SET, value=value)
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = wire.ask(request, 1, IncrementalAlterConfigsResponse).responses
    return answer.error_code, answer.error_message


def test_scenario_096_a_group_survives_kill_9_with_members_epochs_and_assignments(start_broker: StartBroker) -> None:
    broker = start_broker(AT_ONCE)
    topic = create_topic(broker.bootstrap, "t", partitions=PARTITIONS)
    with with_coordinator(broker) as wire:
        beat(wire, join("g", "A", topic))
        beat(wire, join("g", "S", topic, instance="i"))
        beat(wire, stay("g", "A", 2))  # The response asks A to revoke three partitions.
        commit = OffsetCommitRequest(
            group_id="g",
            member_id="A",
            generation_id_or_member_epoch=2,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic, partitions=[OffsetCommitRequestPartition(partition_index=5, committed_offset=7)]
                )
            ],
        )
        assert wire.ask(commit, 9).topics[0].partitions[0].error_code == 0
        before = described(wire, "g")
    assert before.group_state == "Reconciling"
    broker.kill9()
    broker.start()
    with with_coordinator(broker) as wire:
        assert repr(described(wire, "g")) == repr(before)
        answer = beat(wire, stay("g", "A", 2))
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 2, None)


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --- librdkafka's consumers.


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Yields a broker with short heartbeat intervals and no delay before assignments."""
    from tests.support.broker_process import new_broker

    with new_broker(tmp_path_factory.mktemp("quick") / "data", {"offsets.topic.num.partitions": 4} | AT_ONCE) as own:
        yield own


def consumer(broker: Broker, group: str, *topics: str, **settings: object) -> Consumer:
    given: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    own = Consumer(given | {name.replace("_", "."): value for name, value in settings.items()})
    own.subscribe(list(topics))
    return own


def shares(*consumers: Consumer) -> list[int]:
    for each in consumers:
        each.poll(0.05)
    return sorted(len(each.assignment()) for each in consumers)


def poll_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline, "it never came to be"


def test_two_consumers_share_a_topic_and_one_takes_over_from_the_other(quick: Broker) -> None:
    topic = create_topic(quick.bootstrap, "shared", partitions=PARTITIONS)
    SPEAKERS["confluent-kafka"].produce(
        quick.bootstrap, topic, [Message(b"%d" % number, partition=number % PARTITIONS) for number in range(60)]
    )
    one = consumer(quick, "sharing", topic)
    seen: set[bytes] = set()

    def has_read_all() -> bool:
        message = one.poll(0.1)
        if message is not None and message.error() is None:
            value = message.value()
            assert isinstance(value, bytes)
            seen.add(value)
        return len(seen) == 60

    poll_until(has_read_all)
    one.commit(asynchronous=False)
    two = consumer(quick, "sharing", topic)
    poll_until(lambda: shares(one, two) == [3, 3])
    one.close()
    poll_until(lambda: shares(two) == [6])
    committed = two.committed([TopicPartition(topic, partition) for partition in range(PARTITIONS)], 10)
    assert [each.offset for each in committed] == [10] * PARTITIONS
    two.close()
    admin = AdminClient({"bootstrap.servers": quick.bootstrap})
    group = admin.describe_consumer_groups(["sharing"])["sharing"].result(20)
    assert group.state.name == "EMPTY"


def test_a_consumer_subscribes_by_a_regular_expression(quick: Broker) -> None:
    create_topic(quick.bootstrap, "matched-1", partitions=2)
    create_topic(quick.bootstrap, "matched-2", partitions=3)
    create_topic(quick.bootstrap, "unmatched", partitions=1)
    one = consumer(quick, "by-pattern", "^matched-.*")
    poll_until(lambda: shares(one) == [5])
    one.close()


def test_a_static_consumer_comes_back_to_its_partitions(quick: Broker) -> None:
    topic = create_topic(quick.bootstrap, "static", partitions=PARTITIONS)
    one = consumer(quick, "statics", topic, group_instance_id="one")
    two = consumer(quick, "statics", topic, group_instance_id="two")
    poll_until(lambda: shares(one, two) == [3, 3])
    before = sorted(each.partition for each in one.assignment())
    one.close()

    def epoch_of_one() -> int:
        with Wire(quick.bootstrap) as wire:
            return next(each.member_epoch for each in described(wire, "statics").members if each.instance_id == "one")

    poll_until(lambda: epoch_of_one() == -2)  # The last heartbeat may arrive after `close` has returned.
    one = consumer(quick, "statics", topic, group_instance_id="one")
    poll_until(lambda: shares(one, two) == [3, 3])
    assert sorted(each.partition for each in one.assignment()) == before
    one.close()
    two.close()


def test_a_group_moves_from_the_classic_to_the_consumer_protocol_and_back_while_it_works(quick: Broker) -> None:
    topic = create_topic(quick.bootstrap, "moving", partitions=PARTITIONS)
    old = consumer(quick, "moving", topic, group_protocol="classic", partition_assignment_strategy="cooperative-sticky")
    poll_until(lambda: shares(old) == [6])
    new = consumer(quick, "moving", topic)
    poll_until(lambda: shares(old, new) == [3, 3])
    with Wire(quick.bootstrap) as wire:
        assert sorted(member.member_type for member in described(wire, "moving").members) == [0, 1]
    new.close()
    poll_until(lambda: shares(old) == [6])
    with Wire(quick.bootstrap) as wire:
        assert described(wire, "moving").error_code == ErrorCode.GROUP_ID_NOT_FOUND.value
    old.close()
