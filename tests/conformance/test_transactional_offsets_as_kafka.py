"""Tests that Odradek, like Kafka, stores no topic id with offsets committed in a transaction."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.groups.records import decode_record
from odradek.protocol.batch_header import batches
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.records import records_of
from odradek.protocol.struct import ZERO_UUID
from odradek.protocol.topic_partition import GROUP_OFFSETS
from tests.support.oracle import needs_oracle, unpack
from tests.support.transactional_clients import Clients

pytestmark = needs_oracle


def transactional_values(data: bytes) -> Iterator[tuple[bytes, OffsetCommitValue]]:
    for position, header in batches(data):
        if header.is_transactional and not header.is_control:
            for record in records_of(data, position):
                decoded = decode_record(record.key, record.value)
                assert decoded is not None
                assert isinstance(decoded.value, OffsetCommitValue)
                yield bytes(record.value or b""), decoded.value


@pytest.fixture
def scene() -> Clients:
    return Clients()


@pytest.mark.parametrize("name", ["transactions-tv0", "transactions-tv1", "transactions-tv2"])
def test_transactional_offsets_are_stored_without_a_topic_id(tmp_path: Path, scene: Clients, name: str) -> None:
    """Through version 5, TxnOffsetCommit identifies topics by name. Kafka stores only the request's fields, so its
    records contain no topic id."""
    logs = sorted(unpack(name, tmp_path).glob(f"{GROUP_OFFSETS}-*/*.log"))
    of_kafka = [found for log in logs for found in transactional_values(log.read_bytes())]
    assert of_kafka
    pair = scene.init()
    for _, value in of_kafka:
        scene.commit_offset_in_transaction(pair, value.offset, metadata=value.metadata)
    log = scene.partition(GROUP_OFFSETS).log
    ours = [found for portion in log.reader.scan(0, log.log_end_offset) for found in transactional_values(portion)]
    assert [value.topic_id for _, value in ours] == [value.topic_id for _, value in of_kafka] == [ZERO_UUID] * len(ours)
    assert [len(raw) for raw, _ in ours] == [len(raw) for raw, _ in of_kafka]
