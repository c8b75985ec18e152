"""Tests acknowledgements in transactions after a restart, before the share partitions' state has been loaded.

Rules: docs/spec/share-groups.md#s5-3 (T8), #s3-7 (L1), #s5-12; case 4 of #s5-14.
"""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import SHARE_GROUP_STATE
from tests.support.share_broker import STATE_PARTITIONS
from tests.support.txn_share_broker import ACCEPT, RELEASE, TxnShareBroker

NONE, WRONG = ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE
NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED
ALL = (0, 9, ACCEPT)
LOCK_MS = 30_000


@pytest.fixture
def broker() -> TxnShareBroker:
    return TxnShareBroker()


def test_case_04_a_request_whose_answer_a_restart_lost_can_be_repeated_before_any_fetch(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    broker.kill()
    for _ in range(2):
        assert producer.codes(a, {topic: [ALL]}) == [NONE]
        assert broker.pending == 10
    assert producer.commit() is NONE
    assert broker.pending == 0
    assert broker.stored_batches(topic) == [(0, 9, 2, 1)]
    assert broker.joined("B").acquire(topic) == []


def test_acknowledgements_of_unstaged_records_are_refused_after_a_restart(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [(0, 4, ACCEPT)]})
    broker.kill()
    assert producer.codes(a, {topic: [ALL]}) in ([WRONG], [ErrorCode.INVALID_REQUEST])
    assert producer.abort() is NONE
    assert broker.pending == 0
    assert broker.joined("B").acquire(topic) == [(0, 4, 2), (5, 9, 1)]


def test_a_request_waits_while_the_share_partition_is_loaded(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    broker.kill()
    loaded = broker.hold_reads()
    waiting = [producer.begin_stage(a, {topic: [ALL]}) for _ in range(2)]
    assert not any(each.is_done for each in waiting)
    loaded()
    assert [producer.staged(each).responses[0].partitions[0].error_code for each in waiting] == [0, 0]
    assert broker.pending == 10


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_that_arrives_while_the_share_partition_is_loaded_is_applied(
    broker: TxnShareBroker, commit: bool
) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    broker.kill()
    loaded = broker.hold_reads()
    # The read of the state starts before the marker is written, but completes only afterwards.
    late = producer.begin_stage(a, {topic: [ALL]})
    assert producer.end(commit=commit) is NONE
    loaded()
    assert ErrorCode(producer.staged(late).error_code) is ErrorCode.PRODUCER_FENCED
    assert broker.pending == 0
    assert broker.joined("B").acquire(topic) == ([] if commit else [(0, 9, 2)])


def test_a_share_partition_that_cannot_be_loaded_fails_alone_and_nothing_is_registered(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    never_initialised = bytes(broker.topic("U").topic_id)
    a, producer = broker.joined("A", "T"), broker.producer()
    a.acquire(topic)
    codes = producer.codes(a, {topic: [ALL], never_initialised: [ALL]})
    assert codes == [NOT_ATTEMPTED, ErrorCode.UNKNOWN_SERVER_ERROR]  # ShareFetch returns the same code.
    assert broker.pending == 0
    assert broker.transactions.describe("pay").transaction_state == "Empty"


def test_a_share_coordinator_that_loads_for_too_long_causes_a_retriable_error(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    broker.kill()
    for index in range(STATE_PARTITIONS):
        broker.share_coordinator.shard_of(index).unload(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    waiting = producer.begin_stage(a, {topic: [ALL]})
    assert not waiting.is_done
    broker.sleep(5_000)
    assert producer.staged(waiting).responses[0].partitions[0].error_code == (ErrorCode.COORDINATOR_NOT_AVAILABLE.value)
    broker.kill()
    assert producer.codes(a, {topic: [ALL]}) == [NONE]


def test_only_members_have_share_partitions_loaded(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    broker.kill()
    assert producer.codes(a, {topic: [ALL]}, member_id="nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert producer.codes(a, {topic: [ALL]}, member_epoch=a.member_epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert list(broker.shares.loaded_partitions) == []


def test_a_plain_acknowledgement_waits_while_the_share_partition_is_loaded(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.joined("A")
    a.acquire(topic)
    assert a.ack_code(topic, (0, 4, ACCEPT)) is NONE
    broker.kill()
    loaded = broker.hold_reads()
    a.epoch = 0
    a.fetch(topic)  # The first fetch after the restart only starts to load the share partition.
    repeated, too_late = (a.begin_ack({topic: [each]}, epoch=epoch) for each, epoch in [((0, 4, 1), 1), ((5, 9, 1), 2)])
    assert not repeated.is_done
    loaded()
    codes = [a.acked(each).responses[0].partitions[0].error_code for each in (repeated, too_late)]
    assert codes == [NONE.value, WRONG.value]  # The first acknowledgement was stored before the restart.


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_is_recovered_before_anybody_fetches(broker: TxnShareBroker, commit: bool) -> None:
    broker.config = broker.config.__class__(transaction_two_phase_commit_enable=True)
    broker.start_coordinator()
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer(two_phase=True)
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    broker.kill()
    broker.sleep(300_000)
    recovery = broker.producer(two_phase=True, keep=True)
    assert list(broker.shares.loaded_partitions) == []
    assert recovery.end(commit=commit) is NONE
    assert broker.joined("B").acquire(topic) == ([] if commit else [(0, 9, 2)])
    assert broker.transactions.describe("pay").transaction_state == ("CompleteCommit" if commit else "CompleteAbort")


def test_what_is_staged_in_a_prepared_transaction_cannot_be_taken_by_others(broker: TxnShareBroker) -> None:
    """Checks that no other producer or member can acknowledge or acquire the staged records. The first such request
    loads the share partition."""
    broker.config = broker.config.__class__(transaction_two_phase_commit_enable=True)
    broker.start_coordinator()
    topic = broker.shared_topic("T", 10)
    a, b, producer = broker.joined("A"), broker.joined("B"), broker.producer(two_phase=True)
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    broker.kill()
    broker.sleep(LOCK_MS + 5_000)
    assert broker.producer("other").codes(a, {topic: [ALL]}) == [WRONG]
    assert broker.producer("third").codes(b, {topic: [ALL]}) == [WRONG]
    assert b.acquire(topic) == []
    assert b.ack_code(topic, (0, 9, RELEASE)) is WRONG
    assert broker.stored(topic).pending_count == 10
    assert SHARE_GROUP_STATE in {each.topic for each in broker.transactions.describe("pay").topics}
