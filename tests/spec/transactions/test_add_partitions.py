"""Tests the coordinator's decisions about partitions and offsets that are added to a transaction.

Rules: docs/spec/transactions.md#s2-3, #s2-4; scenarios 20 to 30: #s8-2.
"""

import pytest

from odradek.broker.transactions.tables import TxnState
from tests.support.transaction_scene import NEW_PID, NOW_MS, P0, P1, PID, E, S, given, refused, txn

WAIT, FENCED, UNMAPPED = E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED, E.INVALID_PRODUCER_ID_MAPPING
OFFSETS = ("__consumer_offsets", 12)


def test_the_first_partition_opens_the_transaction_and_starts_its_clock() -> None:
    scene = given(txn(S.EMPTY, (PID, 1), version=0))
    scene.advance(500)
    assert scene.add((PID, 1), P0) == {P0: E.NONE}
    assert scene.written == [
        txn(S.ONGOING, (PID, 1), [P0], started_ms=NOW_MS + 500, updated_ms=NOW_MS + 500, version=0)
    ]


def test_scenario_020_a_partition_that_takes_part_already_is_added_without_a_record() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), [P0]))
    assert scene.add((PID, 1), P0) == {P0: E.NONE}
    assert scene.written == []


def test_scenario_020_a_further_partition_is_recorded_with_the_others_and_keeps_the_start_time() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), [P0]))
    scene.advance(700)
    assert scene.add((PID, 1), P0, P1) == {P0: E.NONE, P1: E.NONE}
    assert scene.written == [txn(S.ONGOING, (PID, 1), [P0, P1], started_ms=NOW_MS, updated_ms=NOW_MS + 700, version=0)]


@pytest.mark.parametrize("epoch", [0, 2])
@pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_scenario_021_any_other_epoch_is_fenced(state: TxnState, epoch: int) -> None:
    scene = given(txn(state, (PID, 1)))
    with refused(FENCED):
        scene.add((PID, epoch), P1)
    assert scene.written == []


@pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_scenario_021_another_producer_id_does_not_belong_to_the_transactional_id(state: TxnState) -> None:
    with refused(UNMAPPED):
        given(txn(state, (PID, 1))).add((PID + 1, 1), P1)


def test_scenario_021_an_unknown_transactional_id_has_no_producer_id() -> None:
    with refused(UNMAPPED):
        given().add((PID, 0), P0)
    with refused(E.INVALID_REQUEST):
        given().add((PID, 0), P0, transactional_id="")


@pytest.mark.parametrize("pair", [(PID, 32_767), (PID, 32_766), (NEW_PID, 0)])
def test_scenario_022_the_next_producer_id_and_epoch_also_wait_for_the_markers(pair: tuple[int, int]) -> None:
    scene = given(txn(S.ONGOING, (PID, 32_766)))
    scene.commit5((PID, 32_766))
    with refused(WAIT):
        scene.add(pair, P1)


def test_scenario_023_at_version_1_a_late_add_of_a_finished_transaction_opens_another_one() -> None:
    scene = given(txn(S.COMPLETE_COMMIT, (PID, 1), version=0), transaction_version=1)
    assert scene.add((PID, 1), P0) == {P0: E.NONE}
    assert scene.state == (S.ONGOING, PID, 1)
    scene.advance(60_001)
    assert scene.time_out() == ["pay"]


def test_scenario_024_at_version_2_a_late_add_of_a_finished_transaction_is_fenced() -> None:
    scene = given(txn(S.COMPLETE_COMMIT, (PID, 2)))
    with refused(FENCED):
        scene.add5((PID, 1), P0)
    assert scene.written == []


def test_scenario_025_each_transaction_of_a_batch_has_its_own_result() -> None:
    scene = given(
        txn(S.EMPTY, (PID, 1), transactional_id="a"),
        txn(S.ONGOING, (PID + 1, 3), transactional_id="b"),
    )
    assert scene.add5((PID, 1), P1, transactional_id="a") == {P1: E.NONE}
    with refused(UNMAPPED):
        scene.add5((PID, 1), P1, transactional_id="nobody")
    assert scene.add5((PID + 1, 3), P1, transactional_id="b") == {P1: E.NONE}


def test_scenario_027_verifying_returns_a_result_for_each_partition_and_writes_nothing() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), [P0]))
    assert scene.verify((PID, 1), P0, P1) == {P0: E.NONE, P1: E.TRANSACTION_ABORTABLE}
    assert scene.written == []


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_scenario_028_verifying_waits_for_markers_at_their_epoch_and_fences_the_one_before(state: TxnState) -> None:
    scene = given(txn(state, (PID, 2), [P0]))
    with refused(WAIT):
        scene.verify((PID, 2), P0)
    with refused(FENCED):
        scene.verify((PID, 1), P0)
    with refused(UNMAPPED):
        scene.verify((PID + 1, 2), P0)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_verifying_without_an_open_transaction_finds_no_partition_in_it(state: TxnState) -> None:
    assert given(txn(state, (PID, 2))).verify((PID, 2), P0) == {P0: E.TRANSACTION_ABORTABLE}


def test_scenario_029_offsets_of_a_group_are_added_as_their_partition() -> None:
    scene = given(txn(S.EMPTY, (PID, 1)))
    assert scene.add((PID, 1), OFFSETS) == {OFFSETS: E.NONE}
    assert scene.txn.partitions == {OFFSETS}


def test_scenario_030_offsets_alone_open_a_transaction_of_version_2() -> None:
    scene = given(txn(S.EMPTY, (PID, 1)))
    assert scene.add5((PID, 1), OFFSETS) == {OFFSETS: E.NONE}
    assert (scene.txn.state, scene.txn.client_version) == (S.ONGOING, 2)


def test_a_partition_that_could_not_be_recorded_does_not_take_part() -> None:
    scene = given(txn(S.ONGOING, (PID, 1), [P0]))
    scene.refuse_appends = E.NOT_COORDINATOR
    with refused(E.NOT_COORDINATOR):
        scene.add5((PID, 1), P1)
    scene.refuse_appends = None
    assert scene.verify((PID, 1), P1) == {P1: E.TRANSACTION_ABORTABLE}
