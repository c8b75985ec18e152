"""Tests the contents of a new directory, and the initial feature levels in an older directory:
docs/spec/kafka-4.4.md#s6-1.

Each of the two Kafka releases formats a directory and starts from it. Odradek starts from new directories and from
copies of Kafka's directories.
"""

from __future__ import annotations

import shutil
import stat
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from odradek.broker.metadata.records import decode_record
from odradek.files.checkpoints import decode_meta_properties
from odradek.protocol.batch_header import batches
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.begin_transaction_record import BeginTransactionRecord
from odradek.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.end_transaction_record import EndTransactionRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.register_broker_record import RegisterBrokerRecord
from odradek.protocol.records import records_of
from tests.clients.speakers import wait_for
from tests.support.broker_process import EMULATED, REFERENCE, Broker, BrokerProcess, KafkaProcess
from tests.support.oracle import needs_kafka
from tests.support.wire import Wire

pytestmark = needs_kafka

BEFORE = "4.3.1"
METADATA = "__cluster_metadata-0"
SNAPSHOT = f"{METADATA}/00000000000000000000-0000000000.checkpoint"
IN_ROOT = "bootstrap.checkpoint"
LOG = f"{METADATA}/00000000000000000000.log"
# SnapshotHeader: version, timestamp of the last contained record, number of tagged fields
HEADER = struct.Struct(">hqb")
LEVELS = {
    "metadata.version": 33,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 2,
    "streams.version": 1,
    "transaction.version": 2,
}
OF_BEFORE = LEVELS | {"metadata.version": 30, "share.version": 1}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], Path]:
    """Returns the directories in which a broker has been started and stopped, keyed by the broker's name and its real
    or emulated release."""
    folder = tmp_path_factory.mktemp("made")
    found = {}
    for release in (REFERENCE, BEFORE):
        kafka = KafkaProcess(folder / f"kafka-{release}", version=release)
        ours = BrokerProcess(folder / f"odradek-{release}", emulate=EMULATED[release])
        for broker in (kafka, ours):
            with broker:
                pass
            found[broker.name, release] = broker.data_dir
    return found


def batches_of(path: Path) -> list[tuple[bool, list[tuple[bytes | None, bytes | None]]]]:
    """Returns, for each batch in a file, whether it is a control batch, and its records' keys and values."""
    data = path.read_bytes()
    return [
        (header.is_control, [(record.key, record.value) for record in records_of(data, position)])
        for position, header in batches(data)
    ]


def records(path: Path) -> Iterator[object]:
    for is_control, contents in batches_of(path):
        for _, value in contents:
            if not is_control and value is not None:
                yield decode_record(value)


def levels(path: Path) -> list[tuple[str, int]]:
    return [(each.name, each.feature_level) for each in records(path) if isinstance(each, FeatureLevelRecord)]


def finalised(broker: Broker) -> dict[str, int]:
    request = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
    with Wire(broker.bootstrap) as wire:
        answer = wire.ask(request, 4, ApiVersionsResponse)
    return {each.name: each.max_version_level for each in answer.finalized_features}


@pytest.mark.parametrize("name", ["kafka", "odradek"])
def test_a_new_directory_has_its_first_levels_in_a_snapshot_of_the_metadata_that_stays(
    made: Mapping[tuple[str, str], Path], name: str
) -> None:
    """The initial feature levels are in a snapshot, which is still there after the first start (P1 and P5). Like every
    file of Odradek, the snapshot is accessible only to its owner. Unlike Kafka's snapshot, it is writable."""
    of_4_4, of_4_3 = made[name, REFERENCE], made[name, BEFORE]
    assert ((of_4_4 / SNAPSHOT).exists(), (of_4_4 / IN_ROOT).exists()) == (True, False)
    assert ((of_4_3 / SNAPSHOT).exists(), (of_4_3 / IN_ROOT).exists()) == (False, True)
    mode = stat.S_IMODE((of_4_4 / SNAPSHOT).stat().st_mode)
    assert mode == (0o400 if name == "kafka" else 0o600)


@pytest.mark.parametrize("name", ["kafka", "odradek"])
def test_the_snapshot_has_a_header_the_levels_in_their_order_and_a_footer(
    made: Mapping[tuple[str, str], Path], name: str
) -> None:
    """The snapshot consists of a header, the levels in a fixed order, and a footer (P2)."""
    path = made[name, REFERENCE] / SNAPSHOT
    assert [is_control for is_control, _ in batches_of(path)] == [True, False, True]
    assert levels(path) == list(LEVELS.items())
    assert levels(made[name, BEFORE] / IN_ROOT) == list(OF_BEFORE.items())


@pytest.mark.parametrize(("release", "path"), [(REFERENCE, SNAPSHOT), (BEFORE, IN_ROOT)])
def test_the_snapshot_differs_from_kafkas_in_its_times_alone(
    made: Mapping[tuple[str, str], Path], release: str, path: str
) -> None:
    """The snapshots of both brokers differ only in timestamps (P2). The header contains the formatting time in 4.4.0
    and 0 in 4.3.1."""
    headers = []
    for name in ("kafka", "odradek"):
        [(_, [(key, header)]), *rest] = batches_of(made[name, release] / path)
        assert header is not None
        version, last_contained_ms, tags = HEADER.unpack(header)
        headers.append((key, version, last_contained_ms > 0, tags, rest))
    assert headers[0] == headers[1]
    assert headers[0][2] == (release == REFERENCE)


def test_meta_properties_are_those_of_4_3_1(made: Mapping[tuple[str, str], Path]) -> None:
    """The file `meta.properties` has the same properties as in 4.3.1, apart from properties that only Odradek reads
    (P3)."""
    names = {
        (name, release): sorted(
            line.partition("=")[0]
            for line in (directory / "meta.properties").read_text().splitlines()
            if not line.startswith(("#", "odradek."))
        )
        for (name, release), directory in made.items()
    }
    assert set(map(tuple, names.values())) == {("cluster.id", "directory.id", "node.id", "version")}
    for directory in made.values():
        assert decode_meta_properties((directory / "meta.properties").read_bytes()).node_id == 1


@pytest.mark.parametrize("release", [REFERENCE, BEFORE])
@pytest.mark.parametrize("name", ["kafka", "odradek"])
def test_the_first_start_appends_the_levels_in_a_transaction_and_registers_the_broker(
    made: Mapping[tuple[str, str], Path], name: str, release: str
) -> None:
    """The first start appends the feature levels to the metadata log in a transaction and registers the broker (P4)."""
    found = list(records(made[name, release] / LOG))
    end = next(at for at, each in enumerate(found) if isinstance(each, EndTransactionRecord))
    begin, *of_levels, min_isr = found[:end]
    assert isinstance(begin, BeginTransactionRecord)
    assert begin.name == "Bootstrap records"
    expected = LEVELS if release == REFERENCE else OF_BEFORE
    assert [(each.name, each.feature_level) for each in of_levels if isinstance(each, FeatureLevelRecord)] == list(
        expected.items()
    )
    assert isinstance(min_isr, ConfigRecord)
    assert (min_isr.resource_name, min_isr.name, min_isr.value) == ("", "min.insync.replicas", "1")
    kinds = [type(each) for each in found[end:]]
    assert kinds.index(RegisterBrokerRecord) < kinds.index(BrokerRegistrationChangeRecord)


@pytest.mark.parametrize("is_new", [True, False], ids=["formatted", "used"])
@pytest.mark.parametrize("name", ["kafka", "odradek"])
def test_the_file_of_an_older_directory_stays_and_is_read_where_there_is_no_snapshot(
    made: Mapping[tuple[str, str], Path], tmp_path: Path, name: str, is_new: bool
) -> None:
    """In a directory that Kafka 4.3.1 formatted, the file is kept and is read on the first start and on all later ones
    (P6)."""
    directory = tmp_path / "data"
    shutil.copytree(made["kafka", BEFORE], directory)
    if is_new:
        shutil.rmtree(directory / METADATA)
    before = (directory / IN_ROOT).read_bytes()
    broker = KafkaProcess(directory) if name == "kafka" else BrokerProcess(directory)
    with broker:
        wait_for("the levels", lambda: finalised(broker) == OF_BEFORE)
    assert (directory / IN_ROOT).read_bytes() == before
    assert not (directory / SNAPSHOT).exists()
