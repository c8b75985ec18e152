"""Tests that the facts about a share partition describe ranges of records, and the record at an offset."""

from __future__ import annotations

from odradek.broker.facts.shares import share_partition, share_partitions
from odradek.broker.shares.core.state import SharePartitionKey
from odradek.broker.shares.core.tables import RecordState
from odradek.protocol.errors import ErrorCode
from tests.support.share_broker import GROUP
from tests.support.txn_share_broker import ACCEPT, TxnShareBroker


def test_the_facts_of_a_share_partition_come_from_memory_or_from_stored_state() -> None:
    scene = TxnShareBroker()
    topic = scene.shared_topic("T", 10)
    key = SharePartitionKey(GROUP, topic, 0)
    member, producer = scene.joined("A"), scene.producer()
    member.acquire(topic)
    assert member.ack_code(topic, (0, 1, ACCEPT)) is ErrorCode.NONE
    assert producer.codes(member, {topic: [(4, 6, ACCEPT)]}) == [ErrorCode.NONE]
    live = share_partition(scene.broker, key)
    assert live is not None
    assert [each.key for each in share_partitions(scene.broker)] == [key]
    scene.kill()
    stored = share_partition(scene.broker, key)
    assert stored is not None
    assert (live.start_offset, stored.start_offset) == (2, 2)
    assert [(each.at(3).state, each.at(5).state) for each in (live, stored)] == [
        (RecordState.ACQUIRED, RecordState.TX_PENDING),
        (RecordState.AVAILABLE, RecordState.TX_PENDING),
    ]
    assert live.at(5).producer_id == stored.at(5).producer_id == producer.pair[0]


def test_a_record_that_no_range_contains_is_available_and_was_never_delivered() -> None:
    scene = TxnShareBroker()
    topic = scene.shared_topic("T", 10)
    member = scene.joined("A")
    member.acquire(topic)
    found = share_partition(scene.broker, SharePartitionKey(GROUP, topic, 0))
    assert found is not None
    record = found.at(25)
    assert (record.first_offset, record.state, record.delivery_count) == (25, RecordState.AVAILABLE, 0)


def test_a_share_partition_without_any_state_has_no_facts() -> None:
    scene = TxnShareBroker()
    assert share_partition(scene.broker, SharePartitionKey("nobody", scene.shared_topic("T", 1), 0)) is None
