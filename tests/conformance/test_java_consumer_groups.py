"""Tests that consumers from kafka-clients 4.3.1 and 4.4.0 rebalance, migrate and commit in KIP-848 groups as they do
with Kafka.

If BROKER=kafka is set, the tests run against Kafka and expect the same results.
"""

from collections.abc import Iterator

import pytest

from tests.clients.admin import create_topic
from tests.clients.speakers import SPEAKERS, Message
from tests.conformance.tools import Tools
from tests.support.broker_process import Broker, new_broker
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

PARTITIONS = 6
SETTINGS: dict[str, object] = {
    "offsets.topic.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 100,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", SETTINGS) as running:
        yield running


def story(clients: Tools, broker: Broker, name: str) -> list[str]:
    """Runs a story with two topics, one of which has a record in each partition. Returns the program's output lines."""
    topic = create_topic(broker.bootstrap, name, PARTITIONS)
    more = create_topic(broker.bootstrap, f"{topic}-more", 2)
    SPEAKERS["confluent-kafka"].produce(
        broker.bootstrap, topic, [Message(b"%d" % index, partition=index) for index in range(PARTITIONS)]
    )
    return clients.run("grouped", broker.bootstrap, name, topic, more).lines


ALL = "{0=1, 1=1, 2=1, 3=1, 4=1, 5=1}"


def test_members_come_and_go(clients: Tools, broker: Broker) -> None:
    assert story(clients, broker, "rebalance") == [
        "alone: 6",
        "all records: 6",
        f"committed: {ALL}",
        "two: 3+3",
        "both commit: done",
        "alone again: 6",
        "range: 3+3",
        "records: 6",
    ]


def test_a_pattern_is_resolved_by_the_broker(clients: Tools, broker: Broker) -> None:
    assert story(clients, broker, "pattern") == [
        "both topics: 8",
        "the other topic: 2",
        "a wrong pattern: InvalidRegularExpression",
    ]


def test_a_static_member_comes_back_to_its_partitions(clients: Tools, broker: Broker) -> None:
    assert story(clients, broker, "statics") == [
        "two: 3+3",
        "an instance that is in use: UnreleasedInstanceIdException",
        "its partitions are kept: 3",
        "it is back: 3+3",
        "the same partitions: true",
        "it has left: 6",
    ]


def test_a_member_that_does_not_poll_loses_its_partitions_and_comes_back(clients: Tools, broker: Broker) -> None:
    assert story(clients, broker, "pause") == [
        "alone: 6",
        "two: 3+3",
        "it is away: 6",
        "it commits: CommitFailedException",
        "it is back: 3+3",
        "lost: 3",
        "it commits: done",
    ]


def test_a_classic_group_is_upgraded_while_it_works(clients: Tools, broker: Broker) -> None:
    assert story(clients, broker, "upgrade") == [
        "classic: 3+3",
        "mixed: 2+2+2",
        "all commit: done",
        "one classic is left: 3+3",
        "upgraded: 6",
        f"committed: {ALL}",
    ]


def test_a_consumer_group_is_downgraded_while_it_works(clients: Tools, broker: Broker) -> None:
    assert story(clients, broker, "downgrade") == [
        "consumer: 6",
        "mixed: 3+3",
        "downgraded: 6",
        "two: 3+3",
    ]


def test_a_transaction_commits_the_offsets_of_a_member_at_its_epoch(clients: Tools, broker: Broker) -> None:
    assert story(clients, broker, "transactions") == [
        "all records: 6",
        "aborted: {}",
        f"committed: {ALL}",
        "two: 3+3",
        "at an epoch before that of its partitions: CommitFailedException",
        "at an epoch to come: CommitFailedException",
        "of an unknown member: CommitFailedException",
        "of nobody: done",
        "at the epoch: done",
    ]
