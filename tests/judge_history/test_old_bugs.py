"""Releases of clients with a bug that is known are convicted of its rule, and the releases that mend it are not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.testing.judge.verdicts import BROKEN, KEPT
from odradek.testing.sync import Cluster
from tests.clients.own_producers import set_transaction_version
from tests.judge_history.installing import install
from tests.judge_history.judged import Prepare, run


def orders(kafka: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic("orders", num_partitions=1, replication_factor=1)])["orders"].result(10)


def unknown_producer(kafka: Cluster) -> None:
    orders(kafka)
    kafka.fault({"match": {"api": "Produce"}, "do": {"error": "UNKNOWN_PRODUCER_ID"}, "after": 3, "times": 2})


def transactions_of_version_1(kafka: Cluster) -> None:
    orders(kafka)
    asyncio.run(set_transaction_version(kafka.bootstrap, 1))


def metadata_without_ids(kafka: Cluster) -> None:
    """Metadata is advertised below version 10 only, which tells no topic ids; Produce and Fetch know ids."""
    orders(kafka)
    kafka.fault({"match": {"api": "ApiVersions"}, "at": "applied", "do": {"edit": {"ApiKeys[3].MaxVersion": 9}}})


@dataclass(frozen=True, slots=True)
class Row:
    """bug: where the project tells of it. avoided: the mended release never comes to where the rule asks anything.

    also: rules that the mended release, a later line of development, came to keep besides.
    """

    bug: str
    package: str
    bad: str
    good: str
    rule: str
    workload: str
    prepare: Prepare
    avoided: bool = False
    needs: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


PYTHON, NODE = "kafka-python", "@platformatic/kafka"
KGO, SARAMA = "github.com/twmb/franz-go", "github.com/Shopify/sarama"
ROWS = (
    Row(
        "dpkp/kafka-python#2663",
        PYTHON,
        "2.3.3",
        "3.0.12",
        "IDM.6",
        "kafka_python_sends.py",
        unknown_producer,
        also=("VER.1",),
    ),
    Row("platformatic/kafka#315", NODE, "2.2.3", "2.11.0", "FET.6", "platformatic_consume.js", orders, needs=("avsc",)),
    Row("twmb/franz-go 1.19.2", KGO, "1.19.0", "1.19.5", "VER.7", "kgo_transactions.go", transactions_of_version_1),
    Row("twmb/franz-go#1312", KGO, "1.21.0", "1.21.2", "MET.6", "kgo_transactions.go", metadata_without_ids, True),
    Row("IBM/sarama#1644", SARAMA, "1.26.0", "1.27.0", "FET.6", "sarama_consume.go", orders, True),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.bug}-{row.rule}")
def test_the_bug_is_found_and_the_mended_release_passes(row: Row, tmp_path: Path) -> None:
    bad = run(install(row.package, row.bad, row.workload, row.needs), row.prepare, tmp_path / "bad")
    good = run(install(row.package, row.good, row.workload, row.needs), row.prepare, tmp_path / "good")
    assert bad[BROKEN] - good[BROKEN] == {row.rule, *row.also}
    assert row.avoided or row.rule in good[KEPT]
