"""Tests the effect of a marker in `__share_group_state`, and the records that repeat the effect for readers that ignore
markers (ADR 21).

Rules: docs/spec/share-groups.md#s5-7, #s5-12 (Y3, Y4, Y7).
"""

import pytest

from odradek.broker.coordinators.transaction_markers import TxnMarker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import SHARE_GROUP_STATE
from tests.support.share_broker import STATE_PARTITIONS
from tests.support.share_member import Member
from tests.support.txn_share_broker import ACCEPT, REJECT, RELEASE, Producer, TxnShareBroker

NONE = ErrorCode.NONE
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
PRUNE_MS = 300_000


@pytest.fixture
def broker() -> TxnShareBroker:
    return TxnShareBroker()


def staged(broker: TxnShareBroker, kind: int = ACCEPT) -> tuple[bytes, Member, Producer]:
    """Makes A acquire ten records, and stages acknowledgements of records 3 to 5 in a producer's transaction. Returns
    the topic id, the member and the producer."""
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    assert producer.codes(a, {topic: [(3, 5, kind)]}) == [NONE]
    return topic, a, producer


def state_end(broker: TxnShareBroker) -> int:
    """Returns the total number of records and markers in all partitions of the state topic."""
    return sum(broker.partition(SHARE_GROUP_STATE, index).log.log_end_offset for index in range(STATE_PARTITIONS))


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_takes_one_record_and_one_marker(broker: TxnShareBroker, commit: bool) -> None:
    topic, a, producer = staged(broker)
    before = state_end(broker)
    assert producer.end(commit=commit) is NONE
    assert state_end(broker) == before + 1
    assert producer.codes(a, {topic: [(6, 6, ACCEPT)]}) == [NONE]
    assert state_end(broker) == before + 2


@pytest.mark.parametrize(("kind", "state"), [(ACCEPT, ACKNOWLEDGED), (REJECT, ARCHIVED)])
def test_the_next_record_stores_the_committed_acknowledgements(broker: TxnShareBroker, kind: int, state: int) -> None:
    topic, a, producer = staged(broker, kind)
    assert producer.commit() is NONE
    assert broker.stored_batches(topic) == [(3, 5, state, 1)]
    assert broker.stored(topic).delivery_complete_count == 3
    assert broker.reported_batches(topic) == [(3, 5, AVAILABLE, 1)], "it would be delivered again, and not lost"
    assert a.ack_code(topic, (8, 8, RELEASE)) is NONE
    assert broker.reported_batches(topic) == [(3, 5, state, 1), (8, 8, AVAILABLE, 1)]
    assert broker.stored(topic).delivery_complete_count == 3


def test_aborted_acknowledgements_need_no_record_because_they_are_stored_as_available(broker: TxnShareBroker) -> None:
    topic, _, producer = staged(broker)
    assert producer.abort() is NONE
    end = state_end(broker)
    broker.share_coordinator.repeat_markers()
    assert state_end(broker) == end
    assert broker.reported_batches(topic) == broker.stored_batches(topic) == [(3, 5, AVAILABLE, 1)]


def test_a_clean_stop_records_the_results_of_all_markers(broker: TxnShareBroker) -> None:
    topic, _, producer = staged(broker)
    producer.commit()
    broker.share_coordinator.repeat_markers()
    assert broker.reported_batches(topic) == [(3, 5, ACKNOWLEDGED, 1)]
    end = state_end(broker)
    broker.share_coordinator.repeat_markers()
    assert state_end(broker) == end, "once"


def test_a_start_after_a_crash_records_the_results_of_markers(broker: TxnShareBroker) -> None:
    topic, _, producer = staged(broker)
    producer.commit()
    assert broker.reported_batches(topic) == [(3, 5, AVAILABLE, 1)]
    broker.kill()
    assert broker.reported_batches(topic) == broker.stored_batches(topic) == [(3, 5, ACKNOWLEDGED, 1)]
    assert broker.stored(topic).delivery_complete_count == 3


def test_the_committed_state_of_an_idle_share_partition_is_recorded_at_the_prune_interval(
    broker: TxnShareBroker,
) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    assert producer.codes(a, {topic: [(0, 9, ACCEPT)]}) == [NONE]
    producer.commit()
    broker.sleep(PRUNE_MS - 1)
    assert broker.reported_batches(topic) == [(0, 9, AVAILABLE, 1)]
    broker.sleep(1)
    assert broker.reported_batches(topic) == [(0, 9, ACKNOWLEDGED, 1)]


def test_a_marker_below_version_2_is_also_recorded(broker: TxnShareBroker) -> None:
    """Checks that the broker also writes a record for a marker below transaction version 2. At that version, two
    consecutive transactions of a producer can have the same epoch, so the marker's epoch does not show which of the two
    it ends."""
    topic, _, producer = staged(broker)
    index = next(index for each in broker.transactions.describe("pay").topics for index in each.partitions)
    old = TxnMarker(*producer.pair, True, 0, 0, [(SHARE_GROUP_STATE, index)])
    results: list[dict[object, ErrorCode]] = []
    heal = broker.state_takes_markers_only()
    broker.broker.markers.write([old], results.extend)
    assert [set(each.values()) for each in results] == [{ErrorCode.REQUEST_TIMED_OUT}]
    assert broker.pending == 3
    heal()
    broker.broker.markers.write([old], results.extend)
    assert set(results[1].values()) == {NONE}
    assert broker.pending == 0
    assert broker.reported_batches(topic) == broker.stored_batches(topic) == [(3, 5, ACKNOWLEDGED, 1)]
    broker.kill()
    assert broker.stored_batches(topic) == [(3, 5, ACKNOWLEDGED, 1)]


def test_a_share_partition_that_a_marker_unloads_is_not_remembered(broker: TxnShareBroker) -> None:
    """Checks that the producer is not remembered for a share partition that a marker unloads. The marker archives
    records whose state cannot be stored. At that moment, another acknowledgement from the same producer is about to be
    staged in this share partition."""
    broker.set_group(share_delivery_count_limit="2")
    topic = broker.shared_topic("T", 10)
    a, b, producer = broker.joined("A"), broker.joined("B"), broker.producer()
    a.acquire(topic)
    assert a.ack_code(topic, (0, 9, RELEASE)) is NONE
    assert a.acquire(topic) == [(0, 9, 2)]
    b.acquire(topic)  # b's session keeps the share partition loaded.
    assert producer.codes(a, {topic: [(0, 0, ACCEPT)]}) == [NONE]
    assert broker.shares.pending_producer_ids == {producer.pair[0]}
    broker.persister.held = []
    on_its_way = producer.begin_stage(a, {topic: [(1, 1, ACCEPT)]})
    assert not on_its_way.is_done
    broker.persister.held = None
    a.disconnect()
    assert [each.key.topic_id for each in broker.shares.loaded_partitions] == [topic]
    broker.persister.refusals = [ErrorCode.FENCED_STATE_EPOCH]
    assert producer.abort() is NONE
    assert list(broker.shares.loaded_partitions) == []
    assert broker.shares.pending_producer_ids == set()
