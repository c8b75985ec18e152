"""Tests that Spark's own Kafka source and sink work with this broker unmodified (docs/spec/spark.md#s5)."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest

from odradek.client import TopicPartition
from odradek.client.sync import Admin, Consumer, Producer
from tests.clients.admin import create_topic
from tests.spark_connector.conftest import Connector
from tests.support.broker_process import Broker

TRANSACTIONS = 20
ABORTED = {3, 7, 11, 12, 19}
ROWS = 50  # rows per transaction
PARTITIONS = 3
BEGUN_MS = time.time_ns() // 1_000_000 + 1_800_000  # after the markers, because ListOffsets also finds markers
COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture(scope="session")
def filled(broker: Broker) -> str:
    """Returns a topic with 15 committed and 5 aborted transactions. Each transaction writes to all partitions."""
    topic = create_topic(broker.bootstrap, "filled", partitions=PARTITIONS)
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id="filler") as producer:
        producer.init_transactions()
        for transaction in range(TRANSACTIONS):
            producer.begin_transaction()
            for number in range(ROWS):
                producer.send(
                    topic,
                    b"%d.%d" % (transaction, number),
                    key=b"k%d" % number,
                    partition=number % PARTITIONS,
                    timestamp_ms=BEGUN_MS + transaction,
                    headers=[("transaction", b"%d" % transaction)],
                )
            producer.flush()
            if transaction in ABORTED:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    return topic


def expected(transactions: range = range(TRANSACTIONS), *, aborted: bool = False) -> Counter[str]:
    return Counter(
        f"{transaction}.{number}"
        for transaction in transactions
        for number in range(ROWS)
        if aborted or transaction not in ABORTED
    )


def reads(connector: Connector, broker: Broker, **options: str) -> list[list[object]]:
    return list(connector("read", options={"kafka.bootstrap.servers": broker.bootstrap} | COMMITTED | options))


def values(rows: list[list[object]]) -> Counter[str]:
    return Counter(str(row[4]) for row in rows)


def test_a_batch_reads_only_committed_records(connector: Connector, broker: Broker, filled: str) -> None:
    rows = reads(connector, broker, subscribe=filled)
    assert values(rows) == expected()
    assert len({(row[1], row[2]) for row in rows}) == len(rows)


def test_a_batch_with_read_uncommitted_reads_all_records(connector: Connector, broker: Broker, filled: str) -> None:
    rows = reads(connector, broker, subscribe=filled, **{"kafka.isolation.level": "read_uncommitted"})
    assert values(rows) == expected(aborted=True)


def test_topics_are_read_by_pattern_with_headers(connector: Connector, broker: Broker, filled: str) -> None:
    rows = reads(connector, broker, subscribePattern=f"{filled[:-1]}.", includeHeaders="true")
    assert values(rows) == expected()
    assert all(row[5] == [["transaction", str(row[4]).split(".")[0]]] for row in rows)


def test_assigned_partitions_are_read_from_the_earliest_to_the_latest_offset(
    connector: Connector, broker: Broker, filled: str
) -> None:
    rows = reads(
        connector,
        broker,
        assign=json.dumps({filled: [0, 2]}),
        startingOffsets=json.dumps({filled: {"0": -2, "2": -2}}),
        endingOffsets=json.dumps({filled: {"0": -1, "2": -1}}),
    )
    assert Counter(row[1] for row in rows) == {0: 15 * 17, 2: 15 * 16}


def test_a_range_may_begin_and_end_between_markers(connector: Connector, broker: Broker, filled: str) -> None:
    """Each transaction occupies 18 offsets in partition 0: 17 records and a marker."""
    rows = reads(
        connector,
        broker,
        assign=json.dumps({filled: [0]}),
        startingOffsets=json.dumps({filled: {"0": 18 + 5}}),
        endingOffsets=json.dumps({filled: {"0": 3 * 18 + 4}}),
    )
    assert [row[2] for row in rows] == [*range(18 + 5, 18 + 17), *range(2 * 18, 2 * 18 + 17)]


def test_a_range_of_an_aborted_transaction_and_its_marker_is_empty(
    connector: Connector, broker: Broker, filled: str
) -> None:
    rows = reads(
        connector,
        broker,
        assign=json.dumps({filled: [0]}),
        startingOffsets=json.dumps({filled: {"0": 3 * 18}}),
        endingOffsets=json.dumps({filled: {"0": 4 * 18}}),
    )
    assert rows == []


def test_a_batch_query_reads_from_a_timestamp_on(connector: Connector, broker: Broker, filled: str) -> None:
    rows = reads(connector, broker, subscribe=filled, startingTimestamp=str(BEGUN_MS + 10))
    assert values(rows) == expected(range(10, TRANSACTIONS))


def test_a_batch_may_have_more_tasks_than_partitions(connector: Connector, broker: Broker, filled: str) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": filled, "minPartitions": "12"} | COMMITTED
    assert connector("tasks", options=options) == 12
    assert values(reads(connector, broker, subscribe=filled, minPartitions="12")) == expected()


def test_a_batch_is_written_with_keys_headers_and_partitions(connector: Connector, broker: Broker) -> None:
    topic = create_topic(broker.bootstrap, "written", partitions=PARTITIONS)
    rows = [[f"k{number}", f"v{number}", number % PARTITIONS, [["h", str(number)]]] for number in range(300)]
    connector("write", options={"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}, rows=rows)
    found = reads(connector, broker, subscribe=topic, includeHeaders="true")
    assert sorted([row[3], row[4], row[1], row[5]] for row in found) == sorted(rows)


def streams(connector: Connector, broker: Broker, source: str, target: str, checkpoint: Path) -> dict[str, object]:
    servers = {"kafka.bootstrap.servers": broker.bootstrap}
    return dict(
        connector(
            "copy",
            source=servers
            | COMMITTED
            | {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"},
            sink=servers | {"topic": target, "checkpointLocation": str(checkpoint)},
        )
    )


def test_a_stream_copies_every_record_of_a_topic_to_another(
    connector: Connector, broker: Broker, filled: str, tmp_path: Path
) -> None:
    target = create_topic(broker.bootstrap, "target", partitions=PARTITIONS)
    result = streams(connector, broker, filled, target, tmp_path)
    assert result["rows"] == expected().total()
    assert result["batches"] == -(-(TRANSACTIONS * (ROWS + PARTITIONS)) // 300)
    assert values(reads(connector, broker, subscribe=target)) == expected()
    metrics = result["metrics"]
    assert isinstance(metrics, dict)
    assert float(metrics["maxOffsetsBehindLatest"]) == 0


@pytest.mark.parametrize("is_stream", [False, True], ids=["batch", "stream"])
def test_an_open_transaction_at_the_head_is_read_once_it_is_committed(
    connector: Connector, broker: Broker, tmp_path: Path, is_stream: bool
) -> None:
    """The transaction uses two-phase commit (KIP-939), so no timeout can end it."""
    source = create_topic(broker.bootstrap, "source", partitions=1)
    target = create_topic(broker.bootstrap, "target", partitions=1)

    def found() -> int:
        if not is_stream:
            return len(reads(connector, broker, subscribe=source))
        streams(connector, broker, source, target, tmp_path)
        return len(reads(connector, broker, subscribe=target))

    name = f"two-phase-{uuid.uuid4().hex}"
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=name, two_phase_commit=True) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(10):
            producer.send(source, b"%d" % number)
        state = producer.prepare_transaction()
    assert found() == 0
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.end_transaction(name, state, committed=True)
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        assert consumer.end_offsets([TopicPartition(source, 0)]) == {TopicPartition(source, 0): 11}
    assert found() == 10
