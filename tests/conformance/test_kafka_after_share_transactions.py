"""Tests that Apache Kafka starts on directories with transactional acknowledgements, which no Kafka release supports
(ADR 35).

Kafka does not start while `odradek.share.transactions` is finalised. After that feature is lowered, Kafka 4.4.0 starts;
Kafka 4.3.1 also requires `share.version` 1. Kafka's share consumers then continue where ours stopped. If Kafka reads a
directory that still has pending acknowledgements, it delivers the affected records again.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from odradek.protocol.messages.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.messages.update_features_response import UpdateFeaturesResponse
from tests.clients.own_consumers import produce
from tests.clients.own_share_consumers import SETTINGS, first_of, worker
from tests.clients.speakers import wait_for
from tests.clients.transactions import READERS
from tests.conformance.tools import Tools
from tests.support.broker_process import Broker, BrokerProcess, KafkaProcess
from tests.support.earlier_directories import GROUP, OUTPUT, PENDING, QUEUE, RAISED, TRANSACTIONAL_ID, unpacked
from tests.support.oracle import needs_kafka
from tests.support.wire import Wire

pytestmark = needs_kafka

OLD, NEW = "4.3.1", "4.4.0"
OWN, SHARE_VERSION = "odradek.share.transactions", "share.version"
UPGRADE, SAFE_DOWNGRADE = 1, 2
STATE = "__share_group_state-0"
POSITIONS = (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint")


def set_level(broker: Broker, feature: str, level: int, upgrade_type: int = SAFE_DOWNGRADE) -> ErrorCode:
    update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type)
    with Wire(broker.bootstrap) as wire:
        answer = wire.ask(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update]), 1, UpdateFeaturesResponse)
    return ErrorCode(answer.error_code)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with the data directories listed below. The queue has ten records. Except in `new` and `alone`,
    a committed transaction has accepted records 0 to 2, and a second, uncommitted transaction has accepted records 3 to
    5.

    new      the feature is raised, and no record has been acknowledged
    alone    like `new`, but share.version is lowered to 1, which both Kafka releases support
    pending  the second transaction is open
    lowered  the second transaction is aborted, and the feature is lowered; share.version is 2, which only 4.4 supports
    plain    like `lowered`, but share.version is lowered to 1
    spilled  like `plain`, but with the share state of `pending`

    The directories come from an earlier Odradek without this feature, at a metadata.version that both Kafka releases
    support.
    """
    root = tmp_path_factory.mktemp("share-transactions")
    with BrokerProcess(unpacked(RAISED, root), SETTINGS):
        pass
    (root / RAISED).rename(root / "new")
    shutil.copytree(root / "new", root / "alone")
    with BrokerProcess(root / "alone", SETTINGS) as running:
        assert set_level(running, SHARE_VERSION, 1) is ErrorCode.NONE
    data = unpacked(PENDING, root / "first").rename(root / "data")
    ours = BrokerProcess(data, SETTINGS)
    with ours:
        assert OWN in ours.log_text(), "it says that it raises the feature"
        wait_for("the share state", lambda: set_level(ours, OWN, 0) is ErrorCode.FEATURE_UPDATE_FAILED)
        ours.kill9()
        shutil.copytree(data, root / "pending")
        ours.start()
        abort(ours)
        wait_for("the level to be lowered", lambda: set_level(ours, OWN, 0) is ErrorCode.NONE)
        ours.stop()
        shutil.copytree(data, root / "lowered")
        ours.start()
        assert set_level(ours, SHARE_VERSION, 1) is ErrorCode.NONE
    shutil.copytree(data, root / "plain")
    shutil.copytree(data, root / "spilled")
    shutil.rmtree(root / "spilled" / STATE)
    shutil.copytree(root / "pending" / STATE, root / "spilled" / STATE)
    for name in POSITIONS:
        (root / "spilled" / name).unlink(missing_ok=True)
    return root


def abort(broker: Broker) -> None:
    """Aborts the transaction, as the transactional id's next owner would."""
    request = InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=60_000)
    with Wire(broker.bootstrap) as wire:
        wait_for("the abort", lambda: wire.ask(request, 4).error_code == 0)


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("name", ["new", "pending", "alone"])
def test_no_kafka_starts_while_the_feature_is_raised(
    directories: Path, name: str, version: str, tmp_path: Path
) -> None:
    what = rf"name='(share\.version', featureLevel=2|{OWN}', featureLevel=1).*only supports versions 0"
    with pytest.raises(RuntimeError, match=what) as refused:
        KafkaProcess(copied(directories / name, tmp_path), version=version).start()
    if version == NEW or name == "alone":
        assert OWN in str(refused.value), "it knows the level of share.version"


def test_kafka_4_3_does_not_start_while_share_version_is_2(directories: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"name='share.version', featureLevel=2.*only supports versions 0-1"):
        KafkaProcess(copied(directories / "lowered", tmp_path), version=OLD).start()


OPENED = [("lowered", NEW), ("plain", NEW), ("spilled", NEW), ("plain", OLD), ("spilled", OLD)]


@pytest.fixture(scope="module", params=OPENED, ids=" ".join)
def kafka(
    directories: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    name, version = request.param
    data = copied(directories / name, tmp_path_factory.mktemp("opened"))
    with KafkaProcess(data, SETTINGS, version=version) as running:
        yield running


def copied(directory: Path, to: Path) -> Path:
    return Path(shutil.copytree(directory, to / directory.name))


def test_kafka_delivers_only_the_records_without_committed_acknowledgements(kafka: Broker) -> None:
    """Kafka delivers records with pending acknowledgements a second time. The killed broker had also delivered the
    remaining records once, but had not stored that delivery."""
    with worker(kafka.bootstrap, QUEUE, GROUP) as consumer:
        records = first_of(consumer)
        assert [record.offset for record in records] == list(range(3, 10))
        assert [record.delivery_count for record in records] == [2, 2, 2, 1, 1, 1, 1]
        for record in records:
            consumer.acknowledge(record)
        consumer.commit()
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)]
    )
    with Wire(kafka.bootstrap) as wire:
        (partition,) = wire.ask(request, 1, DescribeShareGroupOffsetsResponse).groups[0].topics[0].partitions
    assert partition.lag == 0
    assert READERS["confluent-kafka"](kafka.bootstrap, OUTPUT, committed=True) == [b"committed"]


def test_odradek_continues_where_kafka_stopped(kafka: Broker) -> None:
    kafka.stop()
    produced = [b"10", b"11"]
    with BrokerProcess(kafka.data_dir, SETTINGS) as ours:
        assert set_level(ours, OWN, 1, UPGRADE) is ErrorCode.NONE
        produce(ours.bootstrap, QUEUE, *produced)
        with worker(ours.bootstrap, QUEUE, GROUP) as consumer:
            assert [record.value for record in first_of(consumer)] == produced


def test_kafkas_own_tools_and_clients_raise_the_feature_and_go_on_beside_it(tools: Tools, tmp_path: Path) -> None:
    """Kafka's tools and clients ignore the parts of ApiVersions that they do not know (K4)."""
    with BrokerProcess(tmp_path / "data", SETTINGS) as ours:
        at = ("--bootstrap-server", ours.bootstrap)
        tools.run("features", *at, "upgrade", "--feature", f"{OWN}=1")
        described = tools.run("features", *at, "describe").stdout
        assert re.search(rf"{OWN}\s.*SupportedMaxVersion: 1\s.*FinalizedVersionLevel: 1\s", described), described
        assert "UNKNOWN(95): 0" in tools.run("broker-api-versions", *at).stdout
        tools.run("topics", *at, "--create", "--topic", "plain", "--partitions", "1")
        tools.run(
            "producer-perf",
            "--topic",
            "plain",
            "--num-records",
            "10",
            "--record-size",
            "10",
            "--throughput",
            "-1",
            "--producer-props",
            f"bootstrap.servers={ours.bootstrap}",
        )
        read = tools.run("console-consumer", *at, "--topic", "plain", "--from-beginning", "--max-messages", "10")
        assert len(read.lines) == 10
        tools.run("features", *at, "downgrade", "--feature", f"{OWN}=0")
        assert "UNKNOWN(95)" not in tools.run("broker-api-versions", *at).stdout


def test_the_dump_tool_reads_staged_acknowledgements_as_records_that_are_available(
    tools: Tools, directories: Path
) -> None:
    logs = directories / "pending" / STATE
    ran = tools.run("dump-log", "--share-group-state-decoder", "--files", next(iter(logs.glob("*.log"))))
    assert re.findall(r'"startOffset":(-?\d+).*"stateBatches":(\[.*?\])', "\n".join(ran.lines)) == [
        ("-1", "[]"),
        ("0", '[{"firstOffset":0,"lastOffset":2,"deliveryState":0,"deliveryCount":1}]'),  # pending
        (
            "3",
            '[{"firstOffset":3,"lastOffset":5,"deliveryState":0,"deliveryCount":1}]',
        ),  # pending again, in the second transaction
    ]
    assert sum("endTxnMarker: COMMIT" in line for line in ran.lines) == 1
