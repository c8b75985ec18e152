"""Tests that a share partition's state survives failed writes, leader changes, and restarts
(docs/spec/share-groups.md#s7-4)."""

import pytest

from odradek.broker.shares.core.state import SharePartitionKey
from odradek.protocol.errors import ErrorCode
from tests.support.share_broker import GROUP, ShareBroker
from tests.support.share_member import partitions_of

GAP, ACCEPT, RELEASE = range(3)
NONE, WRONG = ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE


@pytest.fixture
def broker() -> ShareBroker:
    return ShareBroker()


@pytest.mark.parametrize(
    ("store_error", "client_sees", "stays"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR, True),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR, True),
    ],
)
def test_scenario_064_and_069_a_failed_write_fails_the_acknowledgement(
    broker: ShareBroker, store_error: ErrorCode, client_sees: ErrorCode, stays: bool
) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    a.fetch(topic)
    broker.persister.refusals = [store_error]
    response = a.ack({topic: [(0, 9, ACCEPT)]})
    listed = partitions_of(response)[topic, 0]
    assert listed.code is client_sees
    if client_sees is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        assert listed.data.current_leader.leader_id == 1
        assert [(each.node_id, each.host) for each in response.node_endpoints] == [(1, "localhost")]
    retried = a.ack_code(topic, (0, 9, ACCEPT))
    assert retried is (NONE if stays else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not stays:
        assert a.acquire() == [(0, 9, 1)]


def test_scenario_065_a_second_acknowledgement_is_refused_while_the_first_is_stored(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    a.fetch(topic)
    broker.persister.held = []
    first = a.begin_ack({topic: [(0, 9, ACCEPT)]})
    second = a.begin_ack({topic: [(0, 9, ACCEPT)]}, epoch=2)
    assert partitions_of(a.acked(second))[topic, 0].code is WRONG
    broker.persister.held.pop()()
    assert partitions_of(a.acked(first))[topic, 0].code is NONE


def test_scenario_066_a_lock_that_expires_during_a_failed_write_releases_the_record(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, b = broker.member("A"), broker.member("B")
    a.fetch(topic)
    b.fetch(topic)
    broker.persister.held = []
    pending = a.begin_ack({topic: [(0, 9, ACCEPT)]})
    broker.sleep(30_000)
    broker.persister.refusals = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    broker.persister.held.pop()()
    assert partitions_of(a.acked(pending))[topic, 0].code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert b.acquire() == [(0, 9, 2)]


def test_scenario_067_a_restart_forgets_only_the_acquisitions(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10, 10, 10)
    a = broker.member("A")
    a.fetch(topic, max_records=20, batch_size=10)
    a.ack({topic: [(10, 19, ACCEPT)]})
    broker.restart_shares()
    b = broker.member("B")
    assert b.acquire(topic, max_records=10) == [(0, 9, 1)]
    b.ack({topic: [(0, 9, ACCEPT)]})
    assert broker.stored(topic).delivery_complete_count == 20
    assert b.acquire(max_records=10) == [(20, 29, 1)]
    b.ack({topic: [(20, 29, ACCEPT)]})
    assert broker.stored(topic).start_offset in (10, 20)


def test_a_clean_disconnect_before_the_restart_stores_a_release(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    a.fetch(topic)
    a.disconnect()
    broker.restart_shares()
    assert broker.member("B").acquire(topic) == [(0, 9, 2)]


def test_scenario_068_the_delivery_count_goes_on_from_what_was_stored(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    a.fetch(topic)
    a.ack({topic: [(0, 9, RELEASE)]})
    assert a.acquire() == [(0, 9, 2)]
    broker.restart_shares()
    assert broker.member("B").acquire(topic) == [(0, 9, 2)]


def test_scenario_070_state_that_was_altered_fences_the_one_in_memory(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    a.fetch(topic)
    broker.initialize(SharePartitionKey(GROUP, topic, 0), state_epoch=4, start_offset=7)
    assert a.ack_code(topic, (0, 9, ACCEPT)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert a.acquire() == [(7, 9, 1)]


def test_scenario_044_types_of_an_acknowledgement_are_stored_in_runs(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    a.fetch(topic)
    a.ack({topic: [(0, 4, 1), (5, 9, [1, 2, 3, 0, 1])]})
    assert broker.stored_batches(topic) == [(0, 5, 2, 1), (6, 6, 0, 1), (7, 8, 4, 1), (9, 9, 2, 1)]


def test_a_lock_that_runs_out_is_stored(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    broker.member("A").fetch(topic)
    broker.sleep(30_000)
    assert broker.stored_batches(topic) == [(0, 9, 0, 1)]


def test_the_state_of_a_deleted_topic_is_forgotten(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    key = SharePartitionKey(GROUP, topic, 0)
    broker.delete_topic("T")
    shard = broker.share_coordinator.shard_for(key)
    assert shard.read_state(lambda core: core.keys) == []


def test_pruning_keeps_what_a_restart_needs(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", *[1] * 600)
    a = broker.member("A")
    a.fetch(topic, batch_size=1, max_records=600)
    for offset in range(600):
        assert a.ack_code(topic, (offset, offset, ACCEPT)) is NONE
    broker.share_coordinator.prune()
    broker.settle()
    shard = broker.share_coordinator.partition_for(SharePartitionKey(GROUP, topic, 0))
    log = broker.partition("__share_group_state", shard).log
    assert log.log_start_offset > 400
    before = broker.stored(topic)
    broker.restart_shares()
    assert broker.stored(topic) == before
    assert broker.member("B").acquire(topic) == []
