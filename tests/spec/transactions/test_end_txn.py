"""Tests EndTxn. `commit5` sends EndTxn version 5 (KIP-890), and `commit4` sends EndTxn like older clients.

Rules: docs/spec/transactions.md#s2-5; scenarios 35 to 52: #s8-3.
"""

import pytest

from odradek.broker.transactions.tables import END_TXN, TxnState
from odradek.broker.transactions.turn import PendingMarkers
from tests.support.transaction_scene import MAX, NEW_PID, NOW_MS, P0, P1, PID, E, S, Scene, given, refused, txn

WAIT, FENCED, WRONG = E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED, E.INVALID_TXN_STATE
UNMAPPED = E.INVALID_PRODUCER_ID_MAPPING
LAST = MAX - 1
KEPT = (-1, -1)  # the answer to a producer that keeps its producer id and epoch


def overflowed(*, complete: bool = True) -> Scene:
    """Returns the scene after the transaction of (7, 32766) has been committed."""
    scene = given(txn(S.ONGOING, (PID, LAST)))
    scene.commit5((PID, LAST))
    if complete:
        scene.write_markers()
    return scene


def test_the_decision_is_recorded_then_its_markers_are_asked_for_then_the_end_is_recorded() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), [P0, P1]))
    scene.advance(30)
    reply = scene.commit5((PID, 1))
    assert scene.written == [
        txn(S.PREPARE_COMMIT, (PID, 2), [P0, P1], last_epoch=1, started_ms=NOW_MS, updated_ms=NOW_MS + 30)
    ]
    assert scene.owed == [PendingMarkers("pay", PID, 2, True, 2, 4, frozenset({P0, P1}), must_sync=False)]
    assert reply.is_parked
    scene.advance(5)
    scene.write_markers()
    assert scene.last == txn(S.COMPLETE_COMMIT, (PID, 2), last_epoch=1, started_ms=NOW_MS, updated_ms=NOW_MS + 35)
    assert reply.pair == (PID, 2)


def test_scenario_035_at_version_0_a_commit_keeps_the_epoch_and_is_answered_again_when_it_is_repeated() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), version=0), transaction_version=0)
    reply = scene.commit4((PID, 1))
    (owed,) = scene.write_markers()
    assert (owed.producer_epoch, owed.is_commit, owed.transaction_version) == (1, True, 0)
    assert reply.pair == KEPT
    assert scene.state == (S.COMPLETE_COMMIT, PID, 1)
    assert scene.commit4((PID, 1)).pair == KEPT
    with refused(WRONG):
        scene.abort4((PID, 1))
    assert len(scene.written) == 2


def test_scenario_036_at_version_2_a_commit_answers_with_the_next_epoch() -> None:
    scene = given(txn(S.ONGOING, (PID, 1)))
    reply = scene.commit5((PID, 1))
    (owed,) = scene.write_markers()
    assert (owed.producer_epoch, owed.transaction_version) == (2, 2)
    assert reply.pair == (PID, 2)
    assert scene.state == (S.COMPLETE_COMMIT, PID, 2)


@pytest.mark.parametrize("pair", [(PID, 1), (PID, 2), (PID, 0), (9, 9)])
def test_scenario_037_every_request_waits_until_the_markers_are_written(pair: tuple[int, int]) -> None:
    scene = given(txn(S.ONGOING, (PID, 1)))
    scene.commit5((PID, 1))
    with refused(WAIT):
        scene.commit5(pair)
    with refused(WAIT):
        scene.abort5(pair)


def test_scenario_037_a_retry_after_the_markers_gets_the_same_epoch_and_writes_nothing() -> None:
    scene = given(txn(S.ONGOING, (PID, 1)))
    scene.commit5((PID, 1))
    scene.write_markers()
    count = len(scene.written)
    assert scene.commit5((PID, 1)).pair == (PID, 2)
    assert len(scene.written) == count


def test_scenario_038_a_committed_transaction_cannot_be_aborted() -> None:
    scene = given(txn(S.COMPLETE_COMMIT, (PID, 2)))
    with refused(WRONG):
        scene.abort5((PID, 1))


def test_scenario_039_a_producer_that_sent_nothing_may_abort_at_version_2_and_gets_a_new_epoch() -> None:
    scene = given(txn(S.EMPTY, (PID, 1)))
    scene.advance(40)
    reply = scene.abort5((PID, 1))
    assert scene.last == txn(
        S.PREPARE_ABORT, (PID, 2), [], last_epoch=1, started_ms=NOW_MS + 40, updated_ms=NOW_MS + 40
    )
    (owed,) = scene.write_markers()
    assert owed.partitions == frozenset()
    assert reply.pair == (PID, 2)
    assert scene.state == (S.COMPLETE_ABORT, PID, 2)


def test_scenario_039_an_empty_transaction_cannot_be_committed_or_ended_by_an_old_version() -> None:
    scene = given(txn(S.EMPTY, (PID, 1)))
    for ask in (scene.commit5, scene.commit4, scene.abort4):
        with refused(WRONG):
            ask((PID, 1))


def test_scenario_040_an_empty_abort_after_a_commit_bumps_again() -> None:
    scene = given(txn(S.COMPLETE_COMMIT, (PID, 2)))
    reply = scene.abort5((PID, 2))
    scene.write_markers()
    assert reply.pair == (PID, 3)
    assert scene.state == (S.COMPLETE_ABORT, PID, 3)


def test_scenario_041_a_late_end_of_the_first_transaction_leaves_the_second_alone() -> None:
    scene = given(txn(S.ONGOING, (PID, 2)))
    with refused(FENCED):
        scene.commit5((PID, 1))
    with refused(FENCED):
        scene.abort5((PID, 1))
    assert scene.written == []


def test_scenario_042_at_version_1_a_late_abort_ends_the_next_transaction() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), version=0), transaction_version=1)
    scene.abort4((PID, 1))
    scene.write_markers()
    assert scene.state == (S.COMPLETE_ABORT, PID, 1)


def test_scenario_043_the_last_epoch_commits_into_a_new_producer_id() -> None:
    scene = given(txn(S.ONGOING, (PID, LAST)))
    reply = scene.commit5((PID, LAST))
    assert scene.last == txn(S.PREPARE_COMMIT, (PID, MAX), [P0], following=NEW_PID, following_epoch=0, last_epoch=LAST)
    (owed,) = scene.write_markers()
    assert (owed.producer_id, owed.producer_epoch) == (PID, MAX)
    assert reply.pair == (NEW_PID, 0)
    assert scene.last == txn(S.COMPLETE_COMMIT, (NEW_PID, 0), previous=PID, last_epoch=LAST)


def test_scenario_044_the_retry_of_the_last_epoch_is_recognised_by_the_old_producer_id() -> None:
    scene = overflowed(complete=False)
    with refused(WAIT):
        scene.commit5((PID, LAST))
    scene.write_markers()
    assert scene.commit5((PID, LAST)).pair == (NEW_PID, 0)
    with refused(WRONG):
        scene.abort5((PID, LAST))


def test_scenario_045_a_late_retry_never_commits_the_new_producer_ids_transaction() -> None:
    scene = overflowed()
    scene.add5((NEW_PID, 0), P1)
    count = len(scene.written)
    with refused(UNMAPPED):
        scene.commit5((PID, LAST))
    assert len(scene.written) == count
    assert scene.state == (S.ONGOING, NEW_PID, 0)


def test_scenario_046_without_a_producer_id_to_go_on_with_nothing_is_decided() -> None:
    scene = given(txn(S.ONGOING, (PID, LAST)))
    scene.has_producer_ids = False
    with refused(E.COORDINATOR_LOAD_IN_PROGRESS):
        scene.commit5((PID, LAST))
    assert scene.state == (S.ONGOING, PID, LAST)
    scene.has_producer_ids = True
    reply = scene.commit5((PID, LAST))
    scene.write_markers()
    assert reply.pair == (NEW_PID, 0)


def test_scenario_047_an_unknown_and_an_empty_transactional_id_are_refused() -> None:
    with refused(UNMAPPED):
        given().commit5((PID, 1))
    with refused(E.INVALID_REQUEST):
        given().end((PID, 1), committed=True, version=5, transactional_id="")


@pytest.mark.parametrize("code", [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR])
def test_scenario_048_a_decision_that_cannot_be_written_has_no_effect(code: E) -> None:
    scene = given(txn(S.ONGOING, (PID, 1)))
    scene.refuse_appends = code
    with refused(code):
        scene.commit5((PID, 1))
    assert scene.owed == []
    scene.refuse_appends = None
    reply = scene.abort5((PID, 1))
    scene.write_markers()
    assert reply.pair == (PID, 2)


def test_scenario_049_a_decision_whose_answer_was_lost_is_carried_out_after_the_restart_and_cannot_be_reversed() -> (
    None
):
    scene = given(txn(S.ONGOING, (PID, 1)))
    scene.commit5((PID, 1))
    scene = scene.restarted()
    with refused(WAIT):
        scene.commit5((PID, 1))
    scene.write_markers()
    assert scene.commit5((PID, 1)).pair == (PID, 2)
    with refused(WRONG):
        scene.abort5((PID, 1))


def test_scenario_050_an_old_client_of_a_new_cluster_keeps_its_epoch() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), version=0))
    reply = scene.commit4((PID, 1))
    (owed,) = scene.write_markers()
    assert (owed.producer_epoch, owed.transaction_version, reply.pair) == (1, 0, KEPT)
    assert scene.state == (S.COMPLETE_COMMIT, PID, 1)


def test_scenario_050_the_new_end_of_a_transaction_with_explicit_partitions_bumps() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), version=0))
    reply = scene.commit5((PID, 1))
    scene.write_markers()
    assert reply.pair == (PID, 2)


def test_scenario_051_an_upgrade_amid_a_transaction_takes_effect_with_the_next() -> None:
    scene = given(txn(S.EMPTY, (PID, 1), version=0), transaction_version=1)
    scene.add((PID, 1), P0)
    scene.transaction_version = 2
    scene.commit4((PID, 1))
    scene.write_markers()
    assert scene.state == (S.COMPLETE_COMMIT, PID, 1)
    assert scene.init((PID, 1)) == (PID, 2)
    scene.add5((PID, 2), P0)
    reply = scene.commit5((PID, 2))
    scene.write_markers()
    assert reply.pair == (PID, 3)


def test_scenario_052_the_pair_that_was_answered_waits_until_the_end_is_recorded() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), [P0, P1]))
    reply = scene.commit5((PID, 1))
    scene.write_markers(only=[P0])
    assert reply.pair == (PID, 2)
    with refused(WAIT):
        scene.add5((PID, 2), P0)
    scene.advance(100)
    scene.write_markers()
    assert scene.add5((PID, 2), P0) == {P0: E.NONE}


def test_a_commit_that_comes_after_an_abort_by_the_coordinator_is_fenced() -> None:
    scene = given(txn(S.COMPLETE_ABORT, (PID, 2)))
    with refused(FENCED):
        scene.commit5((PID, 1))


def test_a_commit_that_comes_after_an_abort_at_the_last_epoch_is_fenced() -> None:
    scene = given(txn(S.COMPLETE_ABORT, (NEW_PID, 0), previous=PID))
    with refused(FENCED):
        scene.commit5((PID, LAST))
    assert scene.abort5((PID, LAST)).pair == (NEW_PID, 0)


def test_a_replaced_producer_does_not_get_the_response_to_the_commit_of_its_successor() -> None:
    scene = given(txn(S.EMPTY, (PID, 1)))
    scene.init()
    scene.add((PID, 2), P0)
    scene.commit4((PID, 2))
    scene.write_markers()
    assert scene.state == (S.COMPLETE_COMMIT, PID, 2)
    with refused(FENCED):
        scene.commit5((PID, 1))


# Kafka only required EndTxn's epoch to be at least the stored one, so a client could make up a higher epoch.
@pytest.mark.known_bug(16, "KAFKA-9600")
@pytest.mark.parametrize(("committed", "version"), list(END_TXN))
@pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
@pytest.mark.parametrize("epoch", [3, 8, 9, 107])
def test_an_epoch_that_is_neither_the_current_one_nor_that_of_a_retry_is_fenced(
    committed: bool, version: int, state: TxnState, epoch: int
) -> None:
    scene = given(txn(state, (PID, 7)))
    with refused(FENCED):
        scene.end((PID, epoch), committed=committed, version=5 if version == 2 else 4)
    assert scene.state == (state, PID, 7)


@pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
@pytest.mark.parametrize("version", [4, 5])
def test_a_different_producer_id_ends_no_transaction(state: TxnState, version: int) -> None:
    with refused(UNMAPPED):
        given(txn(state, (PID, 7))).end((PID + 1, 7), committed=False, version=version)


def test_at_version_0_the_new_end_is_taken_for_the_old_one_and_nobody_gets_stuck() -> None:
    scene = given(txn(S.EMPTY, (PID, 1), version=0), transaction_version=0)
    scene.add5((PID, 1), P0)
    assert scene.commit5((PID, 1)).is_parked
    scene.write_markers()
    assert scene.state == (S.COMPLETE_COMMIT, PID, 1)
    assert scene.commit5((PID, 1)).pair == KEPT
    assert scene.init() == (PID, 2)


# After the last epoch, Kafka's EndTxn returned the old producer id, and the producer fenced itself.
@pytest.mark.known_bug(5, "apache/kafka 18758")
@pytest.mark.parametrize("committed", [True, False])
def test_the_producer_id_and_epoch_that_an_end_returns_are_valid_afterwards(committed: bool) -> None:
    scene = given(txn(S.ONGOING, (PID, LAST)))
    reply = scene.end((PID, LAST), committed=committed, version=5)
    scene.write_markers()
    assert reply.pair == (NEW_PID, 0)
    assert scene.add5(reply.pair, P0) == {P0: E.NONE}
