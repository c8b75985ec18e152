"""Tests the comparison of responses. Values that the protocol leaves open may differ, and every other difference is
reported with its field."""

from __future__ import annotations

import pytest

from odradek.protocol.api_keys import ApiKey as Api
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.struct import Message
from odradek.testing.replay.comparing import compare
from odradek.testing.replay.concurrency import RequestsInFlight
from odradek.testing.replay.ids import IdMap
from tests.support.judged_cases import batch


def paths(recorded: Message, live: Message, version: int, ids: IdMap | None = None) -> list[str]:
    return [each.path for each in compare(recorded, live, version, IdMap() if ids is None else ids).differences]


def metadata(*names: str, node: int = 1, host: str = "a", first_id: int = 1) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(
            name=name,
            topic_id=bytes([first_id + ord(name)]) * 16,
            partitions=[MetadataResponsePartition(leader_id=node, replica_nodes=[node], isr_nodes=[node])],
        )
        for name in names
    ]
    return MetadataResponse(brokers=[MetadataResponseBroker(node_id=node, host=host)], topics=topics)


def fetched(*values: bytes, high_watermark: int = 5) -> FetchResponse:
    records = build_batch([NewRecord(None, value, 7) for value in values]) if values else b""
    partition = PartitionData(partition_index=0, high_watermark=high_watermark, records=bytes(records))
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


def test_other_nodes_addresses_topic_ids_and_another_order_are_no_difference() -> None:
    assert paths(metadata("t", "u"), metadata("u", "t", node=7, host="b", first_id=100), 12) == []


def test_an_id_stands_for_the_same_one_throughout() -> None:
    ids = IdMap()
    assert paths(metadata("t"), metadata("t", first_id=9), 12, ids) == []
    assert paths(metadata("t"), metadata("t", first_id=10), 12, ids) == ["topics[].topicId"]


def test_the_first_producer_of_a_kafka_has_the_id_0() -> None:
    ids = IdMap()
    assert paths(InitProducerIdResponse(producer_id=0), InitProducerIdResponse(producer_id=7), 5, ids) == []
    assert paths(InitProducerIdResponse(producer_id=-1), InitProducerIdResponse(producer_id=7), 5) == ["producerId"]
    sent = ProduceRequest(
        topic_data=[
            TopicProduceData(
                name="t", partition_data=[PartitionProduceData(index=0, records=bytes(batch(0, producer=(0, 0))))]
            )
        ]
    )
    assert ids.translate(sent, 11)


def test_two_ids_do_not_become_one() -> None:
    ids = IdMap()
    assert paths(InitProducerIdResponse(producer_id=3), InitProducerIdResponse(producer_id=8), 4, ids) == []
    assert paths(InitProducerIdResponse(producer_id=4), InitProducerIdResponse(producer_id=8), 4, ids) == ["producerId"]


def test_no_id_is_not_an_id() -> None:
    assert paths(InitProducerIdResponse(producer_id=-1), InitProducerIdResponse(producer_id=8), 4) == ["producerId"]


def test_an_error_and_a_missing_topic_are_named_by_their_fields() -> None:
    assert paths(EndTxnResponse(), EndTxnResponse(error_code=48, throttle_time_ms=5), 4) == ["errorCode"]
    assert paths(metadata("t", "u"), metadata("t"), 8) == ["topics[]"]


def test_a_field_that_the_version_has_not_is_not_compared() -> None:
    assert paths(EndTxnResponse(producer_epoch=3), EndTxnResponse(producer_epoch=4), 4) == []
    assert paths(EndTxnResponse(producer_epoch=3), EndTxnResponse(producer_epoch=4), 5) == ["producerEpoch"]


def test_the_number_of_fetched_records_may_differ_but_not_their_content() -> None:
    place = "responses[].partitions[].records"
    assert paths(fetched(b"a", b"b"), fetched(b"a"), 12) == []
    assert paths(fetched(b"a"), fetched(b"x"), 12) == [place]
    assert paths(fetched(b"a"), fetched(), 12) == [place]
    assert paths(fetched(), fetched(high_watermark=6), 12) == ["responses[].partitions[].highWatermark"]


def test_a_request_is_sent_with_live_ids_also_in_its_batches() -> None:
    ids = IdMap()
    assert ids.agree("producer", 7, 1007)
    data = [PartitionProduceData(index=0, records=bytes(batch(0, producer=(7, 3))))]
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=data)])
    assert ids.translate(request, 9)
    assert data[0].records == bytes(batch(0, producer=(1007, 3)))
    assert not ids.translate(request, 9)


@pytest.mark.parametrize(
    ("one", "other", "is_raced"), [(Api.FETCH, Api.PRODUCE, True), (Api.FETCH, Api.HEARTBEAT, False)]
)
def test_a_write_during_a_request_explains_a_different_response(one: Api, other: Api, is_raced: bool) -> None:
    for first, second in ((1, 2), (2, 1)):
        in_flight = RequestsInFlight()
        in_flight.begin(first, one if first == 1 else other)
        in_flight.begin(second, one if second == 1 else other)
        assert in_flight.end(1) == is_raced
    in_flight = RequestsInFlight()
    in_flight.begin(2, other)
    in_flight.end(2)
    in_flight.begin(1, one)
    assert not in_flight.end(1)
