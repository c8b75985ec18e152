"""Tests the numbered corner cases of KIP-1289 (docs/spec/share-groups.md#s5-14). Rules: #s5-3 to #s5-13."""

import pytest

from odradek.broker.handlers.cluster.features import api_versions
from odradek.broker.shares.core.state import TransactionEnd
from odradek.protocol.errors import ErrorCode
from tests.support.txn_share_broker import ACCEPT, REJECT, RELEASE, RENEW, TxnShareBroker

NONE, WRONG = ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE
NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED
LOCK_MS = 30_000
ALL = (0, 9, ACCEPT)


@pytest.fixture
def broker() -> TxnShareBroker:
    return TxnShareBroker()


def test_case_01_staged_records_survive_a_restart_of_the_leader_before_the_marker(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    broker.restart_shares()
    assert a.fetch(topic, epoch=0).error_code == 0
    assert broker.pending == 10
    producer.commit()
    assert broker.stored_batches(topic) == [(0, 9, 2, 1)]


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_case_02_a_missing_transaction_coordinator_leaves_the_records_unstaged(
    broker: TxnShareBroker, code: ErrorCode
) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    for shard in broker.transactions.shards:
        shard.unload(code)
    assert producer.codes(a, {topic: [ALL]}) is code
    assert broker.pending == 0
    broker.restart_coordinator()
    assert producer.abort() is NONE
    assert producer.codes(a, {topic: [ALL]}) == [NONE]
    assert producer.commit() is NONE


def test_case_03_a_fenced_producer_stages_nothing(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, old = broker.joined("A"), broker.producer()
    a.acquire(topic)
    old.stage(a, {topic: [(0, 0, ACCEPT)]})
    new = broker.producer()  # The new producer instance aborts the open transaction.
    fencing = broker.markers.sent[-1]
    assert old.codes(a, {topic: [ALL]}) is ErrorCode.PRODUCER_FENCED
    assert broker.pending == 0
    new.stage(a, {topic: [ALL]})
    broker.broker.markers.write([fencing], lambda results: None)
    assert broker.pending == 10


def test_case_04_a_request_whose_answer_was_lost_can_be_repeated(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    for _ in range(2):
        assert producer.codes(a, {topic: [ALL]}) == [NONE]
        assert broker.pending == 10
    assert producer.codes(a, {topic: [(0, 9, REJECT)]}) == [WRONG]
    assert broker.producer("other").codes(a, {topic: [ALL]}) == [WRONG]


def test_case_05_a_repeated_marker_does_not_end_the_next_transaction(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [(0, 4, ACCEPT)]})
    producer.commit()
    results: list[object] = []
    broker.broker.markers.write([broker.markers.sent[-1]], results.extend)
    broker.settle()
    assert [set(each.values()) for each in results] == [{NONE}]  # type: ignore[attr-defined]
    assert broker.stored_batches(topic) == [(0, 4, 2, 1)]
    producer.stage(a, {topic: [(5, 9, ACCEPT)]})
    producer.abort()
    aborted = broker.markers.sent[-1]
    producer.stage(a, {topic: [(5, 9, ACCEPT)]})
    broker.broker.markers.write([aborted], results.extend)
    assert broker.pending == 5


def test_case_06_an_expired_lock_aborts_the_transaction_before_others_get_the_records(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, b, producer = broker.joined("A"), broker.joined("B"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    broker.sleep(LOCK_MS)
    assert b.acquire(topic) == [(0, 9, 2)]
    assert broker.shares.lock_expired_count == 10
    assert producer.commit() is ErrorCode.PRODUCER_FENCED
    assert broker.pending == 0


def test_case_06_a_commit_decided_before_the_lock_expired_is_effective(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, b, producer = broker.joined("A"), broker.joined("B"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    state = next(iter(broker.transactions.describe("pay").topics))
    lost = {(state.topic, index): ErrorCode.NOT_LEADER_OR_FOLLOWER for index in state.partitions}
    broker.markers.refusals = lost
    producer.begin_end(commit=True)
    broker.sleep(LOCK_MS)
    assert b.acquire(topic) == []
    assert broker.pending == 10
    broker.markers.refusals = {}
    broker.sleep(1_000)
    assert broker.pending == 0
    assert broker.stored_batches(topic) == [(0, 9, 2, 1)]
    assert broker.shares.lock_expired_count == 0


@pytest.mark.parametrize("is_gone", [False, True])
def test_case_07_the_transaction_of_a_dead_producer_times_out(broker: TxnShareBroker, is_gone: bool) -> None:
    topic = broker.shared_topic("T", 10)
    a, b, producer = broker.joined("A"), broker.joined("B"), broker.producer(timeout_ms=5_000)
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    if is_gone:
        a.disconnect()
    broker.sleep(11_000)
    assert broker.pending == 0
    assert b.acquire(topic) == ([(0, 9, 2)] if is_gone else [])
    assert a.ack_code(topic, ALL) is NONE if not is_gone else True


def test_case_08_another_member_epoch_or_a_member_that_left_is_refused(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    for other_epoch in (a.member_epoch - 1, a.member_epoch + 1):
        assert producer.codes(a, {topic: [ALL]}, member_epoch=other_epoch) is ErrorCode.STALE_MEMBER_EPOCH
    a.heartbeat(-1)
    assert producer.codes(a, {topic: [ALL]}) is ErrorCode.UNKNOWN_MEMBER_ID
    assert producer.codes(a, {topic: [ALL]}, group_id="other") is ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.pending == 0


@pytest.mark.parametrize(("own", "share", "transaction"), [(0, 1, 2), (0, 2, 2), (1, 1, 1), (1, 0, 2)])
def test_scenario_079_case_09_the_request_is_unsupported_without_the_feature_or_its_dependencies(
    broker: TxnShareBroker, own: int, share: int, transaction: int
) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    assert (95, 0, 0) in broker.listed_apis(api_versions)
    levels = {"odradek.share.transactions": own, "share.version": share, "transaction.version": transaction}
    for name, level in levels.items():
        broker.set_level(name, level)
    assert 95 not in [key for key, _, _ in broker.listed_apis(api_versions)]
    assert producer.codes(a, {topic: [ALL]}) is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("types", [RELEASE, RENEW, 0, [ACCEPT, 0, ACCEPT], [ACCEPT, ACCEPT, RELEASE]])
def test_case_10_types_that_cannot_be_staged_are_refused(broker: TxnShareBroker, types: int | list[int]) -> None:
    topic, other = broker.shared_topic("T", 10), broker.shared_topic("U", 10)
    a, producer = broker.joined("A", "T", "U"), broker.producer()
    a.acquire(topic, other)
    assert producer.codes(a, {topic: [(0, 2, types)], other: [ALL]}) == [WRONG, NOT_ATTEMPTED]
    assert broker.pending == 0
    assert broker.transactions.describe("pay").transaction_state == "Empty"


def test_case_11_one_partition_is_refused_and_the_other_stays_as_it_was(broker: TxnShareBroker) -> None:
    topic, other = broker.shared_topic("T", 10), broker.shared_topic("U", 10)
    a, b, producer = broker.joined("A", "T", "U"), broker.joined("B", "T", "U"), broker.producer()
    a.acquire(topic)
    b.acquire(other)
    assert producer.codes(a, {topic: [ALL], other: [ALL]}) == [NOT_ATTEMPTED, WRONG]
    assert broker.pending == 0
    broker.sleep(LOCK_MS - 1)
    assert a.ack_code(topic, ALL) is NONE  # The refused request has not shortened the lock.


def test_case_11_one_partition_cannot_be_stored_and_the_other_is_undone(broker: TxnShareBroker) -> None:
    topic, other = broker.shared_topic("T", 10), broker.shared_topic("U", 10)
    a, producer = broker.joined("A", "T", "U"), broker.producer()
    a.acquire(topic, other)
    broker.persister.refusals = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert producer.codes(a, {topic: [ALL], other: [ALL]}) == [unavailable, NOT_ATTEMPTED]
    assert broker.pending == 0
    assert [broker.stored(each).pending_count for each in (topic, other)] == [0, 0]
    assert producer.abort() is NONE
    assert a.ack_code(topic, ALL) is NONE
    assert a.ack_code(other, ALL) is NONE


def test_case_12_the_share_coordinator_restarts_and_the_leader_does_not(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    broker.share_coordinator.stop()
    broker.start_share_coordinator()
    assert broker.pending == 10
    assert producer.commit() is NONE
    assert broker.stored_batches(topic) == [(0, 9, 2, 1)]
    assert broker.pending == 0


def test_case_13_the_leader_is_cut_off_from_the_transaction_coordinator(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, b, producer = broker.joined("A"), broker.joined("B"), broker.producer(timeout_ms=900_000)
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    for shard in broker.transactions.shards:
        shard.unload(ErrorCode.NOT_COORDINATOR)
    broker.sleep(LOCK_MS)
    assert b.acquire(topic) == []
    broker.sleep(LOCK_MS + 1_000)
    assert broker.shares.lock_expired_count == 10
    assert b.acquire(topic) == [(0, 9, 2)]
    broker.restart_coordinator()
    producer.abort()
    b.ack_code(topic, ALL)
    assert broker.stored_batches(topic) == [(0, 9, 2, 2)]


def test_case_14_an_old_request_and_a_marker_of_the_transaction_before_change_nothing(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    old = producer.pair
    a.acquire(topic)
    producer.stage(a, {topic: [(0, 0, ACCEPT)]})
    producer.abort()
    assert producer.codes(a, {topic: [ALL]}, pair=old) is ErrorCode.PRODUCER_FENCED
    assert broker.pending == 0
    producer.stage(a, {topic: [ALL]})
    producer_id, producer_epoch = producer.pair
    broker.shares.end_transaction(TransactionEnd(producer_id, producer_epoch, is_commit=True))
    assert broker.shares.pending_record_count == 10  # That was the previous transaction's marker.
    broker.shares.end_transaction(TransactionEnd(producer_id, producer_epoch + 1, is_commit=True))
    assert broker.shares.pending_record_count == 0


# --- Two-phase commits.


def test_a_prepared_transaction_keeps_its_records_for_as_long_as_it_takes(broker: TxnShareBroker) -> None:
    broker.config = broker.config.__class__(transaction_two_phase_commit_enable=True)
    broker.start_coordinator()
    topic = broker.shared_topic("T", 10)
    a, b = broker.joined("A"), broker.joined("B")
    producer = broker.producer(two_phase=True)
    a.acquire(topic)
    syncs = broker.sync_count
    assert producer.codes(a, {topic: [ALL]}) == [NONE]
    assert broker.sync_count > syncs
    broker.sleep(10 * LOCK_MS)
    assert b.acquire(topic) == []
    broker.kill()
    broker.sleep(10 * LOCK_MS)
    b.epoch = 0
    assert b.acquire(topic) == []
    recovery = broker.producer(two_phase=True, keep=True)
    assert b.acquire(topic) == []
    assert recovery.commit() is NONE
    assert broker.stored_batches(topic) == [(0, 9, 2, 1)]
