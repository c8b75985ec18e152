"""Tests WriteTxnMarkers as brokers and administrators see it. The tests cover the result for each partition and the
required rights.

Rules: docs/spec/transactions.md#s2-6; scenario: #s8-4.
"""

from typing import Any

import pytest

from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse
from odradek.protocol.topic_partition import TRANSACTION_STATE
from tests.support.transaction_broker import TransactionBroker

E = ErrorCode


@pytest.fixture
def scene() -> TransactionBroker:
    scene = TransactionBroker()
    scene.topic(TRANSACTION_STATE, 3)
    scene.topic("__consumer_offsets", 3)
    scene.topic("orders", 2)
    scene.topic("refunds", 2)
    return scene


def marker(topic: str, *indexes: int, producer_id: int = 7, epoch: int = 0) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes))],
    )


def write(scene: TransactionBroker, *markers: WritableTxnMarker, version: int = 2) -> dict[int, Any]:
    answer = scene.answer(WriteTxnMarkersRequest(markers=list(markers)), version, WriteTxnMarkersResponse)
    return {
        each.producer_id: {
            (topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for topic in each.topics
            for partition in topic.partitions
        }
        for each in answer.markers
    }


@pytest.mark.parametrize("version", [1, 2])
def test_scenario_070_markers_of_one_producer_are_answered_as_one(scene: TransactionBroker, version: int) -> None:
    assert write(scene, marker("orders", 0), marker("refunds", 1), version=version) == {
        7: {("orders", 0): E.NONE, ("refunds", 1): E.NONE}
    }


# KoP's response to a request with many producers lacked some of the results.
@pytest.mark.known_bug(46, "KoP 1599")
def test_markers_of_several_producers_are_all_answered(scene: TransactionBroker) -> None:
    markers = [marker("orders", 0, producer_id=producer_id) for producer_id in range(150)]
    assert write(scene, *markers) == {producer_id: {("orders", 0): E.NONE} for producer_id in range(150)}


def test_a_partition_that_is_not_here_does_not_keep_the_others_from_their_marker(scene: TransactionBroker) -> None:
    assert write(scene, marker("orders", 9, 0)) == {
        7: {("orders", 9): E.UNKNOWN_TOPIC_OR_PARTITION, ("orders", 0): E.NONE}
    }
    assert write(scene) == {}


def test_a_partition_that_is_named_twice_is_answered_once(scene: TransactionBroker) -> None:
    assert write(scene, marker("orders", 0, 0, 9, 9)) == {
        7: {("orders", 0): E.NONE, ("orders", 9): E.UNKNOWN_TOPIC_OR_PARTITION}
    }


def test_either_of_two_permissions_lets_markers_pass(scene: TransactionBroker) -> None:
    alter = (Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    action = (Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    scene.authorizer.denied = {alter}
    assert write(scene, marker("orders", 0)) == {7: {("orders", 0): E.NONE}}
    scene.authorizer.denied = {alter, action}
    request = WriteTxnMarkersRequest(markers=[marker("orders", 0)])
    with pytest.raises(KafkaError) as refused:
        scene.ask(request, 2)
    assert refused.value.code is E.CLUSTER_AUTHORIZATION_FAILED
