"""Tests a transaction from PREPARE_COMMIT or PREPARE_ABORT to its end, as the coordinator sees it.

Rules: docs/spec/transactions.md#s1-8; scenarios 53 to 57 and 62 to 68: #s8-4.
"""

import pytest

from odradek.broker.transactions.core import MARKER_RETRY_MS
from odradek.broker.transactions.tables import NEEDS_NO_MARKER, TxnState
from tests.support.transaction_scene import (
    COORDINATOR_EPOCH,
    MAX,
    NOW_MS,
    P0,
    P1,
    PID,
    E,
    S,
    given,
    refused,
    txn,
)

WAIT = E.CONCURRENT_TRANSACTIONS
DECIDED = {S.PREPARE_COMMIT: S.COMPLETE_COMMIT, S.PREPARE_ABORT: S.COMPLETE_ABORT}


# After a restart, KoP wrote the decision's markers, but did not record the transaction's completion.
@pytest.mark.known_bug(44, "KoP 1412")
@pytest.mark.parametrize("state", DECIDED)
def test_scenario_053_a_decision_from_before_a_crash_is_carried_out_by_the_next_coordinator(state: TxnState) -> None:
    scene = given(txn(state, (PID, 2), [P0, P1])).restarted()
    (owed,) = scene.owed
    assert owed.coordinator_epoch == COORDINATOR_EPOCH + 1
    assert (owed.producer_id, owed.producer_epoch, owed.transaction_version) == (PID, 2, 2)
    assert owed.partitions == {P0, P1}
    scene.write_markers(only=[P0])
    scene.advance(MARKER_RETRY_MS)
    scene.write_markers()
    assert scene.state == (DECIDED[state], PID, 2)
    assert scene.owed == []
    assert scene.restarted().owed == []


def test_scenario_054_markers_that_were_written_before_the_crash_are_written_again() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), [P0, P1]))
    scene.commit5((PID, 1))
    scene.write_markers(only=[P0])
    scene = scene.restarted()
    assert scene.owed[0].partitions == {P0, P1}
    scene.write_markers()
    assert scene.state == (S.COMPLETE_COMMIT, PID, 2)


def test_scenario_055_the_producer_id_that_was_promised_survives_the_crash() -> None:
    scene = given(txn(S.ONGOING, (PID, MAX - 1)))
    reply = scene.commit5((PID, MAX - 1))
    scene.write_markers(only=[])
    promised = reply.pair
    scene = scene.restarted()
    scene.write_markers()
    assert scene.state == (S.COMPLETE_COMMIT, *promised)
    assert scene.add5(promised, P0) == {P0: E.NONE}


def test_scenario_055_the_next_producer_id_is_recovered_from_a_record_of_kafka_without_its_epoch() -> None:
    scene = given(txn(S.PREPARE_COMMIT, (PID, MAX), following=85))
    scene.write_markers()
    assert scene.state == (S.COMPLETE_COMMIT, 85, 0)


def test_scenario_056_a_retry_after_a_crash_behind_the_end_is_answered() -> None:
    scene = given(txn(S.ONGOING, (PID, 1)))
    scene.commit5((PID, 1))
    scene.write_markers()
    assert scene.restarted().commit5((PID, 1)).pair == (PID, 2)


def test_scenario_057_an_abort_by_timeout_goes_on_after_a_crash_and_a_late_commit_is_refused() -> None:
    scene = given(txn(S.ONGOING, (PID, 1)))
    scene.advance(60_001)
    scene.time_out()
    scene = scene.restarted()
    with refused(WAIT):
        scene.commit5((PID, 1))
    scene.write_markers()
    assert scene.state == (S.COMPLETE_ABORT, PID, 2)
    with refused(E.PRODUCER_FENCED):
        scene.commit5((PID, 1))


def test_scenario_062_a_partition_that_is_gone_is_not_waited_for() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), [P0, ("refunds", 3)]))
    reply = scene.commit5((PID, 1))
    scene.write_markers(only=[P0])
    scene.delete_topic("refunds")
    assert reply.pair == (PID, 2)
    scene.advance(MARKER_RETRY_MS)
    scene.write_markers()
    assert scene.state == (S.COMPLETE_COMMIT, PID, 2)


def test_scenario_062_a_topic_deleted_amid_a_transaction_leaves_it_so_that_its_namesake_gets_no_marker() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), [P0, ("refunds", 3)]))
    scene.advance(10)
    scene.delete_topic("refunds")
    assert scene.written == [txn(S.ONGOING, (PID, 1), [P0], started_ms=NOW_MS, updated_ms=NOW_MS)]
    scene = scene.restarted()
    scene.commit5((PID, 1))
    assert scene.owed[0].partitions == {P0}


def test_scenario_062_the_deletion_of_a_topic_is_synced_before_its_name_can_be_reused() -> None:
    core = given(txn(S.ONGOING, (PID, 1), [P0, ("refunds", 3)])).core
    assert core.forget_topic("refunds").must_sync
    assert not core.forget_topic("of no transaction").must_sync


def test_scenario_063_a_marker_that_met_no_leader_is_sent_again_for_that_partition_alone() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), [P0, P1]))
    scene.commit5((PID, 1))
    scene.write_markers(only=[P0])
    assert scene.owed == []
    scene.advance(MARKER_RETRY_MS)
    (owed,) = scene.write_markers()
    assert owed.partitions == {P1}
    assert scene.state == (S.COMPLETE_COMMIT, PID, 2)


def test_scenario_064_without_a_leader_the_decision_stands_and_waits_for_as_long_as_it_takes() -> None:
    scene = given(
        txn(S.ONGOING, (PID, 1), [P0]),
        txn(S.ONGOING, (PID + 1, 1), [P1], transactional_id="other"),
    )
    reply = scene.commit5((PID, 1))
    for _ in range(36_000):
        scene.write_markers(only=[])
        scene.advance(MARKER_RETRY_MS)
    assert reply.pair == (PID, 2)
    assert scene.state == (S.PREPARE_COMMIT, PID, 2)
    assert scene.describe().topics[0].partitions == [0]
    with refused(WAIT):
        scene.init()
    scene.end((PID + 1, 1), committed=True, version=5, transactional_id="other")
    scene.write_markers()
    assert scene.state == (S.COMPLETE_COMMIT, PID, 2)
    assert scene.describe("other").transaction_state == "CompleteCommit"


@pytest.mark.parametrize(
    "code",
    [
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.REQUEST_TIMED_OUT,
        E.KAFKA_STORAGE_ERROR,
        E.NOT_LEADER_OR_FOLLOWER,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.INVALID_PRODUCER_EPOCH,
        E.TRANSACTION_COORDINATOR_FENCED,
        E.UNKNOWN_SERVER_ERROR,
        E.CORRUPT_MESSAGE,
    ],
)
def test_scenario_065_no_refusal_makes_a_marker_forgotten(code: E) -> None:
    assert code not in NEEDS_NO_MARKER


# In Kafka, the response to markers with an older epoch ended the wait for those with the newer epoch. The coordinator
# never learned that all markers had been written.
@pytest.mark.known_bug(12, "KAFKA-16352")
def test_scenario_066_results_of_markers_of_an_older_coordinator_are_ignored() -> None:
    before = given(txn(S.PREPARE_COMMIT, (PID, 2), [P0, P1]))
    (late,) = before.owed
    scene = before.restarted()
    scene.markers_answered(late, late.partitions)
    assert scene.state == (S.PREPARE_COMMIT, PID, 2)
    assert scene.written == []
    (owed,) = scene.write_markers()
    assert (owed.coordinator_epoch, owed.partitions) == (COORDINATOR_EPOCH + 1, frozenset({P0, P1}))
    assert scene.state == (S.COMPLETE_COMMIT, PID, 2)


def test_scenario_066_results_of_markers_of_an_earlier_transaction_are_ignored() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), [P0]))
    scene.commit5((PID, 1))
    (late,) = scene.write_markers()
    scene.add5((PID, 2), P0)
    scene.abort5((PID, 2))
    scene.markers_answered(late, late.partitions)
    assert scene.state == (S.PREPARE_ABORT, PID, 3)


def test_scenario_067_an_end_that_is_not_written_is_tried_again_and_the_id_waits() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), [P0]))
    reply = scene.commit5((PID, 1))
    scene.refuse_appends = E.COORDINATOR_NOT_AVAILABLE
    scene.write_markers()
    assert reply.pair == (PID, 2)
    with refused(WAIT):
        scene.add5((PID, 2), P0)
    scene.refuse_appends = None
    scene.advance(MARKER_RETRY_MS)
    scene.write_markers()
    assert scene.state == (S.COMPLETE_COMMIT, PID, 2)
    assert scene.add5((PID, 2), P0) == {P0: E.NONE}


def test_a_decision_without_partitions_is_complete_after_a_restart_too() -> None:
    scene = given(txn(S.PREPARE_ABORT, (PID, 2), []))
    scene.write_markers()
    assert scene.state == (S.COMPLETE_ABORT, PID, 2)


def test_there_is_one_end_for_each_decision_however_often_markers_are_answered() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), [P0]))
    scene.commit5((PID, 1))
    (owed,) = scene.write_markers()
    scene.markers_answered(owed, owed.partitions)
    assert scene.written == [
        txn(S.PREPARE_COMMIT, (PID, 2), last_epoch=1),
        txn(S.COMPLETE_COMMIT, (PID, 2), last_epoch=1),
    ]


def test_a_waiting_end_gets_not_coordinator_when_the_coordinator_unloads() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), [P0]))
    waiting = scene.commit5((PID, 1))
    (reply,) = scene.core.unload(E.NOT_COORDINATOR)
    assert reply.token is waiting
    assert scene.core.unload(E.NOT_COORDINATOR) == []


# In Starlight for Kafka, an entry whose record could not be written stayed in the state that it was about to enter. All
# later requests received CONCURRENT_TRANSACTIONS.
@pytest.mark.known_bug(45, "Starlight for Kafka 40")
def test_a_decision_that_could_not_be_recorded_does_not_block_later_requests() -> None:
    scene = given(txn(S.EMPTY, (PID, 1)))
    scene.refuse_appends = E.NOT_COORDINATOR
    with refused(E.NOT_COORDINATOR):
        scene.add5((PID, 1), P0)
    scene.refuse_appends = None
    scene.add5((PID, 1), P0)
    scene.refuse_appends = E.NOT_COORDINATOR
    with refused(E.NOT_COORDINATOR):
        scene.commit5((PID, 1))
    scene.refuse_appends = None
    reply = scene.commit5((PID, 1))
    scene.refuse_appends = E.NOT_COORDINATOR
    scene.write_markers()
    scene.refuse_appends = None
    scene.advance(1_000)
    scene.write_markers()
    assert reply.pair == (PID, 2)
    assert scene.init() == (PID, 3)


# Kafka treated a partition without a leader as deleted. The transaction completed without a marker in that partition,
# so the next transaction included the partition's records.
@pytest.mark.known_bug(52, "KAFKA-20734")
@pytest.mark.parametrize("committed", [True, False])
def test_without_its_leader_a_partition_keeps_the_transaction_waiting(committed: bool) -> None:
    scene = given(txn(S.ONGOING, (PID, 1), [P0, P1]))
    reply = scene.end((PID, 1), committed=committed, version=5)
    for _ in range(10):
        scene.write_markers(only=[P0])
        scene.advance(1_000)
    assert scene.state == (S.PREPARE_COMMIT if committed else S.PREPARE_ABORT, PID, 2)
    with refused(E.CONCURRENT_TRANSACTIONS):
        scene.add5((PID, 2), P1)
    (owed,) = scene.write_markers()
    assert owed.partitions == {P1}
    assert reply.pair == (PID, 2)
    assert scene.state == (S.COMPLETE_COMMIT if committed else S.COMPLETE_ABORT, PID, 2)
