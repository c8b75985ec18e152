"""Tests KIP-939 when the log or the allocation of producer ids fails, after feature levels have changed, and after a
topic has been deleted.

Rules: docs/spec/transactions.md#s3.
"""

from dataclasses import replace

import pytest

from odradek.broker.transactions.entry import Txn
from tests.support.kept_transactions import ALLOWED, FIRST, PID, kept, opened, two_phase
from tests.support.transaction_scene import (
    MAX,
    NEW_PID,
    NOW_MS,
    P0,
    TIMEOUT_MS,
    E,
    S,
    given,
    refused,
    txn,
)

LAST = MAX - 1


@pytest.mark.parametrize("record", [opened(), kept()], ids=["open", "kept"])
def test_a_recovery_that_cannot_be_recorded_has_not_happened(record: Txn) -> None:
    scene = two_phase(record)
    owner = scene.txn.client_pair
    scene.refuse_appends = E.NOT_COORDINATOR
    with refused(E.NOT_COORDINATOR):
        scene.keep()
    scene.refuse_appends = None
    assert scene.txn.client_pair == owner
    assert owner[1] is not None
    assert scene.commit5((owner[0], owner[1])).is_parked


@pytest.mark.parametrize(
    "record", [opened((PID, LAST)), kept((PID, LAST), by=(73, MAX))], ids=["first (#s3-5, K1)", "further (#s3-5, K2)"]
)
def test_without_an_available_producer_id_no_transaction_is_kept(record: Txn) -> None:
    scene = two_phase(record)
    scene.has_producer_ids = False
    with refused(E.COORDINATOR_LOAD_IN_PROGRESS):
        scene.keep()
    assert scene.written == []
    scene.has_producer_ids = True
    assert scene.keep() == ((NEW_PID, 0), (PID, LAST))


def test_without_an_available_producer_id_no_transaction_is_decided() -> None:
    scene = two_phase(kept((PID, 10), by=(73, LAST)))
    scene.has_producer_ids = False
    with refused(E.COORDINATOR_LOAD_IN_PROGRESS):
        scene.commit5((73, LAST))
    assert scene.written == []
    scene.has_producer_ids = True
    commit = scene.commit5((73, LAST))
    scene.write_markers()
    assert commit.pair == (NEW_PID, 0)


@pytest.mark.parametrize("level", [0, 1])
def test_below_level_2_nothing_can_be_kept(level: int) -> None:
    scene = given(opened(timeout_ms=TIMEOUT_MS), transaction_version=level, config=ALLOWED)
    with refused(E.UNSUPPORTED_VERSION):
        scene.keep(timeout_ms=0)
    assert scene.written == []


@pytest.mark.parametrize("level", [0, 1])
def test_a_kept_transaction_keeps_its_owner_over_a_lowered_level_and_a_restart(level: int) -> None:
    scene = two_phase(kept((PID, LAST), by=(73, 5)))
    scene.transaction_version = level
    scene.delete_topic("refunds")
    after = scene.restarted()
    commit = after.commit5((73, 5))
    again = after.restarted()
    again.write_markers()
    assert again.state == (S.COMPLETE_COMMIT, 73, 6)
    assert commit.is_parked


@pytest.mark.parametrize("level", [0, 1])
def test_a_kept_transaction_is_aborted_for_a_new_owner_at_a_lowered_level(level: int) -> None:
    scene = two_phase(kept((PID, LAST), by=(73, 5)))
    scene.transaction_version = level
    with refused(E.CONCURRENT_TRANSACTIONS):
        scene.init()
    scene.write_markers()
    assert scene.state == (S.COMPLETE_ABORT, 73, 6)


def test_a_topic_that_is_deleted_leaves_a_kept_transaction_and_its_owner_stays() -> None:
    scene = two_phase(replace(kept(), partitions=frozenset({P0, ("refunds", 0)})))
    scene.delete_topic("refunds")
    assert scene.txn.partitions == {P0}
    assert scene.txn.client_pair == FIRST


def test_open_and_kept_transactions_are_counted() -> None:
    scene = two_phase(
        replace(opened(), transactional_id="open", started_ms=NOW_MS - 5_000),
        replace(kept(), transactional_id="kept", started_ms=NOW_MS - 7_000),
        txn(S.PREPARE_COMMIT, transactional_id="decided", started_ms=NOW_MS - 9_000),
    )
    assert scene.core.kept_count == 1
    assert scene.core.open_time_max_ms(NOW_MS) == 7_000
    assert two_phase().core.open_time_max_ms(NOW_MS) == 0
