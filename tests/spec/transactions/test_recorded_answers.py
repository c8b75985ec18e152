"""Tests that requests recorded with Kafka 4.3.1 receive the same responses from Odradek, in the recorded order."""

from collections.abc import Iterator

import pytest

from odradek.broker.transactions.core import MARKER_RETRY_MS
from odradek.protocol.codec import decode, is_flexible
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import read_request_header
from odradek.protocol.messages import request_class, response_class
from odradek.protocol.struct import Message
from odradek.protocol.topic_partition import TRANSACTION_STATE
from tests.support.oracle import Exchange, exchanges, needs_oracle
from tests.support.transaction_broker import TransactionBroker

EVERYWHERE = [("p-7", 0), *(("__consumer_offsets", index) for index in range(3))]
NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name}  # Kafka had just been started and had no producer ids yet.


def recorded(api: str, client: str = "probe") -> Iterator[Exchange]:
    for exchange in exchanges(client):
        if exchange.api == api and exchange.response is not None and not NOT_YET & set(exchange.errors):
            yield exchange


def scene_of_the_probe() -> TransactionBroker:
    """Returns a scene with the recording's topics, transactional ids and producer ids."""
    scene = TransactionBroker()
    scene.blocks.begin_at(0)
    scene.topic(TRANSACTION_STATE, 3)
    scene.topic("__consumer_offsets", 3)
    scene.topic("p-7", 2)
    # Kafka assigned its first producer id to the transactional id p-y. The other ids were created later, one for each
    # version.
    for exchange in sorted(recorded("InitProducerId"), key=lambda each: b"p-tx" in each.request):
        assert ask(scene, exchange) == answered(exchange), str(exchange)
    return scene


def ask(scene: TransactionBroker, exchange: Exchange) -> Message:
    _, position = read_request_header(memoryview(exchange.request))
    kind = request_class(exchange.key)
    request = decode(kind, exchange.version, exchange.request, position)
    return scene.answer_or_refusal(request, exchange.version, response_class(exchange.key))


def answered(exchange: Exchange) -> Message:
    assert exchange.response is not None
    kind = response_class(exchange.key)
    return decode(kind, exchange.version, exchange.response, 5 if is_flexible(kind, exchange.version) else 4)


@needs_oracle
@pytest.mark.parametrize("version", range(6))
def test_a_transaction_of_each_version_gets_the_recorded_responses_of_kafka(version: int) -> None:
    scene = scene_of_the_probe()
    for api in ("AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"):
        for exchange in recorded(api):
            if exchange.version != version:
                continue
            # While Kafka was still writing its markers, the client retried its request, and the retry was recorded too.
            was_under_way = ErrorCode.CONCURRENT_TRANSACTIONS.name in exchange.errors
            scene.markers.refusals = dict.fromkeys(EVERYWHERE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert ask(scene, exchange) == answered(exchange), str(exchange)
            if was_under_way:
                scene.markers.refusals = {}
                scene.timers.advance(MARKER_RETRY_MS)


@needs_oracle
@pytest.mark.parametrize("client", ["probe", "broker", "java"])
def test_markers_are_answered_as_kafka_answered_them(client: str) -> None:
    count = 0
    for exchange in recorded("WriteTxnMarkers", client):
        scene = TransactionBroker()
        scene.topic("__consumer_offsets", 3)
        for name in ("p-7", "a-a", "j-a", "j-b", "c-a", "c-b", "k-a", "js-a"):
            scene.topic(name, 2)
        assert in_order(ask(scene, exchange)) == in_order(answered(exchange)), str(exchange)
        count += 1
    assert count > 0


def in_order(response: Message) -> list[tuple[int, list[tuple[str, list[tuple[int, int]]]]]]:
    """Returns the markers with sorted topics and partitions, because Kafka lists them in hash order."""
    return [
        (
            marker.producer_id,
            sorted(
                (
                    topic.name,
                    sorted((partition.partition_index, partition.error_code) for partition in topic.partitions),
                )
                for topic in marker.topics
            ),
        )
        for marker in response.markers  # type: ignore[attr-defined]  # a WriteTxnMarkersResponse
    ]
