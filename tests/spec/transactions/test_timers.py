"""Tests the timers for transactions that stay open too long and for transactional ids that expire.

Rules: docs/spec/transactions.md#s5-1; scenarios 99 to 106: #s8-7.
"""

import pytest

from odradek.broker.coordinators.transaction_coordinator import TransactionSettings
from odradek.broker.transactions.entry import TransactionTombstone
from odradek.broker.transactions.tables import TxnState
from odradek.broker.transactions.turn import TransactionConfig
from tests.support.metadata import config_with
from tests.support.transaction_scene import MAX, NEW_PID, P0, P1, PID, TIMEOUT_MS, E, S, given, refused, txn

DAY_MS = 24 * 60 * 60 * 1000
KEPT = (-1, -1)


@pytest.mark.parametrize("transaction_version", [0, 1])
def test_scenario_099_a_transaction_that_times_out_is_aborted_and_its_producer_fenced(transaction_version: int) -> None:
    scene = given(txn(S.ONGOING, (PID, 1), version=0), transaction_version=transaction_version)
    scene.advance(TIMEOUT_MS)
    assert scene.time_out() == []
    scene.advance(1)
    assert scene.time_out() == ["pay"]
    assert scene.state == (S.PREPARE_ABORT, PID, 2)
    with refused(E.PRODUCER_FENCED):
        scene.commit4((PID, 1))
    (owed,) = scene.write_markers()
    assert (owed.producer_epoch, owed.is_commit, owed.transaction_version) == (2, False, 0)
    with refused(E.PRODUCER_FENCED):
        scene.commit4((PID, 1))
    assert scene.init() == (PID, 3)


def test_scenario_100_at_version_2_its_own_abort_is_a_retry_and_it_goes_on() -> None:
    scene = given(txn(S.ONGOING, (PID, 1)))
    scene.advance(TIMEOUT_MS + 1)
    scene.time_out()
    scene.write_markers()
    with refused(E.PRODUCER_FENCED):
        scene.commit5((PID, 1))
    assert scene.abort5((PID, 1)).pair == (PID, 2)
    assert scene.add5((PID, 2), P0) == {P0: E.NONE}


def test_scenario_101_an_abort_that_is_not_written_bumps_nothing_however_often_it_is_tried() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), version=0), transaction_version=1)
    scene.advance(TIMEOUT_MS + 1)
    scene.refuse_appends = E.NOT_COORDINATOR
    for _ in range(3):
        assert scene.time_out() == []
    assert scene.restarted().state == (S.ONGOING, PID, 1)
    scene.refuse_appends = None
    assert scene.time_out() == ["pay"]
    assert scene.state == (S.PREPARE_ABORT, PID, 2)


def test_scenario_102_a_commit_that_was_decided_does_not_time_out() -> None:
    scene = given(txn(S.ONGOING, (PID, 1)))
    scene.commit5((PID, 1))
    scene.advance(TIMEOUT_MS + 1)
    assert scene.time_out() == []
    scene.write_markers()
    assert scene.state == (S.COMPLETE_COMMIT, PID, 2)


# In Kafka, a commit arriving just after the timeout received INVALID_TXN_STATE, which is fatal to the client. A fenced
# client, in contrast, can start again.
@pytest.mark.known_bug(2, "KAFKA-20785")
def test_scenario_103_a_commit_that_comes_just_after_the_abort_never_happens() -> None:
    scene = given(txn(S.ONGOING, (PID, 1)))
    scene.advance(TIMEOUT_MS + 1)
    scene.time_out()
    with refused(E.CONCURRENT_TRANSACTIONS):
        scene.commit5((PID, 1))
    scene.write_markers()
    with refused(E.PRODUCER_FENCED):
        scene.commit5((PID, 1))
    assert scene.state == (S.COMPLETE_ABORT, PID, 2)


def test_further_partitions_do_not_give_a_transaction_more_time() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), [P0]))
    scene.advance(TIMEOUT_MS)
    scene.add5((PID, 1), P1)
    scene.advance(1)
    assert scene.time_out() == ["pay"]


# After a restart, Redpanda no longer enforced the timeouts of open transactions, or forgot the transactions.
@pytest.mark.known_bug(37, "redpanda 8566, 14624")
def test_a_transaction_that_became_overdue_without_a_coordinator_is_aborted_at_the_next_scan() -> None:
    scene = given(txn(S.ONGOING, (PID, 1)))
    scene.now_ms += TIMEOUT_MS + 1
    assert scene.restarted().time_out() == ["pay"]


def test_a_transaction_that_began_after_the_scan_is_not_aborted() -> None:
    scene = given(txn(S.ONGOING, (PID, 1)))
    scene.advance(TIMEOUT_MS + 1)
    found = scene.core.timed_out(scene.now_ms)
    scene.commit5((PID, 1))
    scene.write_markers()
    scene.add5((PID, 2), P0)
    count = len(scene.written)
    assert found == ["pay"]
    assert scene.time_out() == []
    assert len(scene.written) == count


@pytest.mark.parametrize("timeout_ms", [-1, 2**31 - 1])
def test_scenario_126_transactions_with_an_unlimited_timeout_never_time_out(timeout_ms: int) -> None:
    scene = given(txn(S.ONGOING, (PID, 1), timeout_ms=timeout_ms)).restarted()
    scene.advance(30 * DAY_MS)
    assert scene.time_out() == []


# The epoch cannot increase beyond 32766, so in Kafka the abort after a timeout always failed.
@pytest.mark.known_bug(3, "apache/kafka 21506, 21469")
def test_at_the_last_epoch_the_abort_assigns_a_new_producer_id_and_the_old_one_may_still_abort() -> None:
    scene = given(txn(S.ONGOING, (PID, MAX - 1)))
    scene.advance(TIMEOUT_MS + 1)
    scene.time_out()
    (owed,) = scene.write_markers()
    assert owed.producer_epoch == MAX
    assert scene.state == (S.COMPLETE_ABORT, NEW_PID, 0)
    assert scene.abort5((PID, MAX - 1)).pair == (NEW_PID, 0)
    with refused(E.PRODUCER_FENCED):
        scene.commit5((PID, MAX - 1))
    assert scene.init() == (NEW_PID, 1)


def test_at_the_last_epoch_without_producer_ids_the_abort_comes_with_a_later_scan() -> None:
    scene = given(txn(S.ONGOING, (PID, MAX - 1)))
    scene.advance(TIMEOUT_MS + 1)
    scene.has_producer_ids = False
    assert scene.time_out() == []
    scene.has_producer_ids = True
    assert scene.time_out() == ["pay"]


def test_at_version_1_the_last_epoch_is_bumped_to_the_very_last_and_the_next_owner_gets_a_new_id() -> None:
    scene = given(txn(S.ONGOING, (PID, MAX - 1), version=0), transaction_version=1)
    scene.advance(TIMEOUT_MS + 1)
    scene.time_out()
    scene.write_markers()
    assert scene.state == (S.COMPLETE_ABORT, PID, MAX)
    assert scene.init() == (NEW_PID, 0)


# Kafka lost a transactional id that had reached epoch 32767.
@pytest.mark.known_bug(3, "apache/kafka 21506, 21469")
def test_an_open_transaction_at_the_very_last_epoch_is_aborted_with_that_epoch() -> None:
    scene = given(txn(S.ONGOING, (PID, MAX)))
    scene.advance(TIMEOUT_MS + 1)
    scene.time_out()
    (owed,) = scene.write_markers()
    assert owed.producer_epoch == MAX
    assert scene.state == (S.COMPLETE_ABORT, NEW_PID, 0)
    assert scene.init() == (NEW_PID, 1)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_scenario_104_an_id_that_was_unused_for_a_week_is_forgotten(state: TxnState) -> None:
    scene = given(txn(state, (PID, 4)))
    scene.advance(7 * DAY_MS - 1)
    scene.expire()
    assert scene.written == []
    scene.advance(1)
    scene.expire()
    assert scene.written == [TransactionTombstone("pay")]
    with refused(E.INVALID_PRODUCER_ID_MAPPING):
        scene.add((PID, 4))
    assert scene.init((PID, 4)) == (NEW_PID, 0)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_a_rule_for_the_longest_matching_prefix_expires_an_id_sooner(state: TxnState) -> None:
    rules = ("task-", 60_000), ("task-slow-", 300_000)
    ids = ["task-1", "task-slow-1", "pay", "a-task-1"]
    scene = given(
        *[txn(state, (number, 4), transactional_id=each) for number, each in enumerate(ids)],
        config=TransactionConfig(transactional_id_expiration_rules=rules),
    )
    scene.advance(59_999)
    scene.expire()
    assert scene.written == []
    scene.advance(1)
    scene.expire()
    assert scene.written == [TransactionTombstone("task-1")]
    scene.advance(DAY_MS)
    scene.expire()
    assert scene.written == [TransactionTombstone("task-1"), TransactionTombstone("task-slow-1")]


def test_expiration_rules_are_read_from_their_setting_and_determine_the_scan_interval() -> None:
    settings = TransactionSettings.of(config_with(odradek_transactional_id_expiration_rules="task-=60000, a=b=500"))
    assert settings.decisions.transactional_id_expiration_rules == (("task-", 60_000), ("a=b", 500))
    assert settings.remove_expired_interval_ms == 1_000
    assert TransactionSettings.of(config_with()).remove_expired_interval_ms == 3_600_000


def test_no_expiration_rule_ends_an_open_transaction() -> None:
    config = TransactionConfig(transactional_id_expiration_rules=(("pay", 1),))
    scene = given(txn(S.ONGOING, (PID, 4)), config=config)
    scene.advance(DAY_MS)
    scene.expire()
    assert scene.written == []


@pytest.mark.parametrize("state", [S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_scenario_104_an_id_with_an_unfinished_transaction_is_not_forgotten(state: TxnState) -> None:
    scene = given(txn(state, (PID, 4)))
    scene.advance(30 * DAY_MS)
    scene.expire()
    assert scene.written == []


def test_scenario_105_a_producer_that_initialises_after_its_id_expired_gets_a_new_entry_that_stays() -> None:
    scene = given(txn(S.COMPLETE_COMMIT, (PID, 4)))
    scene.advance(7 * DAY_MS)
    scene.expire()
    assert scene.init() == (NEW_PID, 0)
    scene.expire()
    assert scene.restarted().state == (S.EMPTY, NEW_PID, 0)


def test_scenario_106_an_id_whose_tombstone_cannot_be_written_stays() -> None:
    scene = given(txn(S.COMPLETE_COMMIT, (PID, 4)))
    scene.advance(7 * DAY_MS)
    scene.refuse_appends = E.NOT_COORDINATOR
    with refused(E.NOT_COORDINATOR):
        scene.expire()
    scene.refuse_appends = None
    assert scene.add5((PID, 4), P0) == {P0: E.NONE}


@pytest.mark.known_bug(37, "redpanda 8566, 14624")
def test_an_id_that_nobody_used_since_before_the_restart_is_forgotten() -> None:
    again = given(txn(S.COMPLETE_COMMIT, (PID, 1))).restarted()
    again.advance(7 * DAY_MS)
    again.expire()
    with refused(E.TRANSACTIONAL_ID_NOT_FOUND):
        again.describe()
