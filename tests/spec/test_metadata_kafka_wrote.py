"""Tests that Odradek finds the same metadata as Kafka in metadata logs and snapshots written by Kafka 4.3.1 and 4.4.0,
and encodes it to the same bytes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.configuration.resources import ConfigResourceType
from odradek.broker.metadata.files import (
    QuorumState,
    bootstrap_snapshot,
    decode_leader_epoch,
    encode_quorum_state,
    is_complete,
    snapshots_among,
)
from odradek.broker.metadata.image import DEFAULT_BROKER, MetadataImage
from odradek.broker.metadata.records import IgnoredRecord, decode_record, encode_record
from odradek.broker.metadata.replaying import Loader
from odradek.files.checkpoints import topic_id_text
from odradek.protocol.batch_header import batches
from odradek.protocol.control_records import leader_change_batch
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.records import records_of
from tests.support.oracle import directories, dump, needs_oracle, served, unpack

pytestmark = needs_oracle

METADATA = "__cluster_metadata-0"
LOG = "00000000000000000000.log"
INTERNAL = {"__consumer_offsets", "__transaction_state", "__share_group_state"}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    into = tmp_path_factory.mktemp("kafka")
    return {name: unpack(name, into) for name in directories()}


def log_of(directory: Path) -> bytes:
    return (directory / METADATA / LOG).read_bytes()


def image_of(data: bytes) -> MetadataImage:
    image = MetadataImage()
    Loader(image).load([data])
    return image


def values(data: bytes) -> Iterator[bytes]:
    for position, header in batches(data):
        if not header.is_control:
            for record in records_of(data, position):
                assert record.value is not None
                yield record.value


@pytest.mark.parametrize("name", directories())
def test_the_image_is_what_kafka_serves_of_that_directory(name: str, unpacked: dict[str, Path]) -> None:
    image = image_of(log_of(unpacked[name]))
    expected = served(name)
    assert image.features == expected["finalizedFeatures"]
    topics = {topic: expected["topics"][topic] for topic in expected["topics"]}
    assert image.topics.keys() - INTERNAL == topics.keys() - INTERNAL
    for topic, content in topics.items():
        ours = image.topics[topic]
        assert topic_id_text(ours.topic_id) == content["topicId"]
        assert len(ours.partitions) == len(content["partitions"])
        if "configs" in content and topic not in INTERNAL:
            assert dict(image.topic_configs(topic)) == content["configs"]


@pytest.mark.parametrize("name", directories())
def test_every_record_is_written_with_the_bytes_that_kafka_wrote(name: str, unpacked: dict[str, Path]) -> None:
    written = set()
    # The `*.checkpoint` files are the snapshots and the bootstrap checkpoint.
    files = [unpacked[name] / METADATA / LOG, *unpacked[name].rglob("*.checkpoint")]
    for file in files:
        for value in values(file.read_bytes()):
            record = decode_record(value)
            if not isinstance(record, IgnoredRecord):
                assert encode_record(record, 30) == value
                written.add(type(record).__name__)
    assert {"TopicRecord", "PartitionRecord", "ConfigRecord", "FeatureLevelRecord", "RegisterBrokerRecord"} <= written


BOTH_RELEASES = pytest.mark.parametrize("plain", ["plain-4.3.1", "plain-4.4.0"])


@pytest.mark.parametrize("name", directories())
def test_every_record_says_what_dump_log_segments_prints(name: str, unpacked: dict[str, Path]) -> None:
    lines = dump(name, "metadata").splitlines()
    payloads = [json.loads(line.partition(" payload: ")[2]) for line in lines if " payload: " in line]
    records = [decode_record(value) for value in values(log_of(unpacked[name]))]
    assert len(payloads) == len(records)
    for payload, record in zip(payloads, records, strict=True):
        if isinstance(record, IgnoredRecord):
            assert record.is_known
            continue
        assert payload["type"].replace("_", "").lower() == type(record).__name__.lower()
        for field, value in payload["data"].items():
            ours = getattr(record, "".join(f"_{c.lower()}" if c.isupper() else c for c in field))
            if isinstance(value, (str, int, bool)) and not isinstance(ours, bytes):
                assert ours == value


@pytest.mark.parametrize(("plain", "end_offsets"), [("plain-4.3.1", [141, 93, 48]), ("plain-4.4.0", [0])])
def test_a_snapshot_and_the_log_behind_it_are_worth_the_whole_log(
    plain: str, end_offsets: list[int], unpacked: dict[str, Path]
) -> None:
    directory = unpacked[plain]
    whole = image_of(log_of(directory))
    snapshots = snapshots_among(path.name for path in (directory / METADATA).iterdir())
    assert [snapshot.end_offset for snapshot in snapshots] == end_offsets
    for snapshot in snapshots:
        data = (directory / METADATA / snapshot.name).read_bytes()
        assert is_complete(data)
        image = MetadataImage()
        loader = Loader(image)
        loader.load([data], moves_offset=False)
        loader.load([log_of(directory)], from_offset=snapshot.end_offset)
        assert image.topics == whole.topics
        assert image.configs == whole.configs
        assert image.features == whole.features
        assert image.next_producer_id == whole.next_producer_id
        assert image.next_offset == whole.next_offset
        assert image.brokers == whole.brokers


def test_a_snapshot_that_was_cut_short_or_damaged_is_not_complete(unpacked: dict[str, Path]) -> None:
    directory = unpacked["plain-4.3.1"] / METADATA
    data = (directory / "00000000000000000141-0000000001.checkpoint").read_bytes()
    assert not is_complete(data[:-1])
    assert not is_complete(data[: batches_end(data, 2)])
    assert not is_complete(data[:200] + b"\xff" + data[201:])
    assert not is_complete(b"")


def batches_end(data: bytes, count: int) -> int:
    position, header = list(batches(data))[count - 1]
    return position + header.size_bytes


@BOTH_RELEASES
def test_broker_settings_of_the_cluster_and_of_one_broker_are_apart(plain: str, unpacked: dict[str, Path]) -> None:
    image = image_of(log_of(unpacked[plain]))
    assert image.configs[DEFAULT_BROKER] == {"min.insync.replicas": "1", "message.max.bytes": "2000000"}
    assert image.configs[ConfigResourceType.BROKER, "1"] == {"log.cleaner.threads": "2"}
    assert image.topic_configs("configured") == {
        "retention.ms": "86400000",
        "min.insync.replicas": "1",
        "flush.messages": "1",
    }


@BOTH_RELEASES
def test_a_broker_that_stopped_in_good_order_leads_nothing_and_is_fenced(plain: str, unpacked: dict[str, Path]) -> None:
    image = image_of(log_of(unpacked[plain]))
    assert image.brokers[1].is_fenced
    assert image.brokers[1].in_controlled_shutdown
    codecs = image.topics["codecs"].partitions[0]
    assert (codecs.leader, codecs.leader_epoch, codecs.isr, codecs.eligible_leader_replicas) == (None, 1, [], [1])
    killed = image_of(log_of(unpacked["unclean"]))
    assert not killed.brokers[1].is_fenced
    assert killed.topics["flood"].partitions[0].leader == 1


@BOTH_RELEASES
def test_producer_ids_go_on_where_kafka_stopped(plain: str, unpacked: dict[str, Path]) -> None:
    assert image_of(log_of(unpacked[plain])).next_producer_id == 1000


def test_metadata_of_a_newer_kafka_is_understood_as_far_as_it_goes(unpacked: dict[str, Path]) -> None:
    """P4: Odradek understands every record that Kafka 4.4.0 wrote at its first start and later
    (docs/spec/kafka-4.4.md#s6-1)."""
    image = MetadataImage()
    loader = Loader(image)
    loader.load([log_of(unpacked["plain-4.4.0"])])
    assert image.metadata_version == 33
    assert loader.not_understood == set()
    assert "codecs" in image.topics


@BOTH_RELEASES
def test_the_quorum_state_has_kafkas_bytes(plain: str, unpacked: dict[str, Path]) -> None:
    theirs = (unpacked[plain] / METADATA / "quorum-state").read_bytes()
    assert decode_leader_epoch(theirs) == 1
    assert encode_quorum_state(QuorumState(leader_id=1, leader_epoch=1, voter_ids=(1,))) == theirs


@BOTH_RELEASES
def test_the_leader_change_has_kafkas_bytes(plain: str, unpacked: dict[str, Path]) -> None:
    theirs = log_of(unpacked[plain])
    _, header = next(batches(theirs))
    ours = leader_change_batch(
        leader_id=1, voter_ids=[1], timestamp_ms=header.base_timestamp, base_offset=0, leader_epoch=1
    )
    assert bytes(ours) == theirs[: header.size_bytes]


def test_the_bootstrap_snapshot_has_kafkas_bytes_but_for_its_times(unpacked: dict[str, Path]) -> None:
    theirs = (unpacked["plain-4.3.1"] / "bootstrap.checkpoint").read_bytes()
    features = [record for record in map(decode_record, values(theirs)) if isinstance(record, FeatureLevelRecord)]
    ours = bootstrap_snapshot(features, 30, 1_700_000_000_000)
    assert is_complete(ours)
    assert without_times(ours) == without_times(theirs)


def without_times(data: bytes) -> list[tuple[object, ...]]:
    """Returns the batch headers, without CRC and timestamps, and the contents of the records."""
    content: list[tuple[object, ...]] = []
    for position, header in batches(data):
        content.append((header.base_offset, header.size_bytes, header.leader_epoch, header.attributes))
        content += [(record.offset, record.key, record.value) for record in records_of(data, position)]
    return content
