"""Tests Kafka's checkpoints and Kafka's other small text files."""

import pytest

from odradek.files.checkpoints import (
    CorruptCheckpoint,
    MetaProperties,
    decode_clean_shutdown,
    decode_epochs,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_epochs,
    encode_meta_properties,
    encode_offsets,
    encode_partition_metadata,
    topic_id_text,
)


def test_offsets_are_version_count_and_a_row_for_each_partition() -> None:
    data = encode_offsets({("segments", 0): 3430, ("__consumer_offsets", 12): 0})
    assert data == b"0\n2\nsegments 0 3430\n__consumer_offsets 12 0\n"
    assert decode_offsets(data) == {("segments", 0): 3430, ("__consumer_offsets", 12): 0}


def test_leader_epochs_are_version_count_and_a_row_for_each_epoch() -> None:
    assert encode_epochs([(0, 0), (3, 50)]) == b"0\n2\n0 0\n3 50\n"
    assert decode_epochs(b"0\n2\n0 0\n3 50\n") == [(0, 0), (3, 50)]


def test_an_empty_file_means_no_entries() -> None:
    assert decode_offsets(b"") == {}
    assert decode_epochs(b"") == []


@pytest.mark.parametrize(
    "data", [b"0\n", b"1\n0\n", b"0\n2\nt 0 1\n", b"0\n1\nt 0\n", b"0\n1\nt zero 1\n", b"0\n-1\n", b"\xff\xfe\n0\n"]
)
def test_offsets_that_are_torn_or_foreign_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_offsets(data)


@pytest.mark.parametrize("data", [b"0\n2\n1 0\n1 5\n", b"0\n2\n1 5\n2 4\n", b"0\n1\n1\n", b"garbage"])
def test_epochs_that_do_not_ascend_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_epochs(data)


def test_the_topic_id_is_base64_for_urls() -> None:
    topic_id = bytes(range(0xF0, 0x100))
    data = encode_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: 8PHy8_T19vf4-fr7_P3-_w"
    assert decode_partition_metadata(data) == topic_id
    assert topic_id_text(topic_id) == "8PHy8_T19vf4-fr7_P3-_w"


@pytest.mark.parametrize(
    "data", [b"", b"version: 0\n", b"version: 1\ntopic_id: 8PHy8_T19vf4-fr7_P3-_w", b"version: 0\ntopic_id: 8P"]
)
def test_partition_metadata_that_is_torn_or_foreign_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_partition_metadata(data)


def test_meta_properties_as_kafka_writes_them() -> None:
    """P3: the file has the properties that Kafka writes (docs/spec/kafka-4.4.md#s6-1)."""
    data = (
        b"#\n#Sat Nov 21 14:29:10 UTC 2026\nnode.id=1\ndirectory.id=9DitBXe7pyoCRUw-w\nversion=1\ncluster.id=b2R\\=\n"
    )
    meta = decode_meta_properties(data)
    assert meta == MetaProperties(1, "b2R=", "9DitBXe7pyoCRUw-w")
    assert decode_meta_properties(encode_meta_properties(meta)) == meta


@pytest.mark.parametrize(
    "data", [b"", b"version=0\nnode.id=1\n", b"version=1\nnode.id=x\ncluster.id=c\n", b"version=1\nnode.id=1\n"]
)
def test_meta_properties_without_version_node_or_cluster_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_meta_properties(data)


def test_the_mark_of_a_clean_shutdown_holds_the_broker_epoch() -> None:
    assert encode_clean_shutdown(11) == b'{"version":0,"brokerEpoch":11}'
    assert decode_clean_shutdown(b'{"version":0,"brokerEpoch":11}') == 11
    assert decode_clean_shutdown(b"") is None
