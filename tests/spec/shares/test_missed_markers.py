"""Tests markers that arrive twice, and markers that arrive before the leader knows that their transaction's
acknowledgements are stored.

Rules: docs/spec/share-groups.md#s5-6, #s5-7, #s5-8.
"""

from __future__ import annotations

import pytest

from odradek.broker.shares.core.acquisition import Acquisition
from odradek.broker.shares.core.in_flight import Acknowledgement, Limits, StateWrite
from odradek.broker.shares.core.partition import SharePartition
from odradek.broker.shares.core.state import ACCEPT, PendingTransaction, TransactionEnd
from odradek.broker.shares.core.tables import RecordState
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse
from odradek.protocol.topic_partition import SHARE_GROUP_STATE
from tests.support.txn_share_broker import TxnShareBroker

NONE = ErrorCode.NONE
OWNER, LIMITS, NOW_MS = "owner", Limits(delivery_count_limit=5), 1_000


class Leader:
    """A share partition with ten records acquired by one member. The test decides when writes of the state complete."""

    def __init__(self) -> None:
        self.core = SharePartition(0)
        self.core.acquire(Acquisition(OWNER, 0, 10), [(0, 9)], LIMITS, NOW_MS)

    def acknowledge(self, producer_id: int, first: int, last: int, epoch: int = 0) -> StateWrite:
        """Starts acknowledging records in a producer's transaction. Returns the write, which has not completed yet."""
        transaction = PendingTransaction(f"id {producer_id}", producer_id, epoch)
        acknowledgements = [Acknowledgement(first, last, [ACCEPT])]
        self.core.pending.require_acquired(OWNER, acknowledgements, transaction, NOW_MS)
        write = self.core.pending.acknowledge(OWNER, 1, acknowledgements, transaction, LIMITS)
        assert write is not None
        return write

    def end(self, producer_id: int, epoch: int = 1, *, commit: bool = True, version: int = 2) -> None:
        self.apply(TransactionEnd(producer_id, epoch, commit, version))

    def apply(self, ending: TransactionEnd) -> None:
        assert self.core.pending.apply_marker(ending, lambda member_id: True, LIMITS, NOW_MS) is None

    def stored(self, write: StateWrite) -> None:
        for ending in self.core.pending.write_stored(write):
            self.apply(ending)

    def undo(self, write: StateWrite) -> None:
        self.core.pending.undo_write(write, LIMITS, NOW_MS)

    def fail(self, write: StateWrite) -> None:
        self.core.write_failed(write, LIMITS)

    def states(self) -> list[RecordState]:
        """Returns the states of the tracked records. Finished records at the start are no longer tracked."""
        return [span.state for span in self.core.flight.spans()]


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.mark.parametrize("takes_back", [Leader.undo, Leader.fail])
def test_a_write_that_is_taken_back_leaves_the_missed_markers_of_other_transactions(
    leader: Leader, takes_back: object
) -> None:
    assert callable(takes_back)
    one, other = leader.acknowledge(1, 0, 4), leader.acknowledge(2, 5, 9)
    leader.end(1)
    leader.end(2)
    takes_back(leader, one)
    leader.stored(other)
    assert leader.states() == [RecordState.ACQUIRED, RecordState.ACKNOWLEDGED]


@pytest.mark.parametrize("takes_back", [Leader.undo, Leader.fail])
def test_a_write_that_is_taken_back_leaves_the_markers_of_another_write_of_its_transaction(
    leader: Leader, takes_back: object
) -> None:
    assert callable(takes_back)
    one, other = leader.acknowledge(1, 0, 4), leader.acknowledge(1, 5, 9)
    leader.end(1, commit=False)
    takes_back(leader, one)
    leader.stored(other)
    assert set(leader.states()) == {RecordState.ACQUIRED}
    assert leader.core.pending.held_count == 0


@pytest.mark.parametrize("takes_back", [Leader.undo, Leader.fail])
def test_a_marker_whose_write_was_taken_back_does_not_end_the_next_transaction_of_the_same_epoch(
    leader: Leader, takes_back: object
) -> None:
    """Checks that no marker is kept for the next transaction, which has the same epoch below transaction version 2."""
    assert callable(takes_back)
    first = leader.acknowledge(1, 0, 4)
    leader.end(1, epoch=0, version=0)
    takes_back(leader, first)
    leader.stored(leader.acknowledge(1, 0, 4))
    assert leader.states() == [RecordState.TX_PENDING, RecordState.ACQUIRED]


def test_a_write_that_is_stored_leaves_the_missed_markers_of_other_transactions(leader: Leader) -> None:
    one, other = leader.acknowledge(1, 0, 4), leader.acknowledge(2, 5, 9)
    leader.end(2, commit=False)
    leader.end(1, commit=False)
    leader.stored(one)
    leader.stored(other)
    assert set(leader.states()) == {RecordState.ACQUIRED}


@pytest.mark.parametrize(("version", "pending"), [(1, 10), (2, 0)])
def test_a_repeated_marker_ends_the_next_transaction_only_below_transaction_version_2(
    version: int, pending: int
) -> None:
    """The repeated marker has the epoch of the next transaction.

    With WriteTxnMarkers v2, the marker declares a transaction version below 2. At such a version, a marker has the
    epoch of the transaction that it ends, so this marker ends the next transaction. A v1 request does not contain the
    transaction version, so the broker ignores the repeated marker.
    """
    broker = TxnShareBroker()
    topic = broker.shared_topic("T", 10)
    member, producer = broker.joined("A"), broker.producer()
    member.acquire(topic)
    producer.stage(member, {topic: [(0, 1, ACCEPT)]})
    producer.abort()
    sent = broker.markers.sent[-1]
    producer.stage(member, {topic: [(0, 9, ACCEPT)]})
    marker = WritableTxnMarker(
        producer_id=sent.producer_id,
        producer_epoch=sent.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=SHARE_GROUP_STATE, partition_indexes=[sent.partitions[0][1]])],
        coordinator_epoch=sent.coordinator_epoch,
    )
    answer = broker.answer(WriteTxnMarkersRequest(markers=[marker]), version, WriteTxnMarkersResponse)
    assert answer.markers[0].topics[0].partitions[0].error_code == NONE.value
    assert broker.pending == pending
    broker.kill()
    assert broker.stored(topic).pending_count == pending
    producer.commit()
    assert [each for each in broker.stored_batches(topic) if each[2] == 2] == ([(0, 9, 2, 1)] if pending else [])
