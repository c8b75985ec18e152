"""Runs two-phase commits (KIP-939) with raw requests, because no released client can send these requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.describe_transactions_response import DescribeTransactionsResponse, TransactionState
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.produce_response import ProduceResponse
from tests.support.batches import batch_by
from tests.support.requests import produce_request
from tests.support.wire import Wire

Pair = tuple[int, int]
T = TypeVar("T", InitProducerIdResponse, EndTxnResponse)

PATIENCE_S = 30
TRANSACTION = 1  # coordinator type for transactions
TWO_PHASE, ORDINARY = 6, 5  # versions of InitProducerId
NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.value,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.value,
    ErrorCode.NOT_COORDINATOR.value,
    ErrorCode.CONCURRENT_TRANSACTIONS.value,
}


class TwoPhaseClient:
    """A connection that repeats requests after transient errors."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        wire.ask(FindCoordinatorRequest(key="any", key_type=TRANSACTION), 3)

    def init(
        self, transactional_id: str, *, two_phase: bool = True, keep: bool = False, timeout_ms: int = 60_000
    ) -> InitProducerIdResponse:
        """Sends InitProducerId until the response has no transient error and returns that response.

        timeout_ms  timeout of an ordinary transaction
        """
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            enable2_pc=two_phase,
            keep_prepared_txn=keep,
        )
        version = TWO_PHASE if two_phase else ORDINARY
        return self._patiently(lambda: self._wire.ask(request, version, InitProducerIdResponse))

    def open(self, transactional_id: str, *topics: str, two_phase: bool = True, timeout_ms: int = 60_000) -> Pair:
        """Begins a transaction with one record in partition 0 of each topic. Returns its producer id and epoch."""
        known = self.init(transactional_id, two_phase=two_phase, timeout_ms=timeout_ms)
        assert known.error_code == 0, known
        pair = known.producer_id, known.producer_epoch
        for topic in topics:
            self.write(transactional_id, pair, topic)
        return pair

    def write(self, transactional_id: str, pair: Pair, topic: str) -> None:
        batch = batch_by(pair, 0, b"prepared", key=None, at_ms=time.time_ns() // 1_000_000)
        produce = produce_request(topic, batch, transactional_id=transactional_id)
        answer = self._wire.ask(produce, 12, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer

    def keep(self, transactional_id: str) -> Pair:
        """Keeps the transaction, as a recovery does. Returns the producer id and epoch that may end it."""
        kept = self.init(transactional_id, keep=True)
        assert kept.error_code == 0, kept
        return kept.producer_id, kept.producer_epoch

    def use_up_epochs(self, transactional_id: str, last_epoch: int, ahead: int = 500) -> None:
        """Sends InitProducerId until the broker has assigned `last_epoch`. Up to `ahead` requests are in flight at a
        time."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000, enable2_pc=True
        )
        used_epoch = answered = self.init(transactional_id).producer_epoch
        while answered < last_epoch:
            while used_epoch < min(answered + ahead, last_epoch):
                self._wire.send(request, TWO_PHASE)
                used_epoch += 1
            self._wire.receive(InitProducerIdRequest.API_KEY, TWO_PHASE)
            answered += 1

    def end(self, transactional_id: str, pair: Pair, *, commit: bool) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=pair[0], producer_epoch=pair[1], committed=commit
        )
        return ErrorCode(self._patiently(lambda: self._wire.ask(request, 5, EndTxnResponse)).error_code)

    def describe(self, transactional_id: str) -> TransactionState:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        deadline = time.monotonic() + PATIENCE_S
        while True:
            (found,) = self._wire.ask(request, 0, DescribeTransactionsResponse).transaction_states
            if found.error_code not in NOT_YET or time.monotonic() > deadline:
                return found

    def _patiently(self, ask: Callable[[], T]) -> T:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = ask()
            if answer.error_code not in NOT_YET or time.monotonic() > deadline:
                return answer
