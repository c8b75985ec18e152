"""What Apache Kafka 4.3.1, which knows no `share.version` 2, makes of directories of that level: ADR 16.

It does not start while the level is finalised. Once it was lowered, Kafka starts, and its share consumers go on where
ours were. Should it come to read staged acknowledgements all the same, their records are delivered again.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.client.sync import Producer
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from odradek.protocol.messages.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.messages.update_features_response import UpdateFeaturesResponse
from tests.clients.admin import create_topic
from tests.clients.own_consumers import produce
from tests.clients.own_share_consumers import SETTINGS, first_of, share_group, worker
from tests.clients.speakers import wait_for
from tests.clients.transactions import READERS
from tests.conformance.tools import Tools
from tests.support.broker_process import Broker, BrokerProcess, KafkaProcess
from tests.support.oracle import needs_kafka
from tests.support.wire import Wire

pytestmark = needs_kafka

QUEUE, OUTPUT, GROUP, ID = "queue", "output", "workers", "worker-1"
ONE_STATE_PARTITION: dict[str, object] = SETTINGS | {
    "share.coordinator.state.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
UPGRADE, SAFE_DOWNGRADE = 1, 2
STATE = "__share_group_state-0"
POSITIONS = (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint")


def set_share_version(broker: Broker, level: int) -> ErrorCode:
    kind = UPGRADE if level == 2 else SAFE_DOWNGRADE
    update = FeatureUpdateKey(feature="share.version", max_version_level=level, upgrade_type=kind)
    with Wire(broker.bootstrap) as wire:
        answer = wire.ask(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update]), 1, UpdateFeaturesResponse)
    return ErrorCode(answer.error_code)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of ten records in a queue, 0 to 2 are accepted in a transaction that committed; 3 to 5 in one that did not.

    new      level 2, and nothing was acknowledged yet
    staged   the second transaction is open
    lowered  it was aborted, and the level lowered
    spilled  the same, but with the share state of `staged`
    """
    root = tmp_path_factory.mktemp("share-version-2")
    data = root / "data"
    ours = BrokerProcess(data, ONE_STATE_PARTITION)
    with ours:
        create_topic(ours.bootstrap, QUEUE, exact=True)
        create_topic(ours.bootstrap, OUTPUT, exact=True)
        produce(ours.bootstrap, QUEUE, *(b"%d" % number for number in range(10)))
        share_group(ours.bootstrap, GROUP)
        assert set_share_version(ours, 2) is ErrorCode.NONE
        ours.stop()
        shutil.copytree(data, root / "new")
        ours.start()
        with (
            worker(ours.bootstrap, QUEUE, GROUP) as consumer,
            Producer(bootstrap_servers=ours.bootstrap, transactional_id=ID) as producer,
        ):
            records = first_of(consumer)
            assert len(records) == 10
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(OUTPUT, b"committed").result(10)
            producer.send_share_acknowledgements_to_transaction(records[:3], consumer.share_group_metadata())
            producer.commit_transaction()
            producer.begin_transaction()
            producer.send(OUTPUT, b"open").result(10)
            producer.send_share_acknowledgements_to_transaction(records[3:6], consumer.share_group_metadata())
            assert set_share_version(ours, 1) is ErrorCode.FEATURE_UPDATE_FAILED
            ours.kill9()
            shutil.copytree(data, root / "staged")
            ours.start()
            abort(ours)
            wait_for("the level to be lowered", lambda: set_share_version(ours, 1) is ErrorCode.NONE)
    shutil.copytree(data, root / "lowered")
    shutil.copytree(data, root / "spilled")
    shutil.rmtree(root / "spilled" / STATE)
    shutil.copytree(root / "staged" / STATE, root / "spilled" / STATE)
    for name in POSITIONS:
        (root / "spilled" / name).unlink(missing_ok=True)
    return root


def abort(broker: Broker) -> None:
    """What another owner of the transactional id does first."""
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
    with Wire(broker.bootstrap) as wire:
        wait_for("the abort", lambda: wire.ask(request, 4).error_code == 0)


@pytest.mark.parametrize("name", ["new", "staged"])
def test_kafka_does_not_start_at_level_2(directories: Path, name: str) -> None:
    with pytest.raises(RuntimeError, match=r"name='share.version', featureLevel=2.*only supports versions 0-1"):
        KafkaProcess(directories / name, ONE_STATE_PARTITION).start()


@pytest.fixture(scope="module", params=["lowered", "spilled"])
def kafka(directories: Path, request: pytest.FixtureRequest) -> Iterator[Broker]:
    with KafkaProcess(directories / request.param, ONE_STATE_PARTITION) as running:
        yield running


def test_kafka_delivers_what_was_not_committed_and_nothing_else(kafka: Broker) -> None:
    """Those that were staged for the second time, the others too, which the killed broker held for the first."""
    with worker(kafka.bootstrap, QUEUE, GROUP) as consumer:
        records = first_of(consumer)
        assert [record.offset for record in records] == list(range(3, 10))
        assert [record.delivery_count for record in records] == [2, 2, 2, 1, 1, 1, 1]
        for record in records:
            consumer.acknowledge(record)
        consumer.commit()
    asked = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)]
    )
    with Wire(kafka.bootstrap) as wire:
        (partition,) = wire.ask(asked, 1, DescribeShareGroupOffsetsResponse).groups[0].topics[0].partitions
    assert partition.lag == 0
    assert READERS["confluent-kafka"](kafka.bootstrap, OUTPUT, committed=True) == [b"committed"]


def test_we_go_on_where_kafka_stopped(kafka: Broker) -> None:
    kafka.stop()
    produced = [b"10", b"11"]
    with BrokerProcess(kafka.data_dir, ONE_STATE_PARTITION) as ours:
        assert set_share_version(ours, 2) is ErrorCode.NONE
        produce(ours.bootstrap, QUEUE, *produced)
        with worker(ours.bootstrap, QUEUE, GROUP) as consumer:
            assert [record.value for record in first_of(consumer)] == produced


def test_the_dump_tool_reads_staged_acknowledgements_as_records_that_are_available(
    tools: Tools, directories: Path
) -> None:
    logs = directories / "staged" / STATE
    ran = tools.run("dump-log", "--share-group-state-decoder", "--files", next(iter(logs.glob("*.log"))))
    assert re.findall(r'"startOffset":(-?\d+).*"stateBatches":(\[.*?\])', "\n".join(ran.lines)) == [
        ("-1", "[]"),
        ("0", '[{"firstOffset":0,"lastOffset":2,"deliveryState":0,"deliveryCount":1}]'),  # staged
        (
            "3",
            '[{"firstOffset":3,"lastOffset":5,"deliveryState":0,"deliveryCount":1}]',
        ),  # staged anew
    ]
    assert sum("endTxnMarker: COMMIT" in line for line in ran.lines) == 1
