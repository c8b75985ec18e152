"""Tests that a prepared transaction survives every kill -9 on the broker and ends as the external coordinator decided.

The test runs ROUNDS transactions (12 by default) of one transactional id. In each round the broker is killed twice
while it handles a chosen request. Then the application restarts and follows its notes. The test sends raw requests in
order to choose the moment.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.struct import Message
from tests.clients.admin import create_topic
from tests.support.batches import batch_by
from tests.support.broker_process import Broker, BrokerProcess
from tests.support.wire import Wire

ROUNDS = int(os.environ.get("ROUNDS", "12"))
SETTINGS = {"transaction.two.phase.commit.enable": "true", "transaction.state.log.num.partitions": 2}
ID, TOPIC = "payments", "orders"
NO_PAIR = (-1, -1)
KEEPING, PRODUCING, ENDING, FINDING = 6, 12, 5, 4  # request versions
PATIENCE_S = 60
RETRIED = frozenset(
    {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)
Pair = tuple[int, int]
M = TypeVar("M", bound=Message)


class Application:
    """An application that keeps notes for its restart. It notes each producer id and epoch before it decides, and each
    decision before it sends the decision to the broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._wire = Wire(broker.bootstrap)
        self._pair = NO_PAIR
        self.to_commit: set[Pair] = set()
        self.committed: list[bytes] = []

    def find_coordinator(self) -> None:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[ID])
        answer = self._wire.ask(request, FINDING, FindCoordinatorResponse)
        assert not answer.coordinators[0].error_code

    def recover(self) -> None:
        """Starts the application, which ends a prepared transaction according to its notes."""
        self._wire = Wire(self._broker.bootstrap)
        answer = self._until_answered(self._keep_request(), KEEPING, InitProducerIdResponse)
        self._pair = answer.producer_id, answer.producer_epoch
        ongoing = answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
        if ongoing != NO_PAIR:
            self.end(is_commit=ongoing in self.to_commit)

    def write(self, *values: bytes) -> None:
        for sequence, value in enumerate(values):
            answer = self._wire.ask(self._produce_request(value, sequence), PRODUCING, ProduceResponse)
            assert not answer.responses[0].partition_responses[0].error_code

    def decide(self, values: list[bytes], *, is_commit: bool) -> None:
        if is_commit:
            self.to_commit.add(self._pair)
            self.committed += values

    def end(self, *, is_commit: bool) -> None:
        answer = self._until_answered(self._end_request(is_commit), ENDING, EndTxnResponse)
        self._pair = answer.producer_id, answer.producer_epoch

    # Requests in progress when the broker is killed.

    def send_keep(self) -> None:
        self._wire.send(self._keep_request(), KEEPING)

    def send_write(self) -> None:
        self._wire.send(self._produce_request(b"never acknowledged", 2), PRODUCING)

    def send_end(self, *, is_commit: bool) -> None:
        self._wire.send(self._end_request(is_commit), ENDING)

    def _until_answered(self, request: Message, version: int, answer: type[M]) -> M:
        until_s = time.monotonic() + PATIENCE_S
        while True:
            response = self._wire.ask(request, version, answer)
            code = ErrorCode(response.error_code)  # type: ignore[attr-defined]  # both kinds have one
            if code not in RETRIED or time.monotonic() > until_s:
                assert code is ErrorCode.NONE
                return response
            time.sleep(0.02)

    def _keep_request(self) -> InitProducerIdRequest:
        return InitProducerIdRequest(
            transactional_id=ID, transaction_timeout_ms=0, enable2_pc=True, keep_prepared_txn=True
        )

    def _end_request(self, is_commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=ID, producer_id=self._pair[0], producer_epoch=self._pair[1], committed=is_commit
        )

    def _produce_request(self, value: bytes, sequence: int) -> ProduceRequest:
        batch = batch_by(self._pair, sequence, value, key=None, at_ms=int(time.time() * 1000))
        data = [PartitionProduceData(index=0, records=batch)]
        topics = [TopicProduceData(name=TOPIC, partition_data=data)]
        return ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=10_000, topic_data=topics)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with BrokerProcess(tmp_path / "data", SETTINGS) as running:
        create_topic(running.bootstrap, TOPIC, exact=True)
        yield running


def killed(broker: Broker, request: Callable[..., None], **details: bool) -> None:
    """Sends the request, kills the broker and restarts it. The broker may die before it receives the request or while
    it handles it; the test cannot know which."""
    request(**details)
    broker.kill9()
    broker.start()


def readable(bootstrap: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    try:
        end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=PATIENCE_S)[1]
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        values: list[bytes] = []
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            message = consumer.poll(0.2)
            if message is not None and not message.error():
                values.append(message.value() or b"")
            position = consumer.position([TopicPartition(TOPIC, 0)])[0].offset
            if position >= end:
                return values
        raise AssertionError(f"read {len(values)} records, and not to the end: the last stable offset is stuck")
    finally:
        consumer.close()


def test_prepared_transactions_survive_every_kill_and_end_as_decided(broker: Broker) -> None:
    application = Application(broker)
    application.find_coordinator()
    application.recover()
    for number in range(ROUNDS):
        values = [f"{number}/{count}".encode() for count in range(2)]
        application.write(*values)
        if number % 3 == 0:
            # Without a decision, the transaction is aborted, whether or not its records were written.
            killed(broker, application.send_write)
            application.recover()
            continue
        is_commit = number % 3 == 1
        application.decide(values, is_commit=is_commit)
        if number % 2:
            killed(broker, application.send_end, is_commit=is_commit)
        else:
            killed(broker, application.send_keep)
            application = resumed(application, broker)
            killed(broker, application.send_keep)
        application = resumed(application, broker)
        application.recover()
    assert readable(broker.bootstrap) == application.committed


def resumed(application: Application, broker: Broker) -> Application:
    """Returns a new process of the application, with the old one's notes."""
    again = Application(broker)
    again.to_commit, again.committed = application.to_commit, application.committed
    return again
