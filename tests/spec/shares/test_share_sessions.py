"""Tests share sessions and the encoded requests that use them (docs/spec/share-groups.md#s1-10 to #s1-13, #s7-1)."""

import pytest

from odradek.broker.shares.core.sessions import SessionKey, ShareSessions
from odradek.broker.shares.core.state import SharePartitionKey
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicIdPartition
from tests.support.share_broker import GROUP, ShareBroker
from tests.support.share_member import partitions_of

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
NONE, WRONG, INVALID = ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST
NO_TOPIC = bytes(range(16))


def code(response: object) -> ErrorCode:
    return ErrorCode(response.error_code)  # type: ignore[attr-defined]


@pytest.fixture
def broker() -> ShareBroker:
    return ShareBroker()


def test_scenario_001_a_new_session_lists_its_partitions_even_if_they_are_empty(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T")
    a = broker.member("A")
    response = a.fetch(topic)
    listed = partitions_of(response)[topic, 0]
    assert (listed.code, listed.acquired, listed.data.records) == (NONE, [], b"")
    assert (listed.data.current_leader.leader_id, listed.data.current_leader.leader_epoch) == (-1, -1)
    assert response.acquisition_lock_timeout_ms == 30_000
    assert code(a.fetch(epoch=1)) is NONE


def test_scenario_002_another_epoch_is_refused_and_not_used_up(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T")
    a = broker.member("A")
    a.fetch(topic)
    refused = a.fetch(epoch=2)
    assert (code(refused), refused.responses) == (ErrorCode.INVALID_SHARE_SESSION_EPOCH, [])
    assert refused.acquisition_lock_timeout_ms == 0
    assert code(a.fetch(epoch=1)) is NONE


@pytest.mark.parametrize("epoch", [1, -1])
def test_scenario_003_an_epoch_after_the_first_needs_a_session(broker: ShareBroker, epoch: int) -> None:
    a = broker.member("A")
    assert code(a.fetch(epoch=epoch)) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert code(a.ack({}, epoch=epoch)) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_scenario_004_nothing_is_acknowledged_at_epoch_0(broker: ShareBroker) -> None:
    a = broker.member("A")
    assert code(a.ack({}, epoch=0)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    a.fetch(broker.shared_topic("T"))
    assert code(a.ack({}, epoch=0)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_scenario_005_a_new_session_cannot_begin_with_acknowledgements(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    a.fetch(topic)
    assert code(a.fetch(topic, epoch=0, acks={topic: [(0, 9, ACCEPT)]})) is INVALID
    assert code(a.fetch(epoch=1)) is NONE


def test_scenario_006_a_restarted_session_keeps_the_acquired_records(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    assert a.acquire(topic) == [(0, 9, 1)]
    a.epoch = 0
    a.fetch(topic)
    assert a.ack_code(topic, (0, 9, ACCEPT)) is NONE


def test_scenario_007_the_last_epoch_is_followed_by_one(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T")
    a = broker.member("A")
    a.fetch(topic)
    (session,) = broker.shares.sessions.of_connection(a.connection.address)
    session.epoch = 0x7FFFFFFF
    assert code(a.fetch(epoch=0x7FFFFFFF)) is NONE
    assert code(a.fetch(epoch=1)) is NONE


def test_scenario_008_both_requests_count_the_same_epoch(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    a.fetch(topic)
    assert code(a.fetch(epoch=1)) is NONE
    assert code(a.ack({topic: [(0, 9, ACCEPT)]}, epoch=2)) is NONE
    assert code(a.fetch(epoch=3)) is NONE


def test_scenario_009_without_room_for_a_session_the_refusal_comes_late(broker: ShareBroker) -> None:
    broker.max_sessions = 1
    broker.start_shares()
    topic = broker.shared_topic("T")
    a, b = broker.member("A"), broker.member("B")
    a.fetch(topic)
    pending = b.begin_fetch(topic, max_wait_ms=200)
    a.ack({}, epoch=-1)
    broker.sleep(199)
    assert not pending.is_done
    broker.sleep(1)
    assert code(b.fetched(pending)) is ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_a_restarted_session_needs_no_additional_cache_slot(broker: ShareBroker) -> None:
    broker.max_sessions = 1
    broker.start_shares()
    topic = broker.shared_topic("T")
    a = broker.member("A")
    a.fetch(topic)
    assert code(a.fetch(topic, epoch=0)) is NONE


def test_scenario_010_a_fetch_requires_the_state_but_no_membership(broker: ShareBroker) -> None:
    topic = broker.topic("T")
    broker.produce("T", 10)
    a = broker.member("made-up")
    assert partitions_of(a.fetch(topic.topic_id))[topic.topic_id, 0].code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert a.ack_code(topic.topic_id, (0, 9, ACCEPT)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.initialize(SharePartitionKey(GROUP, topic.topic_id, 0))
    assert a.acquire() == [(0, 9, 1)]


@pytest.mark.parametrize("member_id", ["", "x" * 37])
def test_scenario_011_member_ids_have_1_to_36_characters(broker: ShareBroker, member_id: str) -> None:
    a = broker.member(member_id)
    assert code(a.fetch(broker.shared_topic("T"))) is INVALID
    assert code(a.ack({}, epoch=1)) is INVALID


def test_scenario_012_a_request_that_renews_fetches_nothing(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    a.fetch(topic)
    assert code(a.fetch(renew=True, max_records=1)) is INVALID
    renewing = {"renew": True, "max_records": 0, "max_bytes": 0, "min_bytes": 0}
    response = a.fetch(epoch=1, acks={topic: [(0, 9, RENEW)]}, **renewing)
    assert partitions_of(response)[topic, 0].acknowledged is NONE


@pytest.mark.parametrize("version", [1, 2])
def test_scenario_013_a_renewal_must_be_announced(broker: ShareBroker, version: int) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    a.fetch(topic)
    assert a.ack_code(topic, (0, 9, RENEW), version=version) is INVALID
    assert a.epoch == 2
    assert code(a.fetch(epoch=2)) is NONE


@pytest.mark.parametrize(
    "batches",
    [
        [(5, 9, ACCEPT), (3, 4, ACCEPT)],
        [(5, 4, ACCEPT)],
        [(0, 9, [])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 9, 5)],
        [(0, 9, -1)],
    ],
)
def test_scenario_014_batches_out_of_shape_fail_their_partition_only(
    broker: ShareBroker, batches: list[tuple[int, int, int | list[int]]]
) -> None:
    good, bad = broker.shared_topic("T", 10), broker.shared_topic("U", 10)
    a = broker.member("A")
    a.fetch(good, bad)
    listed = partitions_of(a.ack({good: [(0, 9, ACCEPT)], bad: batches}))
    assert (listed[good, 0].code, listed[bad, 0].code) == (NONE, INVALID)


def test_scenario_015_a_partition_named_for_acknowledgements_is_fetched_from_then_on(broker: ShareBroker) -> None:
    first, second = broker.shared_topic("T"), broker.shared_topic("U", 10)
    a = broker.member("A")
    a.fetch(first)
    assert a.acquire(acks={second: [(0, 9, ACCEPT)]}) == [(0, 9, 1)]
    a.fetch(forget=[second], acks={second: [(0, 9, ACCEPT)]})
    broker.produce("U", 5)
    assert a.acquire() == []


def test_scenario_016_a_partition_with_acknowledgements_is_listed_without_records(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    a.fetch(topic)
    listed = partitions_of(a.fetch(acks={topic: [(0, 9, ACCEPT)]}))[topic, 0]
    assert (listed.acknowledged, listed.acquired, listed.data.records) == (NONE, [], b"")
    assert partitions_of(a.fetch()) == {}


def test_scenario_017_a_partition_whose_error_is_over_is_listed_once_more(broker: ShareBroker) -> None:
    topic = broker.topic("T").topic_id
    a = broker.member("A")
    assert partitions_of(a.fetch(topic))[topic, 0].code is ErrorCode.UNKNOWN_SERVER_ERROR
    broker.initialize(SharePartitionKey(GROUP, topic, 0))
    assert partitions_of(a.fetch())[topic, 0].code is NONE
    assert partitions_of(a.fetch()) == {}


def test_scenario_018_a_partition_named_twice_is_acknowledged_twice(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    a.fetch(topic)
    from odradek.protocol.messages.share_acknowledge_request import (
        AcknowledgementBatch,
        AcknowledgePartition,
        AcknowledgeTopic,
        ShareAcknowledgeRequest,
    )

    request = ShareAcknowledgeRequest(
        group_id=GROUP,
        member_id="A",
        share_session_epoch=1,
        topics=[
            AcknowledgeTopic(
                topic_id=topic,
                partitions=[
                    AcknowledgePartition(
                        partition_index=0,
                        acknowledgement_batches=[
                            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[ACCEPT])
                        ],
                    )
                ],
            )
            for first, last in ((5, 9), (0, 4))
        ],
    )
    listed = partitions_of(a.acked(a.send(request, 1), 1))
    assert [each.code for each in listed.values()] == [NONE]
    assert broker.stored(topic).delivery_complete_count == 10


def test_scenario_019_an_unknown_topic_id_leaves_the_others_alone(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    listed = partitions_of(a.fetch(NO_TOPIC, topic))
    assert listed[NO_TOPIC, 0].code is ErrorCode.UNKNOWN_TOPIC_ID
    assert listed[topic, 0].acquired == [(0, 9, 1)]
    listed = partitions_of(a.fetch())
    assert listed[NO_TOPIC, 0].code is ErrorCode.UNKNOWN_TOPIC_ID
    listed = partitions_of(a.ack({NO_TOPIC: [(0, 9, ACCEPT)], topic: [(0, 9, ACCEPT)]}))
    assert (listed[NO_TOPIC, 0].code, listed[topic, 0].code) == (ErrorCode.UNKNOWN_TOPIC_ID, NONE)
    a.fetch(forget=[NO_TOPIC])
    assert partitions_of(a.fetch()) == {}


def test_scenario_020_a_connection_that_is_lost_gives_its_records_back(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, b = broker.member("A"), broker.member("B")
    a.fetch(topic)
    b.fetch(topic)
    parked = b.begin_fetch(max_wait_ms=500)
    assert not parked.is_done
    a.disconnect()
    listed = partitions_of(b.fetched(parked))[topic, 0]
    assert listed.acquired == [(0, 9, 2)]


# These tests go beyond the numbered scenarios.


def test_the_feature_off_refuses_everything_and_forgets_sessions(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    a.fetch(topic)
    broker.set_level("share.version", 0)
    assert code(a.fetch(epoch=1)) is ErrorCode.UNSUPPORTED_VERSION
    assert code(a.ack({}, epoch=1)) is ErrorCode.UNSUPPORTED_VERSION
    broker.set_level("share.version", 1)
    assert code(a.fetch(epoch=1)) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_share_fetches_without_read_permission_are_refused(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    a.fetch(topic)
    broker.deny(Operation.READ, ResourceType.TOPIC, "T")
    listed = partitions_of(a.fetch(acks={topic: [(0, 9, ACCEPT)]}))[topic, 0]
    assert (listed.code, listed.acknowledged) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED,) * 2
    broker.deny(Operation.READ, ResourceType.GROUP, GROUP)
    assert code(a.fetch()) is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_an_unknown_acquire_mode_is_refused(broker: ShareBroker) -> None:
    assert code(broker.member("A").fetch(broker.shared_topic("T"), mode=2)) is INVALID


def test_a_missing_partition_is_refused(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T")
    a = broker.member("A")
    assert partitions_of(a.fetch(topic, index=7))[topic, 7].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert a.ack_code(topic, (0, 1, ACCEPT), index=7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_final_epoch_acknowledges_and_gives_back_the_rest(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, b = broker.member("A"), broker.member("B")
    a.fetch(topic)
    b.fetch(topic)
    assert a.ack_code(topic, (0, 4, ACCEPT), epoch=-1) is NONE
    assert b.acquire() == [(5, 9, 2)]
    assert code(a.fetch(epoch=2)) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_the_final_epoch_of_a_fetch_fetches_nothing(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, b = broker.member("A"), broker.member("B")
    a.fetch(topic, max_records=0)
    broker.produce("T", 5)
    assert a.acquire(epoch=-1) == []
    assert b.acquire(topic) == [(0, 14, 1)]


def test_partitions_that_were_forgotten_earlier_keep_their_records(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, b = broker.member("A"), broker.member("B")
    a.fetch(topic)
    a.fetch(forget=[topic])
    a.ack({}, epoch=-1)
    assert b.acquire(topic) == []


def test_a_session_begun_anew_over_another_connection_outlives_the_first(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, b = broker.member("A"), broker.member("B")
    a.fetch(topic)
    again = broker.member("A")
    again.fetch(topic)
    a.disconnect()
    assert b.acquire(topic) == []
    assert again.ack_code(topic, (0, 9, ACCEPT)) is NONE


def test_share_partitions_are_unloaded_with_the_last_session(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    a.fetch(topic)
    a.ack({}, epoch=-1)
    assert len(list(broker.shares.loaded_partitions)) == 1
    a.disconnect()
    assert list(broker.shares.loaded_partitions) == []
    assert broker.member("B").acquire(topic) == [(0, 9, 2)]


def test_a_session_that_takes_all_of_them_beyond_their_partitions_is_refused_and_leaves_none() -> None:
    sessions = ShareSessions(10, max_partitions=3)
    first, second, third = (TopicIdPartition(NO_TOPIC, index) for index in range(3))
    sessions.fetch(SessionKey(GROUP, "A", 1), 0, [first, second, third], (), "connection")
    with pytest.raises(KafkaError) as refusal:
        sessions.fetch(SessionKey(GROUP, "B", 1), 0, [first], (), "connection")
    assert (refusal.value.code, len(sessions)) == (ErrorCode.SHARE_SESSION_LIMIT_REACHED, 1)
    assert sessions.fetch(SessionKey(GROUP, "A", 1), 1, [first], (), "connection").epoch == 2
