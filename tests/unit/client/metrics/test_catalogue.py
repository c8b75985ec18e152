"""Tests that each client's metrics have the same names as in Kafka's Java clients 4.3.1, and that all of them are
documented.

Each line of `kafka_4_3_1.txt` is a metric that `metrics()` of a Java client returned: client, group, name, tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.client.common.values import TopicPartition
from odradek.client.metrics.client_metrics import ClientMetrics
from odradek.client.metrics.consumer_metrics import ConsumerMetrics, PartitionReading, ShareConsumerMetrics
from odradek.client.metrics.producer_metrics import ProducerMetrics
from odradek.client.metrics.prometheus import ClientCollector
from odradek.client.metrics.values import Metric, MetricKind, Metrics, Unit
from tests.support.oracle import REPOSITORY

KIP_1289 = {
    "share-ack-txn-send-rate",
    "share-ack-txn-send-total",
    "share-ack-txn-send-error-rate",
    "share-ack-txn-send-error-total",
    "share-group-metadata-fetch-rate",
    "share-group-metadata-fetch-total",
}
UNITS = {
    "-rate": {Unit.PER_SECOND, Unit.BYTES_PER_SECOND, Unit.RATIO},
    "-rate-per-hour": {Unit.PER_HOUR},
    "-ns-total": {Unit.NANOSECONDS},
    "-bytes": {Unit.BYTES},
    "-seconds-ago": {Unit.SECONDS},
    "-ratio-avg": {Unit.RATIO},
    "-latency-avg": {Unit.MILLISECONDS},
    "-latency-max": {Unit.MILLISECONDS},
}


def producer() -> ProducerMetrics:
    metrics = ProducerMetrics("c")
    metrics.watch(
        requests_in_flight=lambda: 1,
        metadata_age_s=lambda: 2.0,
        buffer_bytes=100,
        buffered_bytes=lambda: 30,
        waiting=lambda: 0,
    )
    metrics.record_batch("orders", 3, 100, 0.5, 0.1)
    return metrics


def consumer() -> ConsumerMetrics:
    metrics = ConsumerMetrics("c")
    metrics.read_partitions = lambda: [PartitionReading(TopicPartition("orders", 0), 5, 7)]
    metrics.record_returned("orders", 3)
    return metrics


CLIENTS = {
    "producer": producer(),
    "consumer": consumer(),
    "share": ShareConsumerMetrics("c"),
    "admin": ClientMetrics("admin-client", "c"),
}


def of(client: str) -> Iterator[Metric]:
    metrics = CLIENTS[client]
    metrics.node("localhost", 9092)
    metrics.node_id_of = lambda _: 1
    yield from metrics.read()


@pytest.mark.parametrize("client", CLIENTS)
def test_names_groups_and_tags_are_kafkas(client: str) -> None:
    lines = (Path(__file__).parent / "kafka_4_3_1.txt").read_text().splitlines()
    kafkas = {line.partition(" ")[2] for line in lines if line.startswith(f"{client} ")}
    found = [f"{each.group} {each.name} {','.join(sorted(each.tags))}" for each in of(client)]
    assert len(found) == len(set(found))
    assert {each for each in set(found) - kafkas if each.split()[1] not in KIP_1289} == set()


def test_each_metric_that_a_kip_about_transactions_names_for_clients_is_there() -> None:
    names = {each.name for client in CLIENTS for each in of(client)}
    assert names >= KIP_1289
    assert "txn-prepare-time-ns-total" in names  # this metric comes from KIP-939, and Kafka already has it
    assert {f"txn-{call}-time-ns-total" for call in ("init", "begin", "send-offsets", "commit", "abort")} <= names
    acknowledgements = {"acknowledgements-send-rate", "acknowledgements-error-rate"}
    assert acknowledgements <= {each.name for each in of("share")}  # these metrics come from KIP-932


@pytest.mark.parametrize("client", CLIENTS)
def test_units_and_kinds_follow_from_the_names(client: str) -> None:
    for each in of(client):
        assert each.kind is (MetricKind.COUNTER if each.name.endswith("-total") else MetricKind.GAUGE), each
        for suffix, units in UNITS.items():
            if each.name.endswith(suffix):
                assert each.unit in units, each
        assert each.description, each


def test_every_metric_is_documented_and_every_documented_metric_is_there() -> None:
    page = (REPOSITORY / "docs" / "client.md").read_text(encoding="utf-8")
    _, _, section = page.partition("\n## Metrics\n")
    section, _, _ = section.partition("\n## ")
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    documented: set[str] = set()
    for row in rows:
        groups, names, _ = row.strip("|").split("|")
        for group in re.findall(r"`([a-z-]+)`", groups):
            documented |= {f"{group} {name}" for name in expanded(names)}
    assert documented == {f"{each.group} {each.name}" for client in CLIENTS for each in of(client)}


def expanded(names: str) -> Iterator[str]:
    """Yields each name in the text. `record-send-{rate,total}` is an abbreviation for two names."""
    for written in re.findall(r"`([^`]+)`", names):
        stem, brace, endings = written.partition("{")
        yield from (f"{stem}{each}" for each in endings.rstrip("}").split(",")) if brace else [written]


class Client:
    def __init__(self, metrics: ClientMetrics) -> None:
        self._metrics = metrics

    def metrics(self) -> Metrics:
        return self._metrics.read()


def test_a_registry_of_prometheus_gets_each_metric_once_under_its_tags() -> None:
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import generate_latest
    from prometheus_client.parser import text_string_to_metric_families

    registry = CollectorRegistry()
    clients = [Client(CLIENTS[name]) for name in ("producer", "consumer", "admin")]
    registry.register(ClientCollector(*clients))
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    samples = [(each.name, tuple(sorted(each.labels.items()))) for family in families for each in family.samples]
    assert len(samples) == len(set(samples)) == sum(len(list(client.metrics())) for client in clients)
    for family in families:  # a sum over labels must not count anything twice
        assert len({tuple(sorted(each.labels)) for each in family.samples}) == 1, family.name
    found = {each.name: each.value for family in families for each in family.samples}
    assert found["kafka_producer_topic_record_send_total"] == 3
    assert found["kafka_producer_buffer_available_bytes"] == 70
    assert found["kafka_consumer_fetch_manager_partition_records_lag"] == 5
    assert found["kafka_consumer_fetch_manager_records_lag_max"] == 5
    kinds = {family.name: family.type for family in families}
    assert (kinds["kafka_producer_record_send"], kinds["kafka_producer_record_send_rate"]) == ("counter", "gauge")


def test_two_clients_with_the_same_id_are_refused() -> None:
    with pytest.raises(ValueError, match="client_id='c'"):
        ClientCollector(Client(ProducerMetrics("c")), Client(ProducerMetrics("c")))
    ClientCollector(Client(ProducerMetrics("c")), Client(ProducerMetrics("d")), Client(ConsumerMetrics("c")))
