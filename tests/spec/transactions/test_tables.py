"""Tests that the coordinator's tables agree with docs/spec/transactions.md#s2 and #s3 and have a row for every
state."""

import pytest

from odradek.broker.transactions.tables import (
    ADD_PARTITIONS,
    COMPLETED,
    END_TXN,
    EXPIRABLE,
    INIT_PRODUCER_ID,
    INIT_PRODUCER_ID_KEEPING,
    INIT_PRODUCER_ID_TWO_PHASE,
    KAFKA_NAMES,
    KEPT,
    NEXT,
    PREPARED,
    ROWS,
    VERIFY_PARTITIONS,
    Claim,
    Grid,
    Row,
    TxnState,
    TxnVerdict,
)
from odradek.protocol.errors import ErrorCode

S = TxnState
GRIDS = [
    INIT_PRODUCER_ID,
    INIT_PRODUCER_ID_TWO_PHASE,
    INIT_PRODUCER_ID_KEEPING,
    ADD_PARTITIONS,
    VERIFY_PARTITIONS,
    *END_TXN.values(),
]
LEADS_TO: dict[TxnVerdict, Row] = {
    TxnVerdict.BUMP: S.EMPTY,
    TxnVerdict.FENCE: S.PREPARE_ABORT,
    TxnVerdict.KEEP: KEPT,
    TxnVerdict.ADD: S.ONGOING,
    TxnVerdict.COMMIT: S.PREPARE_COMMIT,
    TxnVerdict.ABORT: S.PREPARE_ABORT,
}


def test_states_have_kafkas_numbers_and_names() -> None:
    assert {state.value: name for state, name in KAFKA_NAMES.items()} == {
        0: "Empty",
        1: "Ongoing",
        2: "PrepareCommit",
        3: "PrepareAbort",
        4: "CompleteCommit",
        5: "CompleteAbort",
        6: "Dead",
        7: "PrepareEpochFence",
    }


def test_every_state_has_its_successors() -> None:
    assert NEXT.keys() == set(TxnState) | {KEPT}


@pytest.mark.parametrize("grid", GRIDS)
def test_every_grid_has_a_row_for_every_state_that_can_be_met(grid: Grid) -> None:
    assert grid.keys() == ROWS


@pytest.mark.parametrize("grid", GRIDS)
def test_every_verdict_leads_to_an_allowed_next_state(
    grid: Grid,
) -> None:
    for state, row in grid.items():
        for cell in row.values():
            if isinstance(cell, TxnVerdict) and cell in LEADS_TO:
                assert LEADS_TO[cell] in NEXT[state], (state, cell)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_every_request_of_a_decided_transaction_is_refused(grid: Grid, state: TxnState) -> None:
    assert all(isinstance(cell, ErrorCode) for cell in grid[state].values())


def test_keeping_differs_only_for_open_transactions() -> None:
    differs = {row for row in ROWS if INIT_PRODUCER_ID_KEEPING[row] != INIT_PRODUCER_ID[row]}
    assert differs == {S.ONGOING, KEPT}


@pytest.mark.parametrize("grid", [ADD_PARTITIONS, VERIFY_PARTITIONS])
def test_a_kept_transaction_accepts_no_partitions(grid: Grid) -> None:
    assert all(isinstance(cell, ErrorCode) for cell in grid[KEPT].values())


@pytest.mark.parametrize(("committed", "version"), list(END_TXN))
def test_a_kept_transaction_is_ended_only_by_its_current_producer_id_and_epoch(committed: bool, version: int) -> None:
    decides = {claim for claim, cell in END_TXN[committed, version][KEPT].items() if isinstance(cell, TxnVerdict)}
    assert decides == ({Claim.CURRENT} if version == 2 else set())


def test_a_decided_transaction_can_only_be_completed() -> None:
    assert {state: NEXT[state] - {state} for state in PREPARED} == {
        state: {completed} for state, completed in COMPLETED.items()
    }


def test_only_ids_without_a_transaction_may_be_forgotten() -> None:
    assert {state for state in TxnState if S.DEAD in NEXT[state]} == EXPIRABLE
