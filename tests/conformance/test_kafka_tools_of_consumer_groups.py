"""Tests that kafka-consumer-groups and DumpLogSegments from Kafka 4.3.1 show and change KIP-848 groups as they do with
Kafka."""

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.clients.admin import create_topic
from tests.clients.speakers import SPEAKERS, Message, wait_for
from tests.conformance.tools import Tools
from tests.support.broker_process import Broker, new_broker
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

SETTINGS: dict[str, object] = {
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 100,
}
CONFLUENT = SPEAKERS["confluent-kafka"]
MESSAGES = [Message(b"%d" % n, partition=n % 2) for n in range(20)]


class Key(Enum):
    OFFSET = 1
    GROUP = 3
    PARTITION_METADATA = 4
    MEMBER = 5
    TARGET_METADATA = 6
    TARGET_MEMBER = 7
    CURRENT_MEMBER = 8
    REGULAR_EXPRESSION = 16


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", SETTINGS) as running:
        yield running


@pytest.fixture
def at(broker: Broker) -> tuple[str, str]:
    return ("--bootstrap-server", broker.bootstrap)


@pytest.fixture
def topic(broker: Broker) -> str:
    name = create_topic(broker.bootstrap, "t", partitions=2)
    SPEAKERS["confluent-kafka"].produce(
        broker.bootstrap, name, [Message(b"%d" % n, partition=n % 2) for n in range(20)]
    )
    return name


def member(broker: Broker, group: str, topic: str, **settings: object) -> Consumer:
    """Returns a member that owns both partitions and has consumed and committed all records."""
    given: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "client.id": "tooled",
    }
    own = Consumer(given | {name.replace("_", "."): value for name, value in settings.items()})
    own.subscribe([topic])
    seen: list[object] = []

    def has_all() -> bool:
        seen.extend(own.consume(20, 0.1))
        return len(seen) == 20

    wait_for("all records", has_all)
    own.commit(asynchronous=False)
    return own


def test_consumer_groups_lists_by_state_and_type(tools: Tools, at: tuple[str, str], broker: Broker, topic: str) -> None:
    own = member(broker, f"{topic}-g", topic)

    def listed(*options: str) -> dict[str, tuple[str, ...]]:
        rows = tools.run("consumer-groups", *at, "--list", *options).rows
        return {row["GROUP"]: (row["TYPE"], row["STATE"]) for row in rows}

    assert listed("--state", "--type")[f"{topic}-g"] == ("Consumer", "Stable")
    assert f"{topic}-g" in listed("--state", "Stable", "--type", "consumer")
    own.close()
    wait_for("the group to be empty", lambda: listed("--state", "--type")[f"{topic}-g"] == ("Consumer", "Empty"))


def test_consumer_groups_describes_members_offsets_and_state(
    tools: Tools, at: tuple[str, str], broker: Broker, topic: str
) -> None:
    group = f"{topic}-g"
    own = member(broker, group, topic, group_instance_id="here")

    def described(*options: str) -> list[dict[str, str]]:
        return tools.run("consumer-groups", *at, "--describe", "--group", group, *options).rows

    offsets = described("--offsets")
    assert [(row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in offsets] == [
        ("0", "10", "10", "0"),
        ("1", "10", "10", "0"),
    ]
    assert {(row["TOPIC"], row["HOST"], row["CLIENT-ID"]) for row in offsets} == {(topic, "/127.0.0.1", "tooled")}
    (shown,) = described("--members", "--verbose")
    assert (shown["GROUP-INSTANCE-ID"], shown["#PARTITIONS"], shown["CLIENT-ID"]) == ("here", "2", "tooled")
    assert shown["CURRENT-EPOCH"] == shown["TARGET-EPOCH"]
    assert shown["CURRENT-ASSIGNMENT"] == shown["TARGET-ASSIGNMENT"] == f"{topic}:0,1"
    (state,) = described("--state", "--verbose")
    assert (state["STATE"], state["ASSIGNMENT-STRATEGY"], state["#MEMBERS"]) == ("Stable", "uniform", "1")
    assert state["GROUP-EPOCH"] == state["TARGET-ASSIGNMENT-EPOCH"] == shown["CURRENT-EPOCH"]
    own.close()


def test_consumer_groups_resets_and_deletes_once_the_group_is_empty(
    tools: Tools, at: tuple[str, str], broker: Broker, topic: str
) -> None:
    group = f"{topic}-g"
    own = member(broker, group, topic)
    back = ("--reset-offsets", "--group", group, "--topic", topic, "--to-offset", 4, "--execute")
    refused = tools.start("consumer-groups", *at, *back).result(60)
    assert "Assignments can only be reset if the group" in refused.stdout + refused.stderr
    kept = tools.start("consumer-groups", *at, "--delete", "--group", group).result(60)
    assert "The group is not empty." in kept.stdout + kept.stderr
    subscribed = tools.start("consumer-groups", *at, "--delete-offsets", "--group", group, "--topic", topic).result(60)
    assert "subscribed" in subscribed.stdout + subscribed.stderr
    own.close()

    def offsets() -> list[tuple[str, str]]:
        described = tools.run("consumer-groups", *at, "--describe", "--group", group).rows
        return [(row["CURRENT-OFFSET"], row["LAG"]) for row in described]

    tools.run("consumer-groups", *at, *back)
    assert offsets() == [("4", "6"), ("4", "6")]
    deleted = tools.run("consumer-groups", *at, "--delete-offsets", "--group", group, "--topic", f"{topic}:1")
    assert deleted.stdout.count("Successful") == 1
    assert offsets() == [("4", "6")]
    ended = tools.run("consumer-groups", *at, "--delete", "--group", group)
    assert f"Deletion of requested consumer groups ('{group}') was successful." in ended.stdout
    assert group not in tools.run("consumer-groups", *at, "--list").lines


def test_dump_log_decodes_every_record_of_consumer_groups(tools: Tools, tmp_path: Path) -> None:
    """Checks that the tool decodes keys 3 to 8 and 16, both with values and as tombstones. Kafka 4.3 writes key 4 only
    as a tombstone."""
    with new_broker(tmp_path / "data", SETTINGS) as broker:
        topic = create_topic(broker.bootstrap, "t", partitions=2)
        CONFLUENT.produce(broker.bootstrap, topic, MESSAGES)
        member(broker, "g", f"^{topic}.*").close()
        tools.run("consumer-groups", "--bootstrap-server", broker.bootstrap, "--delete", "--group", "g")
        broker.stop()
        logs = sorted((broker.data_dir / "__consumer_offsets-0").glob("*.log"))
        ran = tools.run("dump-log", "--offsets-decoder", "--files", ",".join(map(str, logs)))
    printed = re.findall(r'key: {"type":"(\d+)",.*? payload: (<DELETE>|{"version")', ran.stdout)
    records = [line for line in ran.lines if line.startswith("| offset:")]
    assert len(printed) == len(records), "a record is not decoded"
    keys = {Key(int(key)) for key, payload in printed if payload != "<DELETE>"}
    tombstones = {Key(int(key)) for key, payload in printed if payload == "<DELETE>"}
    assert keys == set(Key) - {Key.PARTITION_METADATA}
    assert tombstones == set(Key)
