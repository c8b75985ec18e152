"""Tests transaction scenarios that cannot be provoked on Apache Kafka from the outside. Here, holds provoke them.

Source: docs/spec/transactions.md#s8-10.
"""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse
from odradek.testing.sync import Cluster, Odradek
from tests.clients.admin import create_topic
from tests.support.batches import batch_by
from tests.support.requests import produce_request
from tests.support.wire import Wire

PATIENCE_S = 30
STATE = "__transaction_state"


def test_scenario_066_a_late_marker_response_to_an_old_coordinator_completes_nothing(odradek: Odradek) -> None:
    with odradek.cluster(nodes=2, settings={"transaction.state.log.num.partitions": 1}) as kafka:
        create_topic(kafka.bootstrap, "orders", 2, exact=True)
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
        producer.init_transactions(30)
        kafka.move_coordinator("transaction", "t", 1)
        kafka.fault({"at": "completed", "match": {"transactional_id": "t"}, "do": {"hold": "late"}, "times": 1})
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("orders", "a", partition=partition)
        with pytest.raises(Exception, match="imed out"):
            producer.commit_transaction(1)
        kafka.wait(hold="late")
        kafka.wait(transaction="t", state="PrepareCommit")
        # The new coordinator writes the markers again and completes the transaction.
        kafka.move_coordinator("transaction", "t", 2)
        kafka.wait(transaction="t", state="CompleteCommit")
        producer.commit_transaction(30)
        producer.begin_transaction()
        producer.produce("orders", "b", partition=0)
        producer.flush(30)
        kafka.wait(transaction="t", state="Ongoing")
        before = kafka.wait(topic=STATE, partition=0, log_end_offset=1)["log_end_offset"]
        kafka.release("late")
        kafka.wait(transaction="t", state="Ongoing")
        kafka.clock.advance(1_000)  # A delayed completion would have been written by then.
        assert kafka.wait(topic=STATE, partition=0, log_end_offset=1)["log_end_offset"] == before
        kafka.wait(transaction="t", state="Ongoing")
        producer.commit_transaction(30)
        kafka.wait(transaction="t", state="CompleteCommit")


class WriterByHand:
    """A transactional producer whose requests the test sends one by one.

    adds  whether Produce adds the partition to the transaction (KIP-890), so that AddPartitionsToTxn is not needed
    """

    def __init__(self, kafka: Cluster, *, adds: bool) -> None:
        self._wire, self._ending = Wire(kafka.bootstrap), Wire(kafka.bootstrap)
        self._adds = adds
        self._sequence = 0
        passing = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.value, ErrorCode.NOT_COORDINATOR.value}
        self._wire.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 4)
        request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        until_s = time.monotonic() + PATIENCE_S
        while (answer := self._wire.ask(request, 4, InitProducerIdResponse)).error_code in passing:
            assert time.monotonic() < until_s
        assert answer.error_code == 0
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def add(self, partition: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=[partition])],
        )
        until_s = time.monotonic() + PATIENCE_S
        while code := ErrorCode(
            self._ending.ask(request, 3, AddPartitionsToTxnResponse)
            .results_by_topic_v3_and_below[0]
            .results_by_partition[0]
            .partition_error_code
        ).value:
            assert ErrorCode(code) is ErrorCode.CONCURRENT_TRANSACTIONS
            assert time.monotonic() < until_s

    def send(self) -> None:
        """Produces a record to partition 0."""
        batch = batch_by((self.producer_id, self.epoch), self._sequence, b"a", key=None, at_ms=1)
        request = produce_request("orders", batch, transactional_id="t")
        self._wire.send(request, self._version)

    def answer(self) -> ErrorCode:
        answer = self._wire.receive(ApiKey.PRODUCE.value, self._version)
        assert isinstance(answer, ProduceResponse)
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        self._sequence += code is ErrorCode.NONE
        return code

    def end(self, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id="t", producer_id=self.producer_id, producer_epoch=self.epoch, committed=committed
        )
        answer = self._ending.ask(request, 5 if self._adds else 4, EndTxnResponse)
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        if self._adds:
            self.producer_id, self.epoch, self._sequence = answer.producer_id, answer.producer_epoch, 0

    def late_marker(self) -> None:
        """Resends a marker of the last transaction, as a coordinator would if it had received no response to its first
        attempt."""
        topic = WritableTxnMarkerTopic(name="orders", partition_indexes=[0])
        marker = WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            transaction_result=True,
            topics=[topic],
            coordinator_epoch=9,
            transaction_version=2 if self._adds else 0,
        )
        answer = self._ending.ask(
            WriteTxnMarkersRequest(markers=[marker]), 2 if self._adds else 1, WriteTxnMarkersResponse
        )
        assert answer.markers[0].topics[0].partitions[0].error_code == 0

    @property
    def _version(self) -> int:
        return 12 if self._adds else 11


def hold_append(kafka: Cluster) -> None:
    kafka.fault({"at": "verified", "match": {"transactional_id": "t"}, "do": {"hold": "append"}, "times": 1})


def test_scenario_075_a_batch_verified_for_an_aborted_transaction_stays_out_of_the_next(odradek: Odradek) -> None:
    with odradek.cluster() as kafka:
        create_topic(kafka.bootstrap, "orders", 2, exact=True)
        writer = WriterByHand(kafka, adds=False)
        writer.add(0)
        hold_append(kafka)
        writer.send()
        kafka.wait(hold="append")
        writer.end(committed=False)
        kafka.wait(topic="orders", partition=0, last_stable_offset=1)
        writer.add(1)
        kafka.release("append")
        assert writer.answer() is ErrorCode.INVALID_TXN_STATE
        facts = kafka.wait(topic="orders", partition=0, log_end_offset=1)
        assert facts["log_end_offset"] == facts["last_stable_offset"] == 1  # The log contains only the marker.


def test_scenario_084_a_late_marker_leaves_the_guard_of_the_next_transaction_at_version_2(odradek: Odradek) -> None:
    with odradek.cluster() as kafka:
        create_topic(kafka.bootstrap, "orders", 2, exact=True)
        writer = WriterByHand(kafka, adds=True)
        writer.send()
        assert writer.answer() is ErrorCode.NONE
        writer.end(committed=True)
        kafka.wait(transaction="t", state="CompleteCommit")
        hold_append(kafka)
        writer.send()
        kafka.wait(hold="append")
        writer.late_marker()
        kafka.release("append")
        assert writer.answer() is ErrorCode.NONE


def test_scenario_084_before_version_2_it_takes_the_guard_and_the_batch_is_verified_again(odradek: Odradek) -> None:
    with odradek.cluster() as kafka:
        create_topic(kafka.bootstrap, "orders", 2, exact=True)
        writer = WriterByHand(kafka, adds=False)
        writer.add(0)
        hold_append(kafka)
        writer.send()
        kafka.wait(hold="append")
        writer.late_marker()
        kafka.release("append")
        assert writer.answer() is ErrorCode.INVALID_TXN_STATE
        writer.send()
        assert writer.answer() is ErrorCode.NONE


def test_scenario_105_a_producer_that_initialises_while_its_id_expires_gets_a_new_entry(odradek: Odradek) -> None:
    """Here a tombstone is replayed as soon as it is appended. No request can arrive between these two steps, so the
    answer is never CONCURRENT_TRANSACTIONS.

    The test checks the remaining requirement: the new entry of the transactional id is kept.
    """
    with odradek.cluster(settings={"connections.max.idle.ms": 30 * 24 * 3600 * 1000}) as kafka:
        create_topic(kafka.bootstrap, "orders", 1, exact=True)
        settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"}
        first = Producer(settings)
        first.init_transactions(30)
        kafka.fault({"match": {"api": "InitProducerId"}, "do": {"hold": "init"}, "times": 1})
        second = Producer(settings)
        with pytest.raises(Exception, match="imed out"):
            second.init_transactions(1)
        kafka.wait(hold="init")
        kafka.clock.advance(8 * 24 * 3600 * 1000)
        kafka.wait(transaction="t", state=None)
        kafka.release("init")
        second.init_transactions(30)
        second.begin_transaction()
        second.produce("orders", "a")
        second.flush(30)
        kafka.crash()
        kafka.restart()
        second.commit_transaction(30)
        kafka.wait(transaction="t", state="CompleteCommit")
