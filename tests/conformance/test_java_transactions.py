"""Tests the transactional producers from kafka-clients 4.3.1 and 4.4.0 at transaction.version 2, and Kafka's tools for
transactions."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.protocol.errors import ErrorCode
from tests.clients.admin import create_topic
from tests.clients.speakers import SPEAKERS, Message
from tests.conformance.tools import Tools
from tests.support.broker_process import Broker, new_broker
from tests.support.hanging import leave_hanging
from tests.support.oracle import needs_kafka
from tests.support.two_phase import TwoPhaseClient
from tests.support.wire import Wire

pytestmark = needs_kafka


@pytest.fixture(scope="module", params=["false", "true"], ids=["ordinary", "two-phase"])
def broker(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Yields a broker that refuses two-phase commit, then one that allows it. Clients that do not request two-phase
    commit (InitProducerId v5) must get the same responses from both."""
    settings = {"offsets.topic.num.partitions": 4, "transaction.two.phase.commit.enable": request.param}
    with new_broker(tmp_path_factory.mktemp("broker") / "data", settings) as running:
        yield running


@pytest.fixture
def at(broker: Broker) -> tuple[str, str]:
    return ("--bootstrap-server", broker.bootstrap)


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    return create_topic(broker.bootstrap, request.node.name)


def story(clients: Tools, broker: Broker, topic: str, name: str, *more: object) -> list[str]:
    return clients.run("transactional", broker.bootstrap, name, topic, *more).lines


# --- the producer


def test_committed_readers_get_committed_and_no_aborted_records(clients: Tools, broker: Broker, topic: str) -> None:
    assert story(clients, broker, topic, "ends") == [
        "read_committed: 0a 0b 2a 2b 4a 4b",
        "read_committed: 0a 0b 2a 2b 4a 4b",
        "read_uncommitted: 0a 0b 1a 1b 2a 2b 3a 3b 4a 4b 5a 5b",
    ]


def test_offsets_of_a_transaction_count_when_it_is_committed(clients: Tools, broker: Broker, topic: str) -> None:
    assert story(clients, broker, topic, "offsets") == [
        "committed: 10 by 1",
        "committed: 10 by 1",
        "committed: 30 by 3",
        "offsets of an unknown member: CommitFailedException",
        "abort: done",
        "committed: 30 by 3",
        "read_committed: n1 n3",
    ]


def test_a_zombie_is_fenced(clients: Tools, broker: Broker, topic: str) -> None:
    sent, committed, *seen = story(clients, broker, topic, "zombie")
    assert sent in ("send: InvalidProducerEpochException", "send: ProducerFencedException")
    assert committed in (
        "commit: InvalidProducerEpochException",
        "commit: ProducerFencedException",
        "commit: KafkaException",
    )
    assert seen == ["read_committed: of its successor", "read_uncommitted: of the zombie of its successor"]


def test_a_transaction_that_takes_too_long_is_aborted(clients: Tools, broker: Broker, topic: str) -> None:
    """Checks that the broker aborts an expired transaction. It looks for such transactions every ten seconds
    (`transaction.abort.timed.out.transaction.cleanup.interval.ms`)."""
    refused, seen = story(clients, broker, topic, "timeout")
    assert refused in ("commit: ProducerFencedException", "commit: InvalidProducerEpochException")
    assert seen == "read_committed: again"


def test_many_transactions_of_one_producer_are_read_in_order(clients: Tools, broker: Broker, topic: str) -> None:
    expected = " ".join(str(n) for n in range(400) if n % 10 != 9)
    assert story(clients, broker, topic, "many", 400) == [f"read_committed: {expected}"]


# --- the tools


def test_transactions_lists_and_describes(tools: Tools, at: tuple[str, str], broker: Broker, topic: str) -> None:
    name = f"{topic}-open"
    assert story(tools, broker, topic, "open", name) == ["open"]
    listed = [line.split() for line in tools.run("transactions", *at, "list").lines]
    (row,) = [line for line in listed if line[0] == name]
    assert "Ongoing" in row
    described = tools.run("transactions", *at, "describe", "--transactional-id", name).lines
    headings, cells = (re.split(r"\s*\t\s*|\s{2,}", line.strip()) for line in described[:2])
    shown = dict(zip(headings, cells, strict=False))
    assert shown["TransactionState"] == "Ongoing"
    assert shown["TransactionTimeoutMs"] == "600000"
    assert f"{topic}-0" in described[1]
    producers = tools.run("transactions", *at, "describe-producers", "--topic", topic, "--partition", 0).lines
    assert len(producers) == 2


def test_transactions_aborts_an_open_transaction(tools: Tools, at: tuple[str, str], broker: Broker, topic: str) -> None:
    """The tool identifies the transaction by its start offset. The marker is sent directly to the partition, as for a
    hanging transaction."""
    name = f"{topic}-open"
    story(tools, broker, topic, "open", name)
    hanging = tools.run("transactions", *at, "find-hanging", "--broker-id", 1, "--max-transaction-timeout", 0).lines
    assert not any(topic in line for line in hanging)  # The coordinator knows this transaction.
    tools.run("transactions", *at, "abort", "--topic", topic, "--partition", 0, "--start-offset", 0)
    SPEAKERS["confluent-kafka"].produce(broker.bootstrap, topic, [Message(b"behind it")])
    consumed = tools.run(
        "console-consumer",
        *at,
        *("--topic", topic, "--from-beginning", "--max-messages", 1, "--timeout-ms", 20_000),
        *("--isolation-level", "read_committed"),
    )
    assert consumed.lines == ["behind it"]


def test_transactions_finds_and_aborts_a_hanging_transaction(tools: Tools, tmp_path: Path) -> None:
    """The transaction is open in the partition but unknown to its coordinator. It is an hour old, which is more than
    the tool's limit of fifteen minutes."""
    with new_broker(tmp_path / "data", {"transaction.partition.verification.enable": "false"}) as broker:
        at = ("--bootstrap-server", broker.bootstrap)
        topic = create_topic(broker.bootstrap, "hangs")
        producer_id = leave_hanging(broker.bootstrap, "lost", topic, age_ms=3_600_000)
        SPEAKERS["confluent-kafka"].produce(broker.bootstrap, topic, [Message(b"behind it")])
        heading, row = tools.run("transactions", *at, "find-hanging", "--broker-id", 1).lines
        found = dict(zip(heading.split(), row.split(), strict=False))
        assert (found["Topic"], found["Partition"], found["ProducerId"], found["StartOffset"]) == (
            topic,
            "0",
            str(producer_id),
            "0",
        )
        assert story(tools, broker, topic, "read") == ["read_committed: ", "read_uncommitted: hanging behind it"]
        tools.run("transactions", *at, "abort", "--topic", topic, "--partition", 0, "--start-offset", 0)
        assert story(tools, broker, topic, "read") == [
            "read_committed: behind it",
            "read_uncommitted: hanging behind it",
        ]
        assert tools.run("transactions", *at, "find-hanging", "--broker-id", 1).lines[1:] == []


def test_transactions_ends_a_two_phase_commit_by_force(tools: Tools, tmp_path: Path) -> None:
    with new_broker(tmp_path / "data", {"transaction.two.phase.commit.enable": "true"}) as broker:
        at = ("--bootstrap-server", broker.bootstrap)
        topic = create_topic(broker.bootstrap, "forced")
        with Wire(broker.bootstrap) as wire:
            client = TwoPhaseClient(wire)
            client.open("forced", topic)
            kept = client.keep("forced")
            SPEAKERS["confluent-kafka"].produce(broker.bootstrap, topic, [Message(b"behind it")])
            tools.run("transactions", *at, "forceTerminateTransaction", "--transactionalId", "forced")
            assert client.end("forced", kept, commit=True) is ErrorCode.PRODUCER_FENCED
        assert story(tools, broker, topic, "read") == [
            "read_committed: behind it",
            "read_uncommitted: prepared behind it",
        ]


def test_the_transaction_log_is_read_as_kafkas(tools: Tools, broker: Broker, topic: str) -> None:
    name = f"{topic}-many"
    story(tools, broker, topic, "many", 3)
    logs = sorted(str(path) for path in broker.data_dir.glob("__transaction_state-*/*.log") if path.stat().st_size)
    printed = tools.run("dump-log", "--transaction-log-decoder", "--files", ",".join(logs)).lines
    values = [json.loads(line.split(" payload: ")[1]) for line in printed if f'"transactionalId":"{name}"' in line]
    # The first state is Empty. Each transaction is then ongoing, prepared and completed.
    assert [value["data"]["transactionStatus"] for value in values] == [0, *([1, 2, 4] * 3)]
    assert {value["version"] for value in values} == {"1"}
    epochs = [value["data"]["producerEpoch"] for value in values]
    assert epochs == sorted(epochs)
    assert len(set(epochs)) >= 4


def test_features_lowers_and_raises_the_transaction_version(
    tools: Tools, at: tuple[str, str], broker: Broker, topic: str
) -> None:
    def level() -> str:
        described = tools.run("features", *at, "describe").lines
        (line,) = [line for line in described if line.startswith("Feature: transaction.version")]
        found = re.search(r"FinalizedVersionLevel: (\d+)", line)
        assert found is not None
        return found[1]

    assert level() == "2"
    for how, to in (("downgrade", 1), ("downgrade", 0), ("upgrade", 1), ("upgrade", 2)):
        tools.run("features", *at, how, "--feature", f"transaction.version={to}")
        assert level() == str(to)
        name = create_topic(broker.bootstrap, f"{topic}-{how}-{to}")
        assert story(tools, broker, name, "many", 3) == ["read_committed: 0 1 2"]


def test_the_transactional_message_copier_copies_all(
    tools: Tools, at: tuple[str, str], broker: Broker, topic: str
) -> None:
    records = [Message(b"%d" % n) for n in range(500)]
    SPEAKERS["confluent-kafka"].produce(broker.bootstrap, topic, records)
    copy = create_topic(broker.bootstrap, f"{topic}-copy")
    words = {
        "--broker-list": broker.bootstrap,
        "--transactional-id": f"{topic}-copier",
        "--consumer-group": f"{topic}-group",
        "--input-topic": topic,
        "--input-partition": 0,
        "--output-topic": copy,
        "--max-messages": 500,
        "--transaction-size": 50,
    }
    tools.run(
        "transactional-message-copier",
        *(part for word in words.items() for part in word),
        "--enable-random-aborts",
    )
    consumed = tools.run(
        "console-consumer",
        *at,
        *("--topic", copy, "--from-beginning", "--max-messages", 500, "--timeout-ms", 20_000),
        *("--isolation-level", "read_committed"),
    )
    assert consumed.lines == [str(n) for n in range(500)]
