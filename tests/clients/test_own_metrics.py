"""Tests the metrics of Odradek's clients after a known amount of work."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator

import pytest

from odradek.client import (
    AbortableError,
    AcknowledgeType,
    ClientError,
    Metrics,
    RetriableError,
    ShareGroupMetadata,
    TopicPartition,
)
from odradek.client import Producer as AsyncProducer
from odradek.client.sync import Admin, Consumer, Producer
from tests.clients.admin import create_topic
from tests.clients.own_consumers import produce
from tests.clients.own_share_consumers import first_of, worker
from tests.clients.own_share_transactions import BROKER, TEN, producer_of, queue_of_ten, transactional_worker, upgrade
from tests.clients.speakers import wait_for
from tests.support.broker_process import IS_KAFKA, Broker, new_broker
from tests.support.oracle import REPOSITORY


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", BROKER) as running:
        if not IS_KAFKA:
            upgrade(running.bootstrap)
        yield running


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    return create_topic(bootstrap, request.node.name)


def values(metrics: Metrics, *names: str, group: str | None = None, **tags: str) -> list[float]:
    return [metrics.value(name, group=group, **tags) for name in names]


def test_a_producer_counts_records_batches_bytes_and_requests(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap, compression_type="gzip", linger_ms=1_000) as producer:
        for _ in range(100):
            producer.send(topic, b"x" * 1_000)
        producer.flush()
        found = producer.metrics()
    assert values(found, "record-send-total", "record-error-total", "record-retry-total") == [100, 0, 0]
    assert values(found, "record-send-total", "record-error-total", topic=topic) == [100, 0]
    assert values(found, "record-send-rate", topic=topic) == [pytest.approx(100 / 30, rel=0.2)]
    batch_size, largest, compression = values(found, "batch-size-avg", "batch-size-max", "compression-rate-avg")
    assert 0 < batch_size <= largest < 16_384
    assert 0 < compression < 0.2
    # A batch of 16 KiB contains about 15 records.
    assert found.value("byte-total", topic=topic) == pytest.approx(batch_size * 7)
    assert found.value("record-queue-time-max") < 1_000
    assert 0 < found.value("request-latency-avg") <= found.value("request-latency-max")
    assert found.value("flush-time-ns-total") > 0
    assert values(found, "buffer-total-bytes", "buffer-available-bytes") == [33_554_432, 33_554_432]
    assert values(found, "connection-count", "requests-in-flight", "waiting-threads") == [1, 0, 0]
    assert found.value("request-total") == found.value("response-total") > 3
    assert found.value("outgoing-byte-total") > found.value("byte-total", topic=topic)
    (node,) = {each.tags["node-id"] for each in found if each.group == "producer-node-metrics"}
    assert found.value("request-total", node_id=node) == found.value("request-total")
    assert 0 <= found.value("metadata-age") < 60
    after = producer.metrics()  # Metrics can be read after the producer has been closed.
    assert values(after, "record-send-total", "connection-count", "connection-close-total") == [100, 0, 1]


def test_a_producer_counts_failed_and_repeated_sends(broker: Broker, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, retry_backoff_ms=10, delivery_timeout_ms=1_000) as producer:
        producer.send(topic, b"before").result()
        broker.kill9()
        given_up = producer.send(topic, b"lost")
        with pytest.raises(RetriableError):
            given_up.result()
        found = producer.metrics()
        assert values(found, "record-error-total", "connection-count") == [1, 0]
        assert found.value("record-error-total", topic=topic) == 1
        broker.start()


def test_a_full_buffer_is_seen_in_the_metrics(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap, buffer_memory=1_000, linger_ms=60_000, max_block_ms=50) as producer:
        producer.send(topic, b"x" * 2_000)
        with pytest.raises(RetriableError):
            producer.send(topic, b"y").result()
        found = producer.metrics()
    assert values(found, "buffer-available-bytes", "buffer-exhausted-total", "record-send-total") == [0, 1, 0]
    assert found.value("bufferpool-wait-time-ns-total") >= 50e6


async def test_the_calls_of_a_transaction_are_timed(bootstrap: str, topic: str) -> None:
    names = [f"txn-{call}-time-ns-total" for call in ("init", "begin", "send-offsets", "commit", "abort")]
    producer = AsyncProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    assert values(producer.metrics(), *names) == [0] * 5
    async with producer:
        await producer.init_transactions()
        for _ in range(2):
            await producer.begin_transaction()
            await producer.send(topic, b"v")
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, topic)
            await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send(topic, b"dropped")
        await producer.abort_transaction()
        found = producer.metrics()
    assert all(value > 0 for value in values(found, *names))
    assert values(found, "txn-prepare-time-ns-total", "record-error-total") == [0, 0]


def test_a_consumer_counts_records_bytes_and_its_lag(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, *(b"%d" % number for number in range(10)))
    partition = TopicPartition(topic, 0)
    with Consumer(topic, bootstrap_servers=bootstrap, group_id=topic, heartbeat_interval_ms=50) as consumer:
        assert math.isnan(consumer.metrics().value("records-lag-max"))
        wait_for("records", lambda: consumer.getmany(max_records=4))
        found = consumer.metrics()
        assert values(found, "records-lag-max", "records-lead-min", "assigned-partitions") == [6, 4, 1]
        assert values(found, "records-lag", "records-lead", topic=topic, partition="0") == [6, 4]
        assert values(found, "records-consumed-total", "records-per-request-avg") == [4, 4]
        assert found.value("records-consumed-total", topic=topic) == 4
        assert found.value("bytes-consumed-total") == found.value("fetch-size-max") > 70
        assert found.value("bytes-consumed-total", topic=topic) == found.value("bytes-consumed-total")
        consumer.getone()
        consumer.commit()
        consumer.committed([partition])
        wait_for("a heartbeat", lambda: consumer.metrics().value("heartbeat-total") > 0)
        found = consumer.metrics()
        assert found.value("records-lag-max") == 5  # Prefetched records that `getone` has not returned count as lag.
        assert values(found, "commit-total", "rebalance-total", "join-total") == [1, 1, found.value("sync-total") + 1]
        for name in ("commit-latency-avg", "fetch-latency-max", "commit-sync-time-ns-total", "committed-time-ns-total"):
            assert found.value(name) > 0, name
        assert 0 <= found.value("last-heartbeat-seconds-ago") < 60
        assert 0 <= found.value("last-rebalance-seconds-ago") < 60
        assert 0 <= found.value("last-poll-seconds-ago") < 60
        assert found.value("time-between-poll-avg") >= 0
        assert 0 <= found.value("poll-idle-ratio-avg") <= 1
    assert consumer.metrics().value("records-consumed-total") == 10


@pytest.mark.skipif(IS_KAFKA, reason="no released Kafka has KIP-1289")
def test_a_share_consumer_and_its_producer_count_acknowledgements(
    bootstrap: str, request: pytest.FixtureRequest
) -> None:
    queue = queue_of_ten(bootstrap, request.node.name)
    with transactional_worker(bootstrap, queue) as consumer, producer_of(bootstrap, queue) as producer:
        producer.init_transactions()
        records = first_of(consumer)
        producer.begin_transaction()
        producer.send_share_acknowledgements_to_transaction(records[:8], consumer.share_group_metadata())
        producer.commit_transaction()
        producer.begin_transaction()
        with pytest.raises(AbortableError):
            producer.send_share_acknowledgements_to_transaction(records, ShareGroupMetadata(queue, "nobody", 1))
        producer.abort_transaction()
        found = producer.metrics()
        assert values(found, "share-ack-txn-send-total", "share-ack-txn-send-error-total") == [2, 1]
        assert found.value("share-ack-txn-send-rate") == pytest.approx(2 / 30, rel=0.2)
        for record in records[8:]:
            consumer.acknowledge(record, AcknowledgeType.RELEASE)
        consumer.commit()
        found = consumer.metrics()
    assert values(found, "share-group-metadata-fetch-total", "records-consumed-total") == [1, len(TEN)]
    assert values(found, "acknowledgements-send-total", "acknowledgements-error-total") == [2, 0]
    assert values(found, "rebalance-total", "records-per-request-max") == [1, 10]
    assert found.value("heartbeat-total") > 0
    assert found.value("bytes-consumed-total") > 70
    assert found.value("fetch-latency-avg") > 0


@pytest.mark.skipif(IS_KAFKA, reason="a group of Odradek's own settings")
def test_a_refused_metadata_call_counts_too(bootstrap: str, topic: str) -> None:
    with worker(bootstrap, topic, topic, "implicit") as consumer:
        with pytest.raises(ClientError):
            consumer.share_group_metadata()
        assert consumer.metrics().value("share-group-metadata-fetch-total") == 1


def test_an_admin_counts_its_requests(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap, client_id="operator") as admin:
        before = admin.metrics().value("request-total")
        admin.list_topics()
        found = admin.metrics()
    assert found.value("request-total") == before + 1
    assert {each.tags["client-id"] for each in found} == {"operator"}
    assert {each.group for each in found} == {"admin-client-metrics", "admin-client-node-metrics"}


PLAIN = """
import sys
from odradek.client.sync import Producer
with Producer(bootstrap_servers=sys.argv[1]) as producer:
    producer.send(sys.argv[2], b"v").result()
    assert producer.metrics().value("record-send-total") == 1
assert not any(name.startswith("prometheus_client") for name in sys.modules)
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from odradek.client.metrics.prometheus import ClientCollector
registry = CollectorRegistry()
registry.register(ClientCollector(producer))
print(generate_latest(registry).decode())
"""


def test_prometheus_is_loaded_only_with_its_collector(bootstrap: str, topic: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, bootstrap, topic], capture_output=True, text=True, cwd=REPOSITORY, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert f'kafka_producer_topic_record_send_total{{client_id="odradek",topic="{topic}"}} 1.0' in done.stdout
