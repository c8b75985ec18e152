"""Tests how a partition leader handles a marker, depending on the marker's epoch.

Rules: docs/spec/transactions.md#s4-8; scenarios 58 to 61 and 69: #s8-4.
"""

import pytest

from odradek.broker.coordinators.transaction_markers import LocalMarkerWriter, TxnMarker
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import PartitionCodes
from odradek.storage.log import Origin
from odradek.storage.producer_state import ProducerEntry
from tests.support.batches import batch_by
from tests.support.broker_scene import NOW_MS
from tests.support.transaction_broker import TransactionBroker

E = ErrorCode
PID = 7
P0 = ("orders", 0)


class Scene(TransactionBroker):
    def __init__(self) -> None:
        super().__init__()
        self.topic("orders", 1, flush_messages=2**63 - 1)
        self.writer = LocalMarkerWriter(self.partitions, self.groups, self.clock, self.share_markers)

    def mark(self, epoch: int, *, commit: bool = True, version: int = 2, coordinator_epoch: int = 0) -> ErrorCode:
        results: list[PartitionCodes] = []
        marker = TxnMarker(PID, epoch, commit, coordinator_epoch, version, [P0])
        self.writer.write([marker], lambda answered: results.extend(answered))
        (codes,) = results
        return codes[P0]

    @property
    def producer(self) -> ProducerEntry:
        found = self.partition(*P0).log.producer(PID)
        assert found is not None
        return found

    @property
    def is_open(self) -> bool:
        return self.producer.current_txn_first_offset is not None

    @property
    def end_offset(self) -> int:
        return self.partition(*P0).log.log_end_offset

    def send(self, epoch: int, sequence: int) -> None:
        batch = batch_by((PID, epoch), sequence, b"v", at_ms=NOW_MS)
        self.partition(*P0).append_now(batch, origin=Origin.CLIENT, now_ms=NOW_MS)


def test_scenario_058_a_marker_of_an_older_coordinator_is_refused_and_not_written() -> None:
    scene = Scene()
    assert scene.mark(1, coordinator_epoch=5) is E.NONE
    before = scene.end_offset
    assert scene.mark(2, coordinator_epoch=3) is E.TRANSACTION_COORDINATOR_FENCED
    assert scene.end_offset == before


def test_scenario_059_a_marker_that_comes_twice_is_written_twice_and_changes_nothing() -> None:
    scene = Scene()
    scene.send(1, 0)
    assert scene.mark(2, commit=False) is E.NONE
    assert scene.mark(2, commit=False) is E.NONE
    log = scene.partition(*P0).log
    assert [marker.producer_epoch for marker in scene.markers_in(*P0)] == [2, 2]
    assert len(log.reader.aborted_transactions(0, log.log_end_offset)) == 1
    assert log.last_stable_offset == log.log_end_offset


# In Kafka, a marker's epoch only had to be at least the current one. A repeated marker for the last transaction has the
# new transaction's epoch, so it ended the new one.
@pytest.mark.known_bug(7, "KAFKA-19446")
def test_scenario_060_at_version_2_a_late_marker_does_not_end_the_next_transaction() -> None:
    scene = Scene()
    scene.mark(2)
    scene.send(2, 0)
    assert scene.mark(2) is E.INVALID_PRODUCER_EPOCH
    assert scene.is_open


def test_scenario_061_at_version_1_a_late_marker_ends_the_next_transaction() -> None:
    scene = Scene()
    scene.mark(2, version=0)
    scene.send(2, 0)
    assert scene.mark(2, version=0) is E.NONE
    assert not scene.is_open


def test_scenario_069_a_marker_of_an_unknown_producer_fences_its_older_epochs() -> None:
    scene = Scene()
    assert scene.mark(3) is E.NONE
    with pytest.raises(KafkaError) as caught:
        scene.send(2, 0)
    assert caught.value.code is E.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError) as caught:
        scene.send(3, 5)
    assert caught.value.code is E.OUT_OF_ORDER_SEQUENCE_NUMBER
    scene.send(3, 0)
    assert scene.is_open


def test_a_marker_without_a_producer_id_is_refused_and_not_written() -> None:
    scene = Scene()
    assert scene.mark(-1) is E.UNKNOWN_SERVER_ERROR
    assert scene.end_offset == 0
