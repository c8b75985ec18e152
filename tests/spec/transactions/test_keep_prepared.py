"""Tests the coordinator's decisions about two-phase commits (KIP-939).

A producer with Enable2Pc keeps a transaction open until an external coordinator has decided. A recovery keeps the
transaction and receives a new producer id and epoch, which can only be used to end this transaction.

Rules: docs/spec/transactions.md#s3; scenarios 109 to 130: #s8-8.
"""

from dataclasses import replace

import pytest

from odradek.broker.transactions.entry import NEVER_MS, TransactionTombstone, Txn
from odradek.broker.transactions.requests import TransactionFilter
from odradek.broker.transactions.tables import TxnState
from tests.support.kept_transactions import FIRST, OPEN, PID, kept, opened, two_phase
from tests.support.transaction_listing import listed_by
from tests.support.transaction_scene import (
    MAX,
    NEW_PID,
    NOW_MS,
    P0,
    P1,
    TIMEOUT_MS,
    E,
    Pair,
    S,
    given,
    refused,
    txn,
)

DAY_MS = 24 * 60 * 60 * 1000
WAIT, FENCED, WRONG, UNMAPPED = (
    E.CONCURRENT_TRANSACTIONS,
    E.PRODUCER_FENCED,
    E.INVALID_TXN_STATE,
    E.INVALID_PRODUCER_ID_MAPPING,
)
LAST = MAX - 1
NOBODY: Pair = (-1, -1)


def test_scenario_109_without_the_broker_setting_two_phase_commit_is_refused_but_keeping_is_not() -> None:
    scene = given(opened(timeout_ms=TIMEOUT_MS))
    with refused(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
        scene.keep(enable2_pc=True)
    with refused(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
        scene.init(enable2_pc=True)
    assert scene.keep() == (FIRST, OPEN)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_scenario_111_with_two_phase_commit_any_timeout_is_accepted_and_none_applies(timeout_ms: int) -> None:
    scene = two_phase()
    pair = scene.init(timeout_ms=timeout_ms, enable2_pc=True)
    assert scene.txn.timeout_ms == NEVER_MS
    scene.add5(pair)
    for days in range(1, 31):
        scene.advance(DAY_MS)
        assert scene.time_out() == []
        assert scene.core.open_time_max_ms(scene.now_ms) == days * DAY_MS
    assert scene.commit5(pair).is_parked


def test_scenario_112_a_recovering_producer_gets_a_pair_of_its_own_and_commits_what_was_prepared() -> None:
    scene = two_phase(opened())
    assert scene.keep(enable2_pc=True) == (FIRST, OPEN)
    described = scene.describe()
    assert (described.transaction_state, described.producer_id, described.producer_epoch) == ("Ongoing", *OPEN)
    commit = scene.commit5(FIRST)
    (owed,) = scene.write_markers()
    assert (owed.is_commit, owed.producer_id, owed.producer_epoch, owed.partitions) == (True, PID, 11, frozenset({P0}))
    assert commit.pair == (PID, 12)
    assert scene.state == (S.COMPLETE_COMMIT, PID, 12)


def test_scenario_112_a_recovering_producer_can_abort_the_prepared_transaction() -> None:
    scene = two_phase(opened())
    scene.keep(enable2_pc=True)
    abort = scene.abort5(FIRST)
    (owed,) = scene.write_markers()
    assert (owed.is_commit, owed.producer_epoch) == (False, 11)
    assert abort.pair == (PID, 12)
    assert scene.state == (S.COMPLETE_ABORT, PID, 12)


@pytest.mark.parametrize("committed", [True, False])
def test_scenario_113_the_original_epoch_no_longer_ends_a_kept_transaction(committed: bool) -> None:
    scene = two_phase(opened())
    scene.keep()
    with refused(FENCED):
        scene.end(OPEN, committed=committed, version=5)
    assert scene.state == (S.ONGOING, *OPEN)
    assert scene.owed == []


def test_scenario_114_of_two_that_recover_at_once_the_later_one_decides() -> None:
    scene = two_phase(opened())
    assert scene.keep() == ((PID, 11), OPEN)
    assert scene.keep() == ((PID, 12), OPEN)
    with refused(FENCED):
        scene.commit5((PID, 11))
    commit = scene.commit5((PID, 12))
    scene.write_markers()
    assert commit.pair == (PID, 13)


@pytest.mark.parametrize("committed", [True, False])
def test_scenario_115_a_commit_that_arrives_twice_never_touches_the_next_transaction(committed: bool) -> None:
    scene = two_phase(opened((PID, 100)))
    assert scene.keep() == ((PID, 101), (PID, 100))
    scene.commit5((PID, 101))
    scene.write_markers()
    scene.add5((PID, 102), P1)
    before = scene.txn
    with refused(FENCED):
        scene.end((PID, 101), committed=committed, version=5)
    assert scene.txn == before


def test_scenario_115_a_commit_that_was_delayed_by_a_whole_recovery_is_fenced() -> None:
    scene = two_phase(opened((PID, 100)))
    scene.keep()
    scene.keep()
    scene.commit5((PID, 102))
    scene.write_markers()
    with refused(FENCED):
        scene.commit5((PID, 101))
    scene.add5((PID, 103), P1)
    for delayed in (100, 101, 102):
        with refused(FENCED):
            scene.commit5((PID, delayed))
    assert scene.state == (S.ONGOING, PID, 103)


def test_scenario_117_a_commit_whose_answer_got_lost_waits_and_is_answered_the_same_again() -> None:
    scene = two_phase(kept((PID, LAST), by=(73, MAX)))
    commit = scene.commit5((73, MAX))
    with refused(WAIT):
        scene.commit5((73, MAX))
    scene.write_markers()
    assert commit.pair == (NEW_PID, 0)
    assert scene.commit5((73, MAX)).pair == (NEW_PID, 0)
    with refused(WRONG):
        scene.abort5((73, MAX))


def test_scenario_118_after_a_failover_the_next_recovery_goes_on_counting() -> None:
    scene = two_phase(kept((PID, LAST), by=(73, 5))).restarted()
    assert scene.keep() == ((73, 6), (PID, LAST))
    commit = scene.commit5((73, 6))
    (owed,) = scene.write_markers()
    assert (owed.producer_id, owed.producer_epoch) == (PID, MAX)
    assert commit.pair == (73, 7)


def test_scenario_118_the_pair_that_was_given_before_the_failover_still_ends_it() -> None:
    scene = two_phase(kept((PID, LAST), by=(73, 5))).restarted()
    scene.commit5((73, 5))
    scene.write_markers()
    assert scene.state == (S.COMPLETE_COMMIT, 73, 6)


def test_scenario_119_a_decision_is_carried_out_after_a_crash_and_its_retry_is_known() -> None:
    scene = two_phase(kept((PID, LAST), by=(73, MAX)))
    scene.commit5((73, MAX))
    assert (scene.txn.state, scene.txn.producer_id, scene.txn.producer_epoch) == (S.PREPARE_COMMIT, PID, MAX)
    assert (scene.txn.previous_producer_id, scene.txn.next_producer_id, scene.txn.next_producer_epoch) == (
        73,
        NEW_PID,
        0,
    )
    after = scene.restarted()
    (owed,) = after.write_markers()
    assert (owed.producer_id, owed.producer_epoch, owed.is_commit) == (PID, MAX, True)
    assert after.state == (S.COMPLETE_COMMIT, NEW_PID, 0)
    assert after.commit5((73, MAX)).pair == (NEW_PID, 0)
    assert after.restarted().commit5((73, MAX)).pair == (NEW_PID, 0)


def test_scenario_120_a_take_over_without_keeping_aborts_the_transaction_and_fences_all_owners() -> None:
    scene = two_phase(kept())
    with refused(WAIT):
        scene.init()
    assert (scene.txn.next_producer_id, scene.txn.next_producer_epoch) == (PID, 12)
    (owed,) = scene.write_markers()
    assert (owed.is_commit, owed.producer_id, owed.producer_epoch) == (False, PID, 11)
    assert scene.init() == (PID, 13)
    for before in (OPEN, FIRST):
        with refused(FENCED):
            scene.commit5(before)


@pytest.mark.parametrize("pair", [FIRST, (PID, 9)], ids=["of the owner", "of nobody any more"])
def test_scenario_121_no_partition_can_be_added_to_a_kept_transaction(pair: Pair) -> None:
    scene = two_phase(kept())
    code = WRONG if pair == FIRST else FENCED
    for request in (scene.add, scene.add5, scene.verify):
        with refused(code):
            request(pair, P1)
    assert scene.txn.partitions == {P0}


def test_scenario_121_the_original_producer_cannot_add_partitions_to_a_kept_transaction() -> None:
    scene = two_phase(kept())
    with refused(FENCED):
        scene.verify(OPEN, P0)
    with refused(FENCED):
        scene.add5(OPEN, P1)
    with refused(UNMAPPED):
        scene.add5((73, 0), P1)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_scenario_122_keeping_without_an_open_transaction_is_an_ordinary_bump(state: TxnState) -> None:
    scene = two_phase(txn(state, OPEN))
    assert scene.keep(enable2_pc=True) == (FIRST, NOBODY)
    assert scene.state == (S.EMPTY, *FIRST)
    assert scene.txn.timeout_ms == NEVER_MS


def test_scenario_122_keeping_for_a_new_id_assigns_a_producer_id() -> None:
    scene = two_phase()
    assert scene.keep(enable2_pc=True) == ((NEW_PID, 0), NOBODY)


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_scenario_123_while_a_decision_is_carried_out_the_recovery_waits(state: TxnState) -> None:
    scene = two_phase(txn(state, FIRST))
    with refused(WAIT):
        scene.keep()
    scene.write_markers()
    assert scene.keep() == ((PID, 12), NOBODY)


def test_scenario_124_keeping_without_two_phase_commit_gives_a_transaction_no_more_time() -> None:
    scene = two_phase(opened(timeout_ms=TIMEOUT_MS))
    scene.advance(TIMEOUT_MS)
    scene.keep()
    assert scene.txn.timeout_ms == TIMEOUT_MS
    scene.advance(1)
    assert scene.time_out() == ["pay"]
    scene.write_markers()
    assert scene.abort5(FIRST).pair == (PID, 12)
    assert scene.init((PID, 12), enable2_pc=True) == (PID, 13)
    assert scene.txn.timeout_ms == NEVER_MS


def test_scenario_124_a_commit_that_comes_after_the_abort_never_happens() -> None:
    # The rule book requires INVALID_TXN_STATE (#s3-7). Here, a commit that loses the race against the timeout receives
    # the same error as a commit of a transaction that no recovery has kept.
    scene = two_phase(kept(timeout_ms=TIMEOUT_MS))
    scene.advance(TIMEOUT_MS + 1)
    scene.time_out()
    scene.write_markers()
    with refused(FENCED):
        scene.commit5(FIRST)
    assert scene.state == (S.COMPLETE_ABORT, PID, 12)


@pytest.mark.parametrize("record", [opened(), kept()], ids=["open", "kept"])
def test_scenario_125_force_termination_aborts_fences_the_owner_and_takes_two_phase_commit_away(record: Txn) -> None:
    scene = two_phase(record)
    with refused(WAIT):
        scene.init(timeout_ms=30_000)
    scene.write_markers()
    assert scene.state[0] is S.COMPLETE_ABORT
    scene.init(timeout_ms=30_000)
    for owner in (OPEN, FIRST):
        with refused(FENCED):
            scene.commit5(owner)
    assert scene.txn.timeout_ms == 30_000


def test_scenario_127_a_record_without_the_owners_epoch_is_ended_with_the_original_epoch() -> None:
    # A reader that skips tag 3 of the record does not find the next owner's epoch, so it also ignores the owner's
    # producer id.
    half_read = replace(kept(by=(73, 5)), next_producer_epoch=None)
    scene = two_phase(half_read)
    assert scene.txn.next_producer_id is None
    commit = scene.commit5(OPEN)
    (owed,) = scene.write_markers()
    assert (owed.producer_id, owed.producer_epoch) == FIRST
    assert commit.pair == FIRST


def test_scenario_128_old_transactions_are_found_by_their_duration() -> None:
    young = replace(opened(), transactional_id="young", started_ms=NOW_MS - 60_000)
    old = replace(kept(), transactional_id="old", started_ms=NOW_MS - 60_001)
    idle = txn(S.EMPTY, transactional_id="idle")
    scene = two_phase(young, old, idle)
    open_and_old = TransactionFilter(frozenset({S.ONGOING}), older_than_ms=60_000)
    assert [each.transactional_id for each in listed_by(scene.core, open_and_old, NOW_MS)] == ["old"]
    found = listed_by(scene.core, TransactionFilter(older_than_ms=60_000), NOW_MS)
    assert {each.transactional_id for each in found} == {"old", "idle"}


def test_scenario_129_an_unused_id_is_forgotten_although_its_producer_had_two_phase_commit() -> None:
    scene = two_phase(txn(S.EMPTY, OPEN, timeout_ms=NEVER_MS))
    scene.advance(7 * DAY_MS)
    scene.expire()
    assert scene.written == [TransactionTombstone("pay")]


@pytest.mark.parametrize("record", [opened(), kept()], ids=["open", "kept"])
def test_scenario_129_an_open_transaction_is_not_forgotten(record: Txn) -> None:
    scene = two_phase(record)
    scene.advance(30 * DAY_MS)
    scene.expire()
    assert scene.time_out() == []
    assert scene.written == []


def test_scenario_130_forty_thousand_recoveries_leave_the_transaction_as_it_was_and_the_last_commits_it() -> None:
    scene = two_phase(opened())
    owners = set()
    for _ in range(40_000):
        owner, ongoing = scene.keep()
        assert ongoing == OPEN
        owners.add(owner)
    assert len(owners) == 40_000  # No pair of producer id and epoch is assigned twice.
    assert owner == (NEW_PID, 40_000 - (MAX - OPEN[1]) - 1)
    commit = scene.commit5(owner)
    (owed,) = scene.write_markers()
    assert (owed.producer_id, owed.producer_epoch) == FIRST
    assert commit.pair == (NEW_PID, owner[1] + 1)


# --- The checks of the producer id and epoch in a request.


@pytest.mark.parametrize("record", [opened(), kept()], ids=["open", "kept"])
def test_a_recovery_with_the_current_producer_id_and_epoch_succeeds(record: Txn) -> None:
    scene = two_phase(record)
    pair, epoch = scene.txn.client_pair
    assert epoch is not None
    assert scene.keep((pair, epoch)) == ((PID, epoch + 1), OPEN)


@pytest.mark.parametrize("stale", [OPEN, (PID, 9), (PID, 12), (73, 0)])
def test_any_other_producer_id_and_epoch_neither_keeps_nor_aborts_a_kept_transaction(stale: Pair) -> None:
    scene = two_phase(kept())
    with refused(FENCED):
        scene.keep(stale)
    with refused(FENCED):
        scene.init(stale)
    assert scene.written == []


def test_a_zombie_does_not_take_an_open_transaction_over() -> None:
    scene = two_phase(opened())
    with refused(FENCED):
        scene.keep((PID, 9))
    assert scene.written == []


def test_a_zombie_does_not_abort_a_transaction_that_is_decided_outside() -> None:
    scene = two_phase(opened())
    with refused(FENCED):
        scene.init((PID, 9))
    assert scene.written == []
    with refused(WAIT):  # The request comes from a new owner, which sends no producer id and epoch.
        scene.init()


def test_an_owner_that_does_not_keep_aborts_and_gets_the_epoch_of_the_abort() -> None:
    scene = two_phase(kept())
    with refused(WAIT):
        scene.init(FIRST)
    scene.write_markers()
    assert scene.init(FIRST) == (PID, 12)


@pytest.mark.parametrize(
    ("pair", "code"), [(FIRST, WRONG), (OPEN, FENCED), ((73, 0), UNMAPPED)], ids=["owner", "before", "another"]
)
def test_an_end_of_the_old_protocol_decides_nothing_because_its_response_has_no_epoch(pair: Pair, code: E) -> None:
    scene = two_phase(kept())
    for end in (scene.commit4, scene.abort4):
        with refused(code):
            end(pair)
    assert scene.written == []


def test_an_end_with_the_original_producer_id_is_unmapped_if_the_owner_has_another() -> None:
    scene = two_phase(kept((PID, LAST), by=(73, 0)))
    with refused(UNMAPPED):
        scene.commit5((PID, LAST))
    assert scene.written == []
