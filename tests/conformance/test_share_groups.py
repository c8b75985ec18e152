"""Tests that share groups work with Kafka 4.3.1's own tools and share consumer and continue in a directory that Kafka
wrote."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.shares.core.sessions import SessionKey, ShareSessions
from odradek.client.sharing.share_session import ShareSession
from odradek.protocol.errors import ErrorCode
from tests.clients.admin import create_topic
from tests.clients.test_share_consumers import QUICK, configure, member, polled, produce
from tests.conformance.test_directories_of_kafka import settings
from tests.conformance.tools import QUICK_JVM, Tools
from tests.support.broker_process import Broker, BrokerProcess, KafkaProcess, new_broker
from tests.support.oracle import needs_kafka, needs_oracle, run_kafka, served, unpack

COUNT = 30
EPOCHS = (0, 1, 2**31 - 2, 2**31 - 1)
NEXT_EPOCHS = """
public class NextEpochs {
  public static void main(String[] epochs) {
    for (String each : epochs)
      System.out.println(org.apache.kafka.common.requests.ShareRequestMetadata.nextEpoch(Integer.parseInt(each)));
  }
}
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(
        tmp_path_factory.mktemp("broker") / "data", {"offsets.topic.num.partitions": 4, **QUICK}
    ) as running:
        yield running


@needs_kafka
def test_kafkas_tools_work_with_share_groups(tools: Tools, broker: Broker) -> None:
    topic = create_topic(broker.bootstrap, "with-tools")
    at = ("--bootstrap-server", broker.bootstrap)
    configure(broker, "tooled", share_auto_offset_reset="earliest")
    produce(broker, topic, [str(number) for number in range(10)])
    consumed = tools.run(
        "console-share-consumer",
        *at,
        "--topic",
        topic,
        "--group",
        "tooled",
        "--max-messages",
        10,
        "--timeout-ms",
        20000,
    )
    assert sorted(consumed.lines[:10]) == [str(number) for number in range(10)]
    assert "tooled" in tools.run("share-groups", *at, "--list").lines
    state = tools.run("share-groups", *at, "--describe", "--group", "tooled", "--state").stdout
    assert "Empty" in state or "Stable" in state
    described = tools.run("share-groups", *at, "--describe", "--group", "tooled").stdout
    assert topic in described
    reset = ("--reset-offsets", "--group", "tooled", "--topic", topic, "--to-earliest", "--execute")
    assert topic in tools.run("share-groups", *at, *reset).stdout
    consumed = tools.run(
        "console-share-consumer",
        *at,
        "--topic",
        topic,
        "--group",
        "tooled",
        "--max-messages",
        10,
        "--timeout-ms",
        20000,
    )
    assert sorted(consumed.lines[:10]) == [str(number) for number in range(10)]
    deleted = tools.run("share-groups", *at, "--delete", "--group", "tooled").stdout
    assert "successful" in deleted


@needs_kafka
def test_kafkas_own_function_counts_epochs_as_broker_and_client_do(tmp_path: Path) -> None:
    """Session epochs wrap in the same way in Kafka, in this broker and in its client. The test calls the functions,
    because a running broker would need 2^31 requests (scenario 7 of docs/spec/share-groups.md#s7-1)."""
    source = tmp_path / "NextEpochs.java"
    source.write_text(NEXT_EPOCHS)
    java = ["java", *QUICK_JVM, "-cp", run_kafka("classpath").strip(), str(source), *map(str, EPOCHS)]
    printed = subprocess.run(java, capture_output=True, text=True, check=True, timeout=120).stdout
    kafka = [int(line) for line in printed.split()]
    assert kafka == [1, 2, 2**31 - 1, 1]
    assert [after_a_fetch(epoch) for epoch in EPOCHS] == kafka
    clients = [ShareSession(epoch) for epoch in EPOCHS]
    for session in clients:
        session.on_fetch_response(frozenset(), ErrorCode.NONE)
    assert [session.epoch for session in clients] == kafka


def after_a_fetch(epoch: int) -> int:
    """Returns the epoch that the broker expects after a request with the given epoch."""
    sessions, key = ShareSessions(1), SessionKey("g", "m", 1)
    session = sessions.fetch(key, 0, [], [], "connection")
    if epoch:
        session.epoch = epoch
        sessions.fetch(key, epoch, [], [], "connection")
    return session.epoch


@needs_oracle
def test_share_groups_that_kafka_recorded_go_on_where_they_were(tmp_path: Path) -> None:
    """While Kafka ran, the group acknowledged the 30 records of one partition: it released every fifth record and
    accepted or rejected the others."""
    path = unpack("groups", tmp_path)
    with new_broker(path, {**settings(served("groups")), **QUICK}) as broker:
        with member(broker, "sharing-2", "input") as consumer:
            got = polled(consumer, until=66)
            consumer.commit_sync()
        # 60 records of two partitions from which nothing had been fetched, and 6 released records
        assert len(got) == len(set(got)) == 66


@needs_kafka
def test_kafka_continues_share_groups_of_ours_and_we_continue_kafkas(tmp_path: Path) -> None:
    data = tmp_path / "data"
    few = {"offsets.topic.num.partitions": 3, "share.coordinator.state.topic.num.partitions": 3}
    ours = BrokerProcess(data, {**few, **QUICK})
    values = [str(number) for number in range(30)]
    with ours:
        topic = create_topic(ours.bootstrap, "handed-over")
        configure(ours, "g", share_auto_offset_reset="earliest")
        produce(ours, topic, values[:10])
        with member(ours, "g", topic) as consumer:
            assert polled(consumer, until=10) == values[:10]
            consumer.commit_sync()
    with KafkaProcess(data, QUICK) as kafka:
        produce(kafka, topic, values[10:20])
        with member(kafka, "g", topic) as consumer:
            assert polled(consumer, until=10) == values[10:20]
            consumer.commit_sync()
    with ours:
        produce(ours, topic, values[20:])
        with member(ours, "g", topic) as consumer:
            assert polled(consumer, until=10) == values[20:]
            consumer.commit_sync()
