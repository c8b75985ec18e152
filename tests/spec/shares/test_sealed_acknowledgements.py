"""Tests that no acknowledgement enters a transaction that another producer has taken over with KeepPreparedTxn.

Rules: docs/spec/transactions.md#s3-7, docs/spec/share-groups.md#s5-3; scenarios 143 and 146 of
docs/spec/transactions.md#s8-11.
"""

from collections.abc import Callable

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import SHARE_GROUP_STATE
from tests.support.share_broker import STATE_PARTITIONS
from tests.support.share_member import Member
from tests.support.txn_share_broker import ACCEPT, Producer, TxnShareBroker

NONE, FENCED, WRONG = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE
FIRST, REST, ALL = (0, 4, ACCEPT), (5, 9, ACCEPT), (0, 9, ACCEPT)


@pytest.fixture
def broker() -> TxnShareBroker:
    broker = TxnShareBroker()
    broker.config = broker.config.__class__(transaction_two_phase_commit_enable=True)
    broker.start_coordinator()
    return broker


def prepared(broker: TxnShareBroker) -> tuple[bytes, Member, Producer]:
    """Stages the first five of ten acquired records in a two-phase commit. Returns the topic id, the member and the
    producer."""
    topic = broker.shared_topic("T", 10)
    member, producer = broker.joined("A"), broker.producer(two_phase=True)
    member.acquire(topic)
    assert producer.codes(member, {topic: [FIRST]}) == [NONE]
    return topic, member, producer


def assert_as_prepared(broker: TxnShareBroker, topic: bytes, owner: Producer) -> None:
    assert owner.commit() is NONE
    assert broker.stored_batches(topic) == [(0, 4, 2, 1)]
    assert broker.pending == 0


def taken_over(broker: TxnShareBroker, _: Producer) -> Producer:
    return broker.producer(two_phase=True, keep=True)


@pytest.mark.parametrize("range_", [FIRST, REST, ALL], ids=["what is pending", "more", "both"])
@pytest.mark.parametrize("killed", [False, True])
def test_scenario_146_neither_the_old_producer_nor_the_new_owner_acknowledges_anything(
    broker: TxnShareBroker, range_: tuple[int, int, int], killed: bool
) -> None:
    topic, member, old = prepared(broker)
    owner = taken_over(broker, old)
    if killed:
        broker.kill()
    assert old.codes(member, {topic: [range_]}) is FENCED
    assert owner.codes(member, {topic: [range_]}) is WRONG
    assert_as_prepared(broker, topic, owner)


def test_scenario_143_a_request_that_was_registered_before_the_take_over_and_goes_on_after_it_is_refused(
    broker: TxnShareBroker,
) -> None:
    topic, member, old = prepared(broker)
    answered = broker.hold_registrations()
    late = old.begin_stage(member, {topic: [REST]})
    owner = taken_over(broker, old)
    answered()
    assert old.staged(late).error_code == FENCED.value
    assert broker.pending == 5
    assert_as_prepared(broker, topic, owner)


@pytest.mark.parametrize("is_decided", [False, True])
def test_scenario_143_a_request_whose_state_is_stored_after_the_take_over_is_refused_and_leaves_nothing(
    broker: TxnShareBroker, is_decided: bool
) -> None:
    """When the state is stored, the new owner may already have decided the transaction, although no marker is written
    yet."""
    topic, member, old = prepared(broker)
    held: list[Callable[[], None]] = []
    broker.persister.held = held
    late = old.begin_stage(member, {topic: [REST]})
    owner = taken_over(broker, old)
    if is_decided:
        late_markers = {
            (SHARE_GROUP_STATE, index): ErrorCode.NOT_LEADER_OR_FOLLOWER for index in range(STATE_PARTITIONS)
        }
        broker.markers.refusals = late_markers
        owner.begin_end(commit=True)
    broker.persister.held = None
    for write in held:
        write()
    broker.settle()
    assert old.staged(late).error_code == FENCED.value
    if is_decided:
        broker.markers.refusals = {}
        broker.sleep(1_000)
    else:
        assert owner.commit() is NONE
    assert broker.stored_batches(topic) == [(0, 4, 2, 1)]
    assert broker.pending == 0
    assert member.ack_code(topic, REST) is NONE


def test_nothing_is_staged_if_one_of_two_partitions_is_stored_after_the_take_over(broker: TxnShareBroker) -> None:
    topic, other = broker.shared_topic("T", 10), broker.shared_topic("U", 10)
    member, old = broker.joined("A", "T", "U"), broker.producer(two_phase=True)
    member.acquire(topic, other)
    assert old.codes(member, {topic: [FIRST]}) == [NONE]
    held: list[Callable[[], None]] = []
    broker.persister.held = held
    late = old.begin_stage(member, {topic: [REST], other: [ALL]})
    in_time, too_late = held
    in_time()
    broker.persister.held = None
    owner = taken_over(broker, old)
    too_late()
    broker.settle()
    assert old.staged(late).error_code == FENCED.value
    assert owner.commit() is NONE
    assert broker.stored_batches(topic) == [(0, 4, 2, 1), (5, 9, 0, 1)], "the rest is given back"
    assert broker.stored_batches(other) == []
    assert [member.ack_code(topic, REST), member.ack_code(other, ALL)] == [NONE, NONE]
