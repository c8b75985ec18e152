"""Tests a share group's acknowledgements in a producer's transaction (KIP-1289).

Scenarios: docs/spec/share-groups.md#s7-5; rules: #s5.
"""

import pytest

from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import SHARE_GROUP_STATE
from tests.support.share_partition_scene import SharePartitionScene
from tests.support.txn_share_broker import ACCEPT, REJECT, RELEASE, RENEW, TxnShareBroker

NONE, WRONG, INVALID = ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST
NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED
ALL = (0, 9, ACCEPT)


@pytest.fixture
def broker() -> TxnShareBroker:
    return TxnShareBroker()


def test_scenario_080_outputs_and_acknowledgements_become_effective_together(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    assert a.acquire(topic) == [(0, 9, 1)]
    assert producer.codes(a, {topic: [ALL]}) == [NONE]
    assert producer.commit() is NONE
    summary = broker.stored(topic)
    assert 10 - summary.start_offset - summary.delivery_complete_count == 0  # The lag is 0.
    assert broker.stored_batches(topic) == [(0, 9, 2, 1)]
    assert broker.joined("B").acquire(topic) == []
    assert broker.pending == 0


def test_scenario_081_after_an_abort_the_member_goes_on_with_its_records(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, b, producer = broker.joined("A"), broker.joined("B"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    assert producer.abort() is NONE
    assert a.ack_code(topic, (0, 4, ACCEPT)) is NONE  # The first acknowledgement uses no transaction.
    # The second acknowledgement uses the next transaction.
    assert producer.codes(a, {topic: [(5, 6, ACCEPT)]}) == [NONE]
    assert producer.commit() is NONE
    assert b.acquire(topic) == []
    broker.sleep(30_000)
    assert b.acquire(topic) == [(7, 9, 2)]  # The remaining records are not acknowledged, so their lock expires.


def test_scenario_082_staged_records_are_not_given_to_others(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    assert broker.joined("B").acquire(topic) == []
    assert broker.pending == 10


@pytest.mark.parametrize("kind", [0, ACCEPT, RELEASE, REJECT, RENEW])
def test_scenario_083_a_plain_acknowledgement_of_staged_records_is_refused(broker: TxnShareBroker, kind: int) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    assert a.ack_code(topic, (0, 9, kind), renew=kind == RENEW) is WRONG
    assert broker.pending == 10
    assert producer.commit() is NONE
    assert broker.stored_batches(topic) == [(0, 9, 2, 1)]


def test_scenario_084_accepted_and_rejected_records_are_committed_with_their_types(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    assert producer.codes(a, {topic: [(0, 4, ACCEPT), (5, 9, REJECT)]}) == [NONE]
    assert broker.stored_batches(topic) == [(0, 9, 0, 1)]  # An older reader would deliver the records again.
    producer.commit()
    assert broker.stored_batches(topic) == [(0, 4, 2, 1), (5, 9, 4, 1)]


def test_scenario_085_the_start_offset_waits_for_records_that_are_not_staged(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [(5, 9, ACCEPT)]})
    producer.commit()
    assert broker.stored(topic).start_offset == 0
    assert a.ack_code(topic, (0, 4, ACCEPT)) is NONE
    broker.produce("T", 1)
    a.acquire(topic)
    a.ack_code(topic, (10, 10, RELEASE))
    assert broker.stored(topic).start_offset == 10


@pytest.mark.parametrize("ends", ["final epoch", "connection"])
def test_scenario_086_a_commit_is_effective_after_the_member_closed_its_session(
    broker: TxnShareBroker, ends: str
) -> None:
    topic = broker.shared_topic("T", 10)
    a, other, producer = broker.joined("A"), broker.joined("B"), broker.producer()
    a.acquire(topic)
    other.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    a.fetch(epoch=-1) if ends == "final epoch" else a.disconnect()
    assert broker.pending == 10
    producer.commit()
    assert broker.stored_batches(topic) == [(0, 9, 2, 1)]
    assert other.acquire(topic) == []


def test_scenario_087_an_abort_after_the_member_closed_its_session_releases_the_records(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, b, producer = broker.joined("A"), broker.joined("B"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    a.fetch(epoch=-1)
    producer.abort()
    assert b.acquire(topic) == [(0, 9, 2)]


def test_scenario_088_an_abort_archives_records_at_the_delivery_limit(broker: TxnShareBroker) -> None:
    broker.set_group(share_delivery_count_limit="2")
    topic = broker.shared_topic("T", 10)
    a, b, producer = broker.joined("A"), broker.joined("B"), broker.producer()
    b.acquire(topic)
    b.ack_code(topic, (0, 9, RELEASE))
    while acquired := a.acquire(topic):  # Previously delivered records are acquired a few at a time.
        assert {count for _, _, count in acquired} == {2}
    producer.stage(a, {topic: [ALL]})
    a.fetch(epoch=-1)
    producer.abort()
    assert broker.stored_batches(topic) == [(0, 9, 4, 2)]
    assert b.acquire(topic) == []


def test_scenario_089_a_transaction_may_have_only_acknowledgements(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    first = producer.pair
    a.acquire(topic)
    assert broker.transactions.describe("pay").transaction_state == "Empty"
    producer.stage(a, {topic: [ALL]})
    assert broker.transactions.describe("pay").transaction_state == "Ongoing"
    producer.commit()
    assert broker.transactions.describe("pay").transaction_state == "CompleteCommit"
    assert producer.pair == (first[0], first[1] + 1)


def test_scenario_090_share_partitions_of_several_state_partitions_are_committed_together(
    broker: TxnShareBroker,
) -> None:
    topics = {name: broker.shared_topic(name, 3) for name in ("T", "U", "V", "W")}
    a, producer = broker.joined("A", *topics), broker.producer()
    a.acquire(*topics.values())
    assert producer.codes(a, {each: [(0, 2, ACCEPT)] for each in topics.values()}) == [NONE] * 4
    registered = {
        (each.topic, index) for each in broker.transactions.describe("pay").topics for index in each.partitions
    }
    assert {topic for topic, _ in registered} == {SHARE_GROUP_STATE}
    assert len(registered) > 1
    producer.commit()
    assert [broker.stored_batches(each) for each in topics.values()] == [[(0, 2, 2, 1)]] * 4


def test_scenario_091_a_late_marker_of_the_transaction_before_changes_nothing(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [(0, 1, ACCEPT)]})
    producer.abort()
    late = broker.markers.sent[-1]
    producer.stage(a, {topic: [ALL]})
    assert late.producer_epoch == producer.pair[1]
    broker.broker.markers.write([late], lambda results: None)
    broker.settle()
    assert broker.pending == 10
    producer.commit()
    assert broker.stored_batches(topic) == [(0, 9, 2, 1)]


def test_scenario_092_the_last_epoch_of_a_producer_id_still_commits(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    for _ in range(3):
        producer.init()
    producer_id = producer.pair[0]
    while producer.pair[1] < 32766:
        producer.init()
    producer.stage(a, {topic: [ALL]})
    assert producer.commit() is NONE
    assert broker.markers.sent[-1].producer_epoch == 32767
    assert producer.pair[0] != producer_id
    assert producer.pair[1] == 0
    assert broker.stored_batches(topic) == [(0, 9, 2, 1)]


def test_scenario_093_staging_after_the_abort_marker_is_refused(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer(timeout_ms=1_000)
    a.acquire(topic)
    producer.stage(a, {topic: [(0, 0, ACCEPT)]})
    release = broker.hold_registrations()  # The coordinator has registered the partition, but its response is delayed.
    late = producer.begin_stage(a, {topic: [(1, 9, ACCEPT)]})
    broker.sleep(11_000)
    release()
    response = producer.staged(late)
    assert ErrorCode(response.error_code) is ErrorCode.INVALID_TXN_STATE
    assert broker.pending == 0


@pytest.mark.parametrize(
    ("operation", "resource", "name", "code"),
    [
        (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "pay", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (Operation.READ, ResourceType.GROUP, "g", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (Operation.READ, ResourceType.TOPIC, "T", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_scenario_094_a_request_without_permission_stages_nothing(
    broker: TxnShareBroker, operation: Operation, resource: ResourceType, name: str, code: ErrorCode
) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    broker.deny(operation, resource, name)
    assert producer.codes(a, {topic: [ALL]}) is code
    assert broker.transactions.describe("pay").transaction_state == "Empty"


def test_scenario_095_an_unknown_producer_is_refused(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    unmapped = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert producer.codes(a, {topic: [ALL]}, transactional_id="other") is unmapped
    assert producer.codes(a, {topic: [ALL]}, pair=(4711, 0)) is unmapped
    assert broker.pending == 0


def test_scenario_096_staging_waits_for_the_markers_of_the_previous_transaction(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [(0, 0, ACCEPT)]})
    producer_id, producer_epoch = producer.pair
    broker.markers.held = []
    producer.begin_end(commit=True)
    next_one = producer.begin_stage(a, {topic: [(1, 9, ACCEPT)]}, pair=(producer_id, producer_epoch + 1))
    for _ in range(10):
        broker.sleep(20)
    assert ErrorCode(producer.staged(next_one).error_code) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert broker.pending == 0


def test_scenario_097_a_batch_may_have_a_type_for_each_offset(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    assert producer.codes(a, {topic: [(0, 2, [ACCEPT, ACCEPT, REJECT])]}) == [NONE]
    producer.commit()
    assert broker.stored_batches(topic) == [(0, 1, 2, 1), (2, 2, 4, 1)]


def test_scenario_098_records_that_another_member_has_finished_are_refused(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, b, producer = broker.joined("A"), broker.joined("B"), broker.producer()
    a.acquire(topic)
    broker.sleep(30_000)
    b.acquire(topic)
    b.ack_code(topic, ALL)
    assert producer.codes(a, {topic: [ALL]}) == [WRONG]
    assert producer.abort() is NONE


def test_scenario_099_and_104_a_restart_between_staging_and_marker_keeps_the_acknowledgements(
    broker: TxnShareBroker,
) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    broker.kill()
    b = broker.joined("B")
    assert b.acquire(topic) == []
    assert broker.pending == 10
    assert producer.commit() is NONE
    assert broker.pending == 0
    assert b.acquire(topic) == []
    assert broker.stored_batches(topic) == [(0, 9, 2, 1)]


def test_scenario_099_the_crash_comes_before_the_share_partition_hears_of_the_marker(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    broker.markers.held = []  # The markers are written, but the coordinator does not learn this.
    producer.begin_end(commit=True)
    broker.markers.held = None
    broker.kill()  # After the restart, the coordinator sends the markers again.
    assert broker.transactions.describe("pay").transaction_state == "CompleteCommit"
    assert broker.joined("B").acquire(topic) == []


def test_scenario_101_a_downgrade_waits_for_staged_acknowledgements(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [(0, 0, ACCEPT)]})
    assert broker.downgrade() is ErrorCode.FEATURE_UPDATE_FAILED
    assert broker.image.features["odradek.share.transactions"] == 1
    broker.restart_shares()  # This unloads the share partition.
    assert broker.downgrade() is ErrorCode.FEATURE_UPDATE_FAILED
    producer.commit()
    assert broker.downgrade() is NONE
    assert not broker.image.acknowledges_in_transactions
    assert producer.codes(a, {topic: [(1, 1, ACCEPT)]}) is ErrorCode.UNSUPPORTED_VERSION


def test_scenario_102_the_marker_reaches_the_share_partition_wherever_its_state_is_stored(
    broker: TxnShareBroker,
) -> None:
    topics = {name: broker.shared_topic(name, 3) for name in ("T", "U", "V", "W")}
    a, producer = broker.joined("A", *topics), broker.producer()
    a.acquire(*topics.values())
    producer.stage(a, {each: [(0, 2, ACCEPT)] for each in topics.values()})
    assert broker.pending == 12
    producer.commit()
    assert broker.pending == 0


def test_scenario_103_a_partition_with_another_leader_is_refused(broker: TxnShareBroker) -> None:
    topic, other = broker.shared_topic("T", 10), broker.shared_topic("U", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic, other)
    broker.move_leader_to("U")
    response = producer.stage(a, {topic: [ALL], other: [ALL]})
    staged = {each.topic_id: each.partitions[0] for each in response.responses}
    assert ErrorCode(staged[topic].error_code) is NOT_ATTEMPTED
    assert ErrorCode(staged[other].error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader = staged[other].current_leader
    assert leader is not None
    assert leader.leader_id == 2
    assert broker.pending == 0
    assert broker.transactions.describe("pay").transaction_state == "Empty"


def test_scenario_100_nothing_but_the_commit_marker_can_be_stored(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    heal = broker.state_takes_markers_only()
    assert producer.commit() is NONE
    assert broker.transactions.describe("pay").transaction_state == "CompleteCommit"
    assert broker.pending == 0
    for _ in range(2):
        assert broker.stored_batches(topic) == [(0, 9, 2, 1)], "the marker tells it"
        broker.kill()
    heal()
    assert broker.joined("B").acquire(topic) == []


def test_scenario_105_a_reader_that_ignores_staged_state_delivers_the_records_again(broker: TxnShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, producer = broker.joined("A"), broker.producer()
    a.acquire(topic)
    producer.stage(a, {topic: [ALL]})
    scene = SharePartitionScene(10)
    scene.reload(0, *broker.stored_batches(topic))  # type: ignore[arg-type]
    assert scene.fetch("B") == [(0, 9, 2)]
