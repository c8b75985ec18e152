"""Tests that a transaction that was open when Apache Kafka stopped is still open in Odradek and can be ended there.

The transaction `open-tvN` has one record in each partition of `ledger`, and offset 7 of `source-0` for the group
`copiers`. In ledger-0 it is followed by a record outside any transaction. See the README of the oracle kit's data.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.describe_transactions_response import DescribeTransactionsResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.protocol.messages.list_transactions_response import ListTransactionsResponse
from odradek.protocol.struct import Message
from tests.clients.speakers import wait_for
from tests.conformance.observe import Observer
from tests.conformance.test_directories_of_kafka import settings
from tests.support.broker_process import Broker, new_broker
from tests.support.oracle import needs_oracle, served, unpack
from tests.support.wire import Wire

pytestmark = needs_oracle

NAMES = ("transactions-tv0", "transactions-tv1", "transactions-tv2", "transactions-tv2-killed")
PRODUCER_ID, PRODUCER_EPOCH = 7, 0
NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.value,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.value,
    ErrorCode.CONCURRENT_TRANSACTIONS.value,
}


@dataclass(slots=True)
class StartedOnKafka:
    """A broker started on a directory that Kafka wrote."""

    name: str
    broker: Broker

    @property
    def transaction_version(self) -> int:
        return int(self.name.removesuffix("-killed")[-1])

    @property
    def transactional_id(self) -> str:
        return f"open-tv{self.transaction_version}"

    def ask(self, request: Message, version: int, kind: type[Any]) -> Any:
        """Sends a request and retries it after retriable errors."""
        with Wire(self.broker.bootstrap) as wire:
            found: list[Any] = []

            def is_answered() -> bool:
                found[:] = [wire.ask(request, version, kind)]
                if found[0].error_code in NOT_YET:
                    time.sleep(0.05)
                    return False
                return True

            wait_for(f"an answer to {request}", is_answered)
            return found[0]

    def end(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=PRODUCER_ID,
            producer_epoch=PRODUCER_EPOCH,
            committed=commit,
        )
        answer = self.ask(request, 5 if self.transaction_version == 2 else 4, EndTxnResponse)
        assert answer.error_code == 0
        if self.transaction_version == 2:
            assert (answer.producer_id, answer.producer_epoch) == (PRODUCER_ID, PRODUCER_EPOCH + 1)

    def fence(self) -> None:
        """Takes over the transactional id, as a new producer would."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        answer = self.ask(request, 4, InitProducerIdResponse)
        assert (answer.error_code, answer.producer_id) == (0, PRODUCER_ID)
        assert answer.producer_epoch > PRODUCER_EPOCH

    def transactions(self) -> dict[str, Any]:
        """Returns all transactions in the format of served.json."""
        with Wire(self.broker.bootstrap) as wire:
            listed = wire.ask(ListTransactionsRequest(), 1, ListTransactionsResponse).transaction_states
            request = DescribeTransactionsRequest(transactional_ids=[one.transactional_id for one in listed])
            described = wire.ask(request, 0, DescribeTransactionsResponse).transaction_states
        return {
            one.transactional_id: {
                "epoch": one.producer_epoch,
                "partitions": sorted(f"{topic.topic}-{index}" for topic in one.topics for index in topic.partitions),
                "producerId": one.producer_id,
                "startTime": one.transaction_start_time_ms,
                "state": one.transaction_state,
                "timeoutMs": one.transaction_timeout_ms,
            }
            for one in described
        }

    def state(self) -> str | None:
        """Returns the transaction's state, or None while its coordinator is loading, because only loaded transactions
        are listed."""
        found = self.transactions().get(self.transactional_id)
        return None if found is None else str(found["state"])


def observed(left: StartedOnKafka, look: Callable[[Observer], Any]) -> Any:
    observer = Observer(left.broker.bootstrap)
    try:
        return look(observer)
    finally:
        observer.close()


@pytest.fixture(params=NAMES)
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartedOnKafka]:
    path = unpack(request.param, tmp_path)
    with new_broker(path, settings(served(request.param))) as broker:
        yield StartedOnKafka(request.param, broker)


def check_open(left: StartedOnKafka) -> None:
    recorded = served(left.name)
    wait_for("the coordinators to be loaded", lambda: len(left.transactions()) == len(recorded["transactions"]))
    assert left.transactions() == recorded["transactions"]
    ledger = observed(left, lambda observer: observer.topics())["ledger"]["partitions"]
    stable = [partition["lastStableOffset"] for partition in ledger]
    assert stable == [one["lastStableOffset"] for one in recorded["topics"]["ledger"]["partitions"]] == [27, 24]
    assert committed_offset(left) == 5


def committed_offset(left: StartedOnKafka) -> int:
    offset: int = observed(left, lambda observer: observer.committed("copiers"))["source-0"][0]
    return offset


def values(left: StartedOnKafka, partition: int) -> list[bytes | None]:
    records = observed(left, lambda observer: observer.records_read("ledger", partition, "read_committed"))
    return [value for _, value in records]


def check_finished(left: StartedOnKafka, *, committed: bool, most_markers: int = 1) -> None:
    """Checks that the transaction has ended everywhere, and that its records and offset are visible if and only if it
    is committed."""
    wait_for("the end of the transaction", lambda: left.state() == ("CompleteCommit" if committed else "CompleteAbort"))
    partitions = observed(left, lambda observer: observer.topics())["ledger"]["partitions"]
    for index, partition in enumerate(partitions):
        before = served(left.name)["topics"]["ledger"]["partitions"][index]
        assert 1 <= partition["latest"] - before["latest"] <= most_markers
        assert partition["lastStableOffset"] == partition["latest"]
        assert (before["lastStableOffset"] in range(*span(partition["readCommitted"]))) is committed
        assert all(producer["currentTransactionStartOffset"] == -1 for producer in partition["producers"])
    assert values(left, 0)[-1] == b"behind the open transaction"
    assert committed_offset(left) == (7 if committed else 5)
    open_ones = [one for one in left.transactions().values() if one["state"] == "Ongoing"]
    assert open_ones == []


def span(ranges: list[list[int]]) -> tuple[int, int]:
    """Returns the start and the exclusive end of the last run of offsets. The open transaction's record would be the
    first record of this run."""
    first, last = ranges[-1]
    return first, last + 1


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "aborted"])
def test_the_owner_ends_the_open_transaction(left: StartedOnKafka, committed: bool) -> None:
    check_open(left)
    left.end(commit=committed)
    check_finished(left, committed=committed)
    left.broker.restart()
    check_finished(left, committed=committed)


def test_a_successor_of_the_owner_aborts_the_open_transaction(left: StartedOnKafka) -> None:
    check_open(left)
    left.fence()
    with Wire(left.broker.bootstrap) as wire:
        zombie = EndTxnRequest(
            transactional_id=left.transactional_id,
            producer_id=PRODUCER_ID,
            producer_epoch=PRODUCER_EPOCH,
            committed=True,
        )
        assert wire.ask(zombie, 4, EndTxnResponse).error_code == ErrorCode.PRODUCER_FENCED.value
    assert left.state() == "Empty"


def test_the_open_transaction_outlives_further_crashes(left: StartedOnKafka) -> None:
    check_open(left)
    left.broker.kill9()
    left.broker.start()
    check_open(left)
    left.end(commit=True)
    left.broker.kill9()
    left.broker.start()
    # If the completion was not stored before the kill, the markers are written a second time.
    check_finished(left, committed=True, most_markers=2)
