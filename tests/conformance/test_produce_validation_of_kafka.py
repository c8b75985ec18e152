"""Tests that Apache Kafka gives the answer that each row of tests/support/produced.py expects and stores the same
records as Odradek."""

import re
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from odradek.protocol.batch_header import assign, batches
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse
from odradek.protocol.records import records_of
from odradek.storage.validation import check_produced
from tests.spec.test_produce_validation import rules_for
from tests.support.batches import NOW_MS
from tests.support.oracle import needs_kafka
from tests.support.produced import ProduceCase, everything
from tests.support.requests import produce_request
from tests.support.running_kafka import running_kafka
from tests.support.wire import Wire

pytestmark = needs_kafka

LEADER_EPOCH = 0
NOT_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value, ErrorCode.NOT_LEADER_OR_FOLLOWER.value)


def topic_of(row: ProduceCase) -> str:
    """Returns the topic for a row. Rows with the same topic settings share a topic."""
    return "_".join(["topic", *(f"{name}-{value}" for name, value in sorted(row.topic.items()))])


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with running_kafka(tmp_path_factory.mktemp("kafka")) as bootstrap, Wire(bootstrap) as wire:
        settings = {topic_of(row): row.topic for row in everything(NOW_MS)}
        created = wire.ask(
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=name,
                        num_partitions=1,
                        replication_factor=1,
                        configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.items()],
                    )
                    for name, topic in settings.items()
                ],
                timeout_ms=30_000,
            ),
            5,
            CreateTopicsResponse,
        )
        assert {topic.error_code for topic in created.topics} == {0}
        yield wire


def sent(wire: Wire, row: ProduceCase, records: bytes | bytearray) -> PartitionProduceResponse:
    request = produce_request(topic_of(row), memoryview(records), transactional_id=row.transactional_id)
    while True:  # Kafka answers CreateTopics before it leads the new partitions.
        response = wire.ask(request, row.version, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        if answer.error_code not in NOT_YET:
            return answer


def stored(wire: Wire, row: ProduceCase, offset: int) -> bytes:
    request = FetchRequest(
        max_wait_ms=0,
        max_bytes=1 << 24,
        topics=[
            FetchTopic(
                topic=topic_of(row),
                partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 24)],
            )
        ],
    )
    records = wire.ask(request, 4, FetchResponse).responses[0].partitions[0].records
    assert isinstance(records, bytes | bytearray | memoryview)
    position, header = next(batches(records))
    return bytes(records[position : position + header.size_bytes])


def without_the_time(text: str | None, row: ProduceCase) -> str | None:
    """Removes timestamps and topic names, which differ between Kafka and Odradek."""
    return text and re.sub(r"within \[.*?\]", "within []", text).replace(f"{topic_of(row)}-0", "TOPIC-0")


@pytest.mark.parametrize("name", [row.name for row in everything(NOW_MS)])
def test_kafka_accepts_and_refuses_the_same_batches(kafka: Wire, name: str) -> None:
    """Checks that Kafka's response agrees with the row. The rows include M1 to M3, M6 and M7 of
    docs/spec/kafka-4.4.md#s4-3, and O5 of #s5-5."""
    now_ms = time.time_ns() // 1_000_000
    row = next(row for row in everything(now_ms) if row.name == name)
    answer = sent(kafka, row, row.records)
    assert ErrorCode(answer.error_code) is (row.kafka or row.code)
    if answer.error_code == 0 and row.code is ErrorCode.NONE:
        rules = rules_for(row)
        append_time_ms = answer.log_append_time_ms if answer.log_append_time_ms >= 0 else now_ms
        ours = check_produced(bytearray(row.records), rules, append_time_ms, row.version).batch
        assign(ours, answer.base_offset, LEADER_EPOCH)
        theirs = stored(kafka, row, answer.base_offset)
        if rules.compression is None or bytes(ours) == theirs:
            assert bytes(ours) == theirs
        else:  # The two brokers' compression libraries may produce different bytes.
            (_, our_header), (_, their_header) = next(batches(ours)), next(batches(theirs))
            assert our_header == replace(their_header, batch_length=our_header.batch_length, crc=our_header.crc)
            assert list(records_of(ours)) == list(records_of(theirs))
        return
    if row.version >= 8 and row.kafka is None:
        assert without_the_time(answer.error_message, row) == without_the_time(row.message, row)
        assert [
            (one.batch_index, without_the_time(one.batch_index_error_message, row)) for one in answer.record_errors
        ] == [(index, without_the_time(text, row)) for index, text in row.record_errors]
