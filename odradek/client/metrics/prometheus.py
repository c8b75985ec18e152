"""Exports client metrics to prometheus-client. Its registry reads a `ClientCollector` on each scrape.

Only this module imports prometheus-client. A program without a collector never loads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from odradek.client.metrics.values import Metric, MetricKind, Metrics

PART_TAGS = ("topic", "partition")  # tags that Kafka uses for metrics about a part of the client


class HasMetrics(Protocol):
    """A client from `odradek.client` or `odradek.client.sync`."""

    def metrics(self) -> Metrics: ...


class ClientCollector(Collector):
    """Exports the metrics of these clients to a registry:

        REGISTRY.register(ClientCollector(producer, consumer))

    A metric is called `kafka_<group>_<name>`, without "-metrics" and with `_` in place of "-", such as
    `kafka_producer_record_send_total` or `kafka_consumer_fetch_manager_topic_records_consumed_rate`. Its tags become
    labels. Each client needs a different client id; otherwise the values of two clients would have the same labels.
    """

    def __init__(self, *clients: HasMetrics) -> None:
        """Creates a collector. Raises ValueError if two clients have the same metrics with the same tags."""
        self._clients = clients
        seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
        for client in clients:
            keys = {(family_name(each), tuple(sorted(each.tags.items()))) for each in client.metrics()}
            if both := seen & keys:
                client_id = dict(min(both)[1])["client-id"]
                raise ValueError(
                    f"two clients of the same kind have client_id={client_id!r}: give each client a different client_id"
                )
            seen |= keys

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for client in self._clients:
            for each in client.metrics():
                name = family_name(each)
                if name not in families:
                    kind = CounterMetricFamily if each.kind is MetricKind.COUNTER else GaugeMetricFamily
                    help_text = f"{each.description} ({each.unit.value})"
                    families[name] = kind(name, help_text, labels=[tag.replace("-", "_") for tag in each.tags])
                families[name].add_metric(list(each.tags.values()), each.value)
        return families.values()

    def describe(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        """Returns nothing, because the metrics depend on topics and brokers and are not known at registration."""
        return ()


def family_name(metric: Metric) -> str:
    group = metric.group.removesuffix("-metrics")
    parts = [tag for tag in PART_TAGS if tag in metric.tags]
    if parts and not group.endswith(f"-{parts[-1]}"):
        group += f"-{parts[-1]}"
    return f"kafka_{group}_{metric.name}".replace("-", "_")
