"""Tests ShareFetch requests (docs/spec/share-groups.md#s1-12)."""

from typing import Any

import pytest

from odradek.broker.shares.core.state import SharePartitionKey
from odradek.protocol.batch_header import batches
from odradek.protocol.errors import ErrorCode
from tests.support.share_broker import GROUP, ShareBroker
from tests.support.share_member import partitions_of

GAP, ACCEPT, RELEASE = range(3)
NONE = ErrorCode.NONE


@pytest.fixture
def broker() -> ShareBroker:
    return ShareBroker()


def records_of(response: object, topic: bytes, index: int = 0) -> list[tuple[int, int]]:
    """Returns (first offset, last offset) of each log batch in the response."""
    data = partitions_of(response)[topic, index].data.records
    return [(header.base_offset, header.last_offset) for _, header in batches(data)]


def test_a_fetch_returns_the_log_batches_that_contain_the_acquired_records(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10, 10, 10)
    a, b = broker.member("A"), broker.member("B")
    response = a.fetch(topic, max_records=10)
    assert records_of(response, topic) == [(0, 9)]
    response = b.fetch(topic, max_records=11)
    assert partitions_of(response)[topic, 0].acquired == [(10, 29, 1)]
    assert records_of(response, topic) == [(10, 19), (20, 29)]
    a.ack({topic: [(3, 3, RELEASE)]})
    response = b.fetch()
    assert partitions_of(response)[topic, 0].acquired == [(3, 3, 2)]
    assert records_of(response, topic) == [(0, 9)]


def test_a_fetch_waits_for_records_and_takes_them_when_they_come(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T")
    a = broker.member("A")
    a.fetch(topic)
    parked = a.begin_fetch(max_wait_ms=500)
    assert not parked.is_done
    broker.produce("T", 10)
    assert partitions_of(a.fetched(parked))[topic, 0].acquired == [(0, 9, 1)]


def test_a_fetch_without_records_is_answered_after_its_maximum_wait(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T")
    a = broker.member("A")
    a.fetch(topic)
    parked = a.begin_fetch(max_wait_ms=500)
    broker.sleep(499)
    assert not parked.is_done
    broker.sleep(1)
    assert partitions_of(a.fetched(parked)) == {}


def test_one_of_several_waiting_members_gets_each_record(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T")
    members = [broker.member(name) for name in "ABC"]
    for member in members:
        member.fetch(topic)
    parked = [member.begin_fetch(max_wait_ms=500) for member in members]
    broker.produce("T", 10)
    assert [reply.is_done for reply in parked] == [True, False, False]
    broker.produce("T", 10)
    assert [reply.is_done for reply in parked] == [True, True, False]


def test_min_bytes_holds_back_what_is_too_little_until_the_time_is_over(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T")
    a = broker.member("A")
    a.fetch(topic)
    parked = a.begin_fetch(max_wait_ms=500, min_bytes=1_000)
    broker.produce("T", 1)
    assert not parked.is_done
    broker.produce("T", 100)
    assert partitions_of(a.fetched(parked))[topic, 0].acquired == [(0, 100, 1)]
    parked = a.begin_fetch(max_wait_ms=500, min_bytes=1_000)
    broker.produce("T", 1)
    broker.sleep(500)
    assert partitions_of(a.fetched(parked))[topic, 0].acquired == [(101, 101, 1)]


@pytest.mark.parametrize("nothing", [{"max_records": 0}, {"max_bytes": 0}])
def test_a_fetch_of_nothing_is_answered_at_once(broker: ShareBroker, nothing: dict[str, Any]) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    assert a.begin_fetch(topic, max_wait_ms=500, **nothing).is_done


def test_the_budget_covers_all_partitions_and_each_gets_a_turn(broker: ShareBroker) -> None:
    first, second = broker.shared_topic("T", 10), broker.shared_topic("U", 10)
    a = broker.member("A")
    got = [partitions_of(a.fetch(first, second, max_records=5))]
    got.append(partitions_of(a.fetch(max_records=5)))
    acquired = [topic for response in got for (topic, _), each in response.items() if each.acquired]
    assert sorted(acquired) == sorted([first, second])


@pytest.mark.parametrize("max_records", [0, 5])
def test_errors_are_returned_even_if_no_more_records_fit(broker: ShareBroker, max_records: int) -> None:
    """S3: only the unknown topics receive the error code UNKNOWN_TOPIC_ID (docs/spec/kafka-4.4.md#s5-3)."""
    topics = [broker.shared_topic(name, 10) for name in ("T", "U")]
    unknown = [b"\x07" * 16, b"\x08" * 16]
    partitions = partitions_of(broker.member("A").fetch(unknown[0], *topics, unknown[1], max_records=max_records))
    assert {key for key, each in partitions.items() if each.code is ErrorCode.UNKNOWN_TOPIC_ID} == {
        (u, 0) for u in unknown
    }


def test_an_expired_lock_wakes_waiting_fetches(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, b = broker.member("A"), broker.member("B")
    a.fetch(topic)
    b.fetch(topic)
    parked = b.begin_fetch(max_wait_ms=60_000)
    broker.sleep(29_999)
    assert not parked.is_done
    broker.sleep(1)
    assert partitions_of(b.fetched(parked))[topic, 0].acquired == [(0, 9, 2)]


def test_a_released_record_wakes_waiting_fetches(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, b = broker.member("A"), broker.member("B")
    a.fetch(topic)
    b.fetch(topic)
    parked = b.begin_fetch(max_wait_ms=500)
    a.ack({topic: [(5, 6, RELEASE)]})
    assert partitions_of(b.fetched(parked))[topic, 0].acquired == [(5, 6, 2)]


def test_the_answer_waits_for_its_acknowledgements_to_be_stored(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    a.fetch(topic)
    broker.persister.held = []
    pending = a.begin_fetch(acks={topic: [(0, 9, ACCEPT)]})
    assert not pending.is_done
    broker.persister.held.pop()()
    assert partitions_of(a.fetched(pending))[topic, 0].acknowledged is NONE


def test_a_client_that_goes_away_while_it_waits_acquires_nothing(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T")
    a, b = broker.member("A"), broker.member("B")
    a.fetch(topic)
    b.fetch(topic)
    parked = a.begin_fetch(max_wait_ms=500)
    parked.abandon()
    a.disconnect()
    broker.produce("T", 10)
    assert b.acquire() == [(0, 9, 1)]


def test_a_session_that_ended_meanwhile_acquires_nothing(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T")
    a, b = broker.member("A"), broker.member("B")
    a.fetch(topic)
    b.fetch(topic)
    parked = a.begin_fetch(max_wait_ms=500)
    other = broker.member("A")
    other.ack({}, epoch=-1)
    broker.produce("T", 10)
    assert partitions_of(a.fetched(parked)) == {}
    assert b.acquire() == [(0, 9, 1)]


def test_a_waiting_fetch_gets_the_error_of_a_deleted_topic_at_once(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a = broker.member("A")
    a.fetch(topic)
    parked = a.begin_fetch(max_wait_ms=500)
    broker.delete_topic("T")
    broker.settle()
    assert partitions_of(a.fetched(parked))[topic, 0].code is ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.known_bug(82, "Odradek 198d3dd")
def test_a_recreated_topic_is_a_different_topic_for_sessions_acknowledgements_and_offsets(
    broker: ShareBroker,
) -> None:
    old = broker.shared_topic("T", 10)
    a = broker.member("A")
    assert partitions_of(a.fetch(old))[old, 0].acquired == [(0, 9, 1)]
    broker.delete_topic("T")
    new = broker.shared_topic("T", 3)
    assert new != old
    assert partitions_of(a.fetch())[old, 0].code is ErrorCode.UNKNOWN_TOPIC_ID
    assert partitions_of(a.ack({old: [(0, 9, ACCEPT)]}))[old, 0].code is ErrorCode.UNKNOWN_TOPIC_ID
    found = partitions_of(a.fetch(new, forget=[old]))
    assert found[new, 0].acquired == [(0, 2, 1)]
    assert (old, 0) not in found


def test_scenario_060_a_fetch_over_the_wire_skips_records_that_retention_removed(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10, 10, 30, 10)
    a = broker.member("A")
    a.fetch(topic, max_records=10)
    a.ack({topic: [(0, 9, ACCEPT)]})
    a.fetch(max_records=10)
    broker.partition("T").log.delete_records_before(50)
    answered = partitions_of(a.fetch(max_wait_ms=500))[topic, 0]
    assert (answered.code, answered.acquired) == (NONE, [])
    assert a.acquire() == [(50, 59, 1)]
    assert a.ack_code(topic, (10, 19, ACCEPT)) is NONE
    assert broker.stored(topic).start_offset == 0


# --- The start offset of a share group.


@pytest.mark.parametrize(("reset", "first"), [("earliest", 0), ("latest", 10)])
def test_a_start_offset_that_is_not_decided_is_decided_by_the_first_fetch(
    broker: ShareBroker, reset: str, first: int
) -> None:
    broker.set_group(share_auto_offset_reset=reset)
    topic = broker.shared_topic("T", 10, start_offset=-1)
    a = broker.member("A")
    a.fetch(topic, max_records=0)
    assert a.acquire(max_bytes=1, max_records=0) == []
    a.fetch(max_records=1)
    broker.produce("T", 5)
    got = a.acquire()
    assert (got[-1][1], broker.stored(topic).start_offset) == (14, -1)
    a.ack({topic: [(10, 14, ACCEPT)]})
    assert broker.stored(topic).start_offset == first


def test_scenario_035_a_partition_that_was_never_fetched_has_no_start_offset(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10, start_offset=-1)
    assert (broker.stored(topic).start_offset, broker.stored(topic).delivery_complete_count) == (-1, -1)


def test_by_duration_starts_at_the_first_record_that_is_young_enough(broker: ShareBroker) -> None:
    broker.set_group(share_auto_offset_reset="by_duration:PT1M")
    topic = broker.shared_topic("T", 10, start_offset=-1)
    broker.clock.advance(60_001)
    a = broker.member("A")
    assert partitions_of(a.fetch(topic, max_wait_ms=10))[topic, 0].code is ErrorCode.OFFSET_NOT_AVAILABLE
    broker.produce("T", 5)
    a.fetch(max_wait_ms=10)
    assert broker.shares.find(SharePartitionKey(GROUP, topic, 0)).core.flight.start_offset == 10  # type: ignore[union-attr]


# --- Transactions on the source topic.


def test_scenario_061_and_062_aborted_records_are_delivered_by_isolation_level(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T")
    broker.transactional(5, commit=False)
    a = broker.member("A")
    assert a.acquire(topic) == [(0, 5, 1)]
    a.ack({topic: [(0, 5, RELEASE)]})
    a.disconnect()
    broker.set_group(share_isolation_level="read_committed")
    broker.initialize(SharePartitionKey(GROUP, topic, 0), state_epoch=2)
    b = broker.member("B")
    assert b.acquire(topic) == [(5, 5, 1)]
    assert b.ack_code(topic, (5, 5, GAP)) is NONE
    assert broker.stored(topic).delivery_complete_count == 6


def test_scenario_063_an_open_transaction_is_not_read_committed(broker: ShareBroker) -> None:
    broker.set_group(share_isolation_level="read_committed")
    topic = broker.shared_topic("T", 3)
    broker.transactional(5, commit=None)
    a = broker.member("A")
    assert a.acquire(topic) == [(0, 2, 1)]
    parked = a.begin_fetch(max_wait_ms=500)
    assert not parked.is_done


# --- Records that are only on disk.


def test_records_that_only_the_disk_has_are_read_by_a_thread(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10, 10)
    broker.partition("T").log.roll(broker.clock.now_ms())
    broker.disk.evict()
    a = broker.member("A")
    pending = a.begin_fetch(topic)
    assert partitions_of(a.fetched(pending))[topic, 0].acquired == [(0, 19, 1)]
