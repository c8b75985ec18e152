"""Tests that a prepared transaction is sealed once another producer has taken it over. The tests use the network, kill
-9 on the broker, and every node of a controlled cluster.

tests/spec/transactions/test_sealed_transactions.py covers the rules case by case. Source:
docs/spec/transactions.md#s3-7.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from odradek.protocol.records import NewRecord, build_batch
from odradek.testing.sync import Odradek
from tests.clients.admin import create_topic
from tests.support.broker_process import IS_KAFKA, BrokerProcess
from tests.support.wire import Wire

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="no released Kafka has KIP-939")

ID, TOPIC, GROUP = "payments", "orders", "readers"
SETTINGS = {"transaction.two.phase.commit.enable": "true", "transaction.state.log.num.partitions": 1}
KEEPING, PRODUCING, COMMITTING, ENDING, ADDING = 6, 12, 5, 5, 3  # request versions
ADDS_NOTHING = 3  # a version of TxnOffsetCommit that needs AddOffsetsToTxn first
PASSING = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
PATIENCE_S = 30
Pair = tuple[int, int]


def settled(ask: Callable[[], int]) -> ErrorCode:
    """Repeats a request until its error code is final."""
    deadline = time.monotonic() + PATIENCE_S
    while (code := ErrorCode(ask())) in PASSING and time.monotonic() < deadline:
        time.sleep(0.05)
    return code


def find_coordinators(wire: Wire) -> None:
    """Ensures that the coordinators' internal topics exist."""
    for key_type, key in ((0, GROUP), (1, ID)):
        wire.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)


def initialised(wire: Wire, *, keep: bool) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=ID, transaction_timeout_ms=60_000, enable2_pc=True, keep_prepared_txn=keep
    )
    found: list[InitProducerIdResponse] = []

    def ask() -> int:
        found.append(wire.ask(request, KEEPING, InitProducerIdResponse))
        return found[-1].error_code

    find_coordinators(wire)
    assert settled(ask) is ErrorCode.NONE
    return found[-1]


def produce(wire: Wire, pair: Pair, sequence: int, value: bytes) -> ErrorCode:
    records = build_batch(
        [NewRecord(None, value, time.time_ns() // 1_000_000)],
        producer_id=pair[0],
        producer_epoch=pair[1],
        base_sequence=sequence,
        is_transactional=True,
    )
    data = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=records)])]
    request = ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=30_000, topic_data=data)
    return settled(lambda: wire.ask(request, PRODUCING, ProduceResponse).responses[0].partition_responses[0].error_code)


def commit_offset(wire: Wire, pair: Pair, offset: int, version: int = COMMITTING) -> ErrorCode:
    partitions = [TxnOffsetCommitRequestPartition(committed_offset=offset)]
    request = TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id=GROUP,
        producer_id=pair[0],
        producer_epoch=pair[1],
        topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
    )
    return settled(lambda: wire.ask(request, version, TxnOffsetCommitResponse).topics[0].partitions[0].error_code)


def add_partition(wire: Wire, pair: Pair) -> ErrorCode:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=pair[0],
        v3_and_below_producer_epoch=pair[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
    )
    return settled(
        lambda: (
            wire.ask(request, ADDING, AddPartitionsToTxnResponse)
            .results_by_topic_v3_and_below[0]
            .results_by_partition[0]
            .partition_error_code
        )
    )


def commit(wire: Wire, pair: Pair) -> ErrorCode:
    request = EndTxnRequest(transactional_id=ID, producer_id=pair[0], producer_epoch=pair[1], committed=True)
    return settled(lambda: wire.ask(request, ENDING, EndTxnResponse).error_code)


def values(bootstrap: str) -> list[bytes]:
    """Returns the values of the committed records in the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "checker", "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error():
                return found
            if message is not None:
                found.append(message.value() or b"")
        raise AssertionError("the end of the topic was not reached")
    finally:
        consumer.close()


def committed_offset(bootstrap: str) -> int:
    group_partitions = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(TOPIC, 0)])
    # This variable keeps the client alive until the response arrives.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.list_consumer_group_offsets([group_partitions])[GROUP].result(PATIENCE_S)
    offset: int = found.topic_partitions[0].offset
    return offset


def is_refused(wire: Wire, old: Pair) -> None:
    """Checks that the broker refuses every request from the old producer that could change the transaction."""
    assert produce(wire, old, 1, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
    for version in (ADDS_NOTHING, COMMITTING):
        assert commit_offset(wire, old, 7, version) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert add_partition(wire, old) is ErrorCode.PRODUCER_FENCED
    assert commit(wire, old) is ErrorCode.PRODUCER_FENCED


def pair_of(answer: InitProducerIdResponse) -> Pair:
    return answer.producer_id, answer.producer_epoch


def test_a_kill_9_does_not_unseal_a_transaction_with_a_new_owner(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", SETTINGS) as broker:
        assert isinstance(broker, BrokerProcess)
        create_topic(broker.bootstrap, TOPIC, 1, exact=True)
        with Wire(broker.bootstrap) as wire:
            old = pair_of(initialised(wire, keep=False))
            assert produce(wire, old, 0, b"prepared") is ErrorCode.NONE
            assert commit_offset(wire, old, 100) is ErrorCode.NONE
            taken = initialised(wire, keep=True)
            assert (taken.ongoing_txn_producer_id, taken.ongoing_txn_producer_epoch) == old
            is_refused(wire, old)
        for _ in range(2):
            broker.kill9()
            broker.start()
            with Wire(broker.bootstrap) as wire:
                is_refused(wire, old)
        with Wire(broker.bootstrap) as wire:
            assert commit(wire, pair_of(taken)) is ErrorCode.NONE
        assert values(broker.bootstrap) == [b"prepared"]
        assert committed_offset(broker.bootstrap) == 100


@pytest.mark.parametrize("coordinator", [1, 2])
def test_a_leader_refuses_records_of_a_transaction_that_another_node_has_sealed(
    odradek: Odradek, coordinator: int
) -> None:
    with odradek.cluster(nodes=2, settings=SETTINGS) as kafka:
        create_topic(kafka.bootstrap, TOPIC, 1, exact=True)
        addresses = dict(zip((1, 2), kafka.bootstrap.split(","), strict=True))
        with Wire(addresses[1]) as first, Wire(addresses[2]) as second:
            wires = {1: first, 2: second}
            other = 3 - coordinator
            find_coordinators(first)
            kafka.move_coordinator("transaction", ID, coordinator)
            kafka.move_leader(TOPIC, 0, other)
            old = pair_of(initialised(wires[coordinator], keep=False))
            assert produce(wires[other], old, 0, b"prepared") is ErrorCode.NONE
            taken = initialised(wires[coordinator], keep=True)
            assert produce(wires[other], old, 1, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
            kafka.move_leader(TOPIC, 0, coordinator)
            assert produce(wires[coordinator], old, 1, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
            kafka.move_coordinator("transaction", ID, other)
            assert produce(wires[coordinator], old, 1, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
            assert commit(wires[other], pair_of(taken)) is ErrorCode.NONE
        assert values(kafka.bootstrap) == [b"prepared"]
