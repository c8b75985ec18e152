"""Tests that kafka-share-groups, kafka-configs and DumpLogSegments from Kafka 4.3.1 handle share groups as they do with
Kafka."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.admin import create_topic
from tests.clients.own_consumers import produce
from tests.clients.own_share_consumers import SETTINGS, first_of, share_group, worker
from tests.conformance.tools import ToolResult, Tools
from tests.support.broker_process import Broker, new_broker
from tests.support.oracle import needs_kafka
from tests.unit.tools.inspect.test_as_kafka_dumps import entries, said, said_by_kafka

pytestmark = needs_kafka

ONE_PARTITION: dict[str, object] = SETTINGS | {
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", ONE_PARTITION) as running:
        yield running


def test_share_groups_are_described_reset_and_deleted(tools: Tools, broker: Broker) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    topic = create_topic(broker.bootstrap, "tooled", exact=True)
    produce(broker.bootstrap, topic, *(b"%d" % number for number in range(10)))
    group = share_group(broker.bootstrap, "tooled-g")

    def described(*options: str) -> list[dict[str, str]]:
        return tools.run("share-groups", *at, "--describe", "--group", group, *options).rows

    with worker(broker.bootstrap, topic, group) as consumer:
        for record in first_of(consumer)[:6]:
            consumer.acknowledge(record)
        consumer.commit()
        (state,) = described("--state", "--verbose")
        assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
        (member,) = described("--members", "--verbose")
        assert (member["GROUP"], member["HOST"]) == (group, "/127.0.0.1")
        refused = tools.start("share-groups", *at, "--delete", "--group", group).result(60)
        assert "not empty" in (refused.stdout + refused.stderr).lower()
    listed = rows_of_list(tools.run("share-groups", *at, "--list", "--state"))
    assert listed[group] == "Empty"
    (offsets,) = described("--offsets", "--verbose")
    assert (offsets["TOPIC"], offsets["PARTITION"], offsets["LAG"]) == (topic, "0", "4")
    back = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest")
    assert topic in tools.run("share-groups", *at, *back, "--dry-run").stdout
    assert described("--offsets")[0]["LAG"] == "4"
    tools.run("share-groups", *at, *back, "--execute")
    assert (described("--offsets")[0]["START-OFFSET"], described("--offsets")[0]["LAG"]) == ("0", "10")
    deleted = tools.run("share-groups", *at, "--delete-offsets", "--group", group, "--topic", topic)
    assert "Successful" in deleted.stdout
    ended = tools.run("share-groups", *at, "--delete", "--group", group)
    assert f"Deletion of requested share groups ('{group}') was successful." in ended.stdout
    assert group not in tools.run("share-groups", *at, "--list").lines


def rows_of_list(ran: ToolResult) -> dict[str, str]:
    return {words[0]: words[1] for words in (line.split() for line in ran.lines) if len(words) == 2}


def test_settings_of_groups_are_altered_and_described(tools: Tools, broker: Broker) -> None:
    at = ("--bootstrap-server", broker.bootstrap, "--entity-type", "groups", "--entity-name", "configured")
    tools.run("configs", *at, "--alter", "--add-config", "share.record.lock.duration.ms=20000")
    assert "share.record.lock.duration.ms=20000" in tools.run("configs", *at, "--describe").stdout
    refused = tools.start("configs", *at, "--alter", "--add-config", "share.record.lock.duration.ms=90000").result(60)
    assert refused.status != 0
    assert "must be in the range 1000 to 60000 inclusive" in refused.stdout + refused.stderr
    tools.run("configs", *at, "--alter", "--delete-config", "share.record.lock.duration.ms")
    assert "20000" not in tools.run("configs", *at, "--describe").stdout


def test_dump_log_and_inspect_say_the_same_of_every_record(tools: Tools, broker: Broker) -> None:
    """Checks that both tools decode every record in the same way. Must run last, because it reads everything that the
    tests above made the broker write."""
    broker.stop()
    types: set[Any] = set()
    for topic, decoder in (
        ("__consumer_offsets-0", "--offsets-decoder"),
        ("__share_group_state-0", "--share-group-state-decoder"),
    ):
        (log,) = sorted(Path(broker.data_dir / topic).glob("*.log"))
        lines = [line for line in tools.run("dump-log", decoder, "--files", log).lines if line.startswith("| offset")]
        ours = [entry for entry in entries(log) if entry.kind != "batch"]
        assert lines
        for entry, line in zip(ours, lines, strict=True):
            assert said(entry) == said_by_kafka(line), line
            types.add((topic, line.partition('key: {"type":"')[2].partition('"')[0]))
    assert {int(number) for topic, number in types if "offsets" in topic} >= {10, 11, 12, 13, 14, 15}
    assert {int(number) for topic, number in types if "share" in topic} == {0, 1}
