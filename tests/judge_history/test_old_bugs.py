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
from tests.judge_history.installing import Installed, install, interpreter
from tests.judge_history.judged import CLIENT_ID, Prepare, run
from tests.judge_history.suite import DRIVERS


def orders(kafka: Cluster, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic("orders", num_partitions=partitions, replication_factor=1)])["orders"].result(10)


def unknown_producer(kafka: Cluster) -> None:
    orders(kafka)
    kafka.fault({"match": {"api": "Produce"}, "do": {"error": "UNKNOWN_PRODUCER_ID"}, "after": 3, "times": 2})


def unknown_producer_on_one_of_two_partitions(kafka: Cluster) -> None:
    orders(kafka, partitions=2)
    kafka.fault({"match": {"api": "Produce"}, "do": {"error": "UNKNOWN_PRODUCER_ID"}, "after": 2, "times": 1})


def sequence_out_of_order(kafka: Cluster) -> None:
    orders(kafka)
    kafka.fault({"match": {"api": "Produce"}, "do": {"error": "OUT_OF_ORDER_SEQUENCE_NUMBER"}, "after": 1, "times": 1})


def transactions_of_version_1(kafka: Cluster) -> None:
    orders(kafka)
    asyncio.run(set_transaction_version(kafka.bootstrap, 1))


def metadata_without_ids(kafka: Cluster) -> None:
    """Metadata is advertised below version 10 only, which tells no topic ids; Produce and Fetch know ids."""
    orders(kafka)
    kafka.fault({"match": {"api": "ApiVersions"}, "at": "applied", "do": {"edit": {"ApiKeys[3].MaxVersion": 9}}})


def topic_missing_once_from_metadata(kafka: Cluster) -> None:
    """Some answer that refreshes the client's metadata, after those of its start, has no topic."""
    orders(kafka)
    rule = {"match": {"api": "Metadata", "client_id": CLIENT_ID}, "at": "applied", "after": 4, "times": 1}
    kafka.fault({**rule, "do": {"edit": {"Topics[0]": {"remove": True}}}})


def concurrent_transactions(kafka: Cluster) -> None:
    orders(kafka)
    for api in ("AddPartitionsToTxn", "AddOffsetsToTxn"):
        kafka.fault({"match": {"api": api}, "do": {"error": "CONCURRENT_TRANSACTIONS"}, "times": 7})


@dataclass(frozen=True, slots=True)
class Row:
    """bug: where the project tells of it. avoided: the mended release never comes to where the rule asks anything.

    also: rules that the bug breaks besides at times, or that the mended release, a later line of development, keeps.

    script: what the workload is told, where it is a driver of the suite; with a transactional_id or without.

    python: whose wheels the releases have, where that is not this one.
    """

    bug: str
    package: str
    bad: str
    good: str
    rule: str
    workload: str | Path
    prepare: Prepare
    avoided: bool = False
    needs: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    script: tuple[str, ...] = ()
    transactional_id: str = ""
    python: str | None = None

    def verdicts(self, version: str, python: str, recording: Path) -> dict[str, set[str]]:
        release = install(self.package, version, self.workload, self.needs, python)
        more = {"ODRADEK_TRANSACTIONAL_ID": self.transactional_id} if self.transactional_id else {}
        return run(Installed(release.words, {**release.environment, **more}), self.prepare, recording, self.script)


LIBRDKAFKA, JAVA, KAFKAJS = "confluent-kafka", "org.apache.kafka:kafka-clients", "kafkajs"
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
    Row(
        "franz-go 1.21.0, its changelog",
        KGO,
        "1.20.0",
        "1.21.4",
        "VER.1",
        "kgo_transactions.go",
        orders,
    ),
    Row("twmb/franz-go#1312", KGO, "1.21.0", "1.21.2", "MET.6", "kgo_transactions.go", metadata_without_ids, True),
    Row("IBM/sarama#1644", SARAMA, "1.26.0", "1.27.0", "FET.6", "sarama_consume.go", orders, True),
    Row("tulios/kafkajs#1050", KAFKAJS, "1.16.0", "2.0.2", "IDM.2", "kafkajs_concurrent.js", orders, also=("IDM.3",)),
    Row(
        "platformatic/kafka#326",
        NODE,
        "2.2.3",
        "2.4.0",
        "IDM.2",
        "platformatic_concurrent.js",
        orders,
        needs=("avsc",),
        also=("IDM.3",),
    ),
    Row(
        "platformatic/kafka#309",
        NODE,
        "2.2.3",
        "2.4.0",
        "IDM.6",
        "platformatic_sends.js",
        unknown_producer,
        needs=("avsc",),
    ),
    Row(
        "confluentinc/librdkafka#3672",
        LIBRDKAFKA,
        "1.8.2",
        "1.9.2",
        "IDM.2",
        "confluent_topic_vanishes.py",
        topic_missing_once_from_metadata,
        also=("IDM.3",),
        python="3.8",
    ),
    Row(
        "apache/kafka#9832",
        JAVA,
        "2.7.0",
        "2.8.0",
        "IDM.1",
        "KafkaClientsSends.java",
        unknown_producer_on_one_of_two_partitions,
    ),
    Row(
        "librdkafka 1.6.1, its changelog",
        LIBRDKAFKA,
        "1.6.0",
        "1.6.1",
        "TXN.2",
        DRIVERS / "librdkafka.py",
        sequence_out_of_order,
        avoided=True,
        also=("IDM.6",),
        script=("begin", "produce orders 0 a", "produce orders 0 b", "abort", "begin", "produce orders 0 c", "commit"),
        transactional_id="t",
        python="3.8",
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.bug}-{row.rule}")
def test_the_bug_is_found_and_the_mended_release_passes(row: Row, tmp_path: Path) -> None:
    python = interpreter(row.python)
    if python is None:
        pytest.skip(f"needs a Python {row.python}")
    bad, good = row.verdicts(row.bad, python, tmp_path / "bad"), row.verdicts(row.good, python, tmp_path / "good")
    assert {row.rule} <= bad[BROKEN] - good[BROKEN] <= {row.rule, *row.also}
    assert row.avoided or row.rule in good[KEPT]


@dataclass(frozen=True, slots=True)
class Accused:
    """A release that a rule once accused of something lawful, which it still does: it breaks no rule, and keeps this
    one."""

    package: str
    version: str
    rule: str
    workload: str
    prepare: Prepare


ACCUSED = (
    # It retries two APIs that it has sent behind one another.
    Accused(PYTHON, "3.0.12", "TXN.8", "kafka_python_consumes_and_produces.py", concurrent_transactions),
)


@pytest.mark.parametrize("accused", ACCUSED, ids=lambda accused: f"{accused.package}-{accused.version}-{accused.rule}")
def test_what_was_a_false_alarm_is_none(accused: Accused, tmp_path: Path) -> None:
    release = install(accused.package, accused.version, accused.workload)
    found = run(release, accused.prepare, tmp_path / "recording")
    assert (found[BROKEN], accused.rule in found[KEPT]) == (set(), True)
