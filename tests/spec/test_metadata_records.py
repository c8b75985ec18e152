"""Tests metadata log records, alone and in batches, that are applied, skipped or refused."""

import pytest

from odradek.broker.metadata.image import MetadataImage
from odradek.broker.metadata.records import FRAME_VERSION, IgnoredRecord, decode_record, encode_record, record_batch
from odradek.broker.metadata.replaying import SLICE_RECORDS, CorruptMetadata, Loader, slices
from odradek.broker.runtime.slices import run_to_end
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.abort_transaction_record import AbortTransactionRecord
from odradek.protocol.messages.begin_transaction_record import BeginTransactionRecord
from odradek.protocol.messages.end_transaction_record import EndTransactionRecord
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.producer_ids_record import ProducerIdsRecord
from odradek.protocol.messages.register_broker_record import RegisterBrokerRecord
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.struct import Message
from tests.support.metadata import topic_records


def load(image: MetadataImage, *records: Message) -> Loader:
    loader = Loader(image)
    loader.load([run_to_end(record_batch([encode_record(each, 30) for each in records], 1, leader_epoch=1))])
    return loader


def test_records_of_a_transaction_count_when_it_ends() -> None:
    image = MetadataImage()
    loader = load(image, BeginTransactionRecord(name="x"), *topic_records("t"))
    assert (loader.is_in_transaction, list(image.topics)) == (True, [])
    image = MetadataImage()
    load(image, BeginTransactionRecord(name="x"), *topic_records("t"), EndTransactionRecord())
    assert list(image.topics) == ["t"]


def test_records_of_an_aborted_transaction_do_not_count() -> None:
    image = MetadataImage()
    load(
        image,
        BeginTransactionRecord(name="x"),
        *topic_records("gone"),
        AbortTransactionRecord(reason="y"),
        *topic_records("t"),
    )
    assert list(image.topics) == ["t"]


def test_a_record_of_an_unknown_type_or_version_is_passed_over_and_named() -> None:
    image = MetadataImage()
    loader = Loader(image)
    unknown = [bytes((FRAME_VERSION, 99, 0)), bytes((FRAME_VERSION, 3, 9, 1, 2))]
    batch = build_batch([NewRecord(None, value, 1) for value in unknown], leader_epoch=1)
    loader.load([batch])
    assert loader.not_understood == {(99, 0), (3, 9)}
    assert image.next_offset == 2


def test_a_record_without_use_here_is_known_all_the_same() -> None:
    assert decode_record(bytes((FRAME_VERSION, 20, 0, 0))) == IgnoredRecord(20, 0, is_known=True)


@pytest.mark.parametrize(
    "value", [b"", b"\x01", b"\x00\x02\x00", b"\x01\x02\x00\x05ab", b"\x01\xff\xff\xff\xff\xff\xff"]
)
def test_bytes_that_are_no_record_are_refused(value: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(value)


def test_a_log_that_contradicts_itself_is_not_started_on() -> None:
    with pytest.raises(CorruptMetadata, match="offset 1"):
        load(MetadataImage(), ProducerIdsRecord(next_producer_id=5), topic_records("t")[1])


@pytest.mark.parametrize(
    ("metadata_version", "partition", "broker"), [(7, 0, 1), (8, 0, 2), (17, 1, 3), (23, 2, 3), (30, 2, 4), (33, 2, 4)]
)
def test_records_are_written_in_the_version_that_the_clusters_level_knows(
    metadata_version: int, partition: int, broker: int
) -> None:
    record = topic_records("t")[1]
    assert isinstance(record, PartitionRecord)
    if partition == 0:
        record.directories = []
    assert encode_record(record, metadata_version)[2] == partition
    assert encode_record(RegisterBrokerRecord(broker_id=1), metadata_version)[2] == broker


def test_changes_of_many_partitions_are_encoded_one_by_one_and_become_visible_in_slices() -> None:
    changes = [PartitionChangeRecord(partition_id=index, topic_id=bytes(16), leader=1) for index in range(1_000)]
    steps = record_batch([encode_record(each, 30) for each in changes], 1, leader_epoch=1)
    assert len(list(steps)) == len(changes)
    assert [len(part) for part in slices(changes)] == [SLICE_RECORDS] * 10
