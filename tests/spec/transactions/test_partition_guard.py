"""Tests a partition's verification guard. The guard accepts transactional data only if the coordinator has confirmed
that the partition is part of the transaction.

Rules: docs/spec/transactions.md#s4-3, #s4-4, #s4-6; scenarios: #s8-5. These tests use only the log.
test_partition_produce.py tests the requests to the coordinator.
"""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.storage.verification import NO_GUARD
from tests.support.fake_disk import Fault
from tests.support.log_builder import LogOnDisk, refused

E = ErrorCode
PID = 7
DAY_MS = 24 * 60 * 60 * 1000


def test_a_batch_without_its_guard_is_refused_and_changes_nothing() -> None:
    given = LogOnDisk()
    with refused(E.INVALID_TXN_STATE):
        given.append(PID, transactional=True, guard=NO_GUARD)
    assert given.log.log_end_offset == 0
    assert given.log.producer(PID) is None


def test_the_first_batch_needs_the_guard_and_further_ones_the_open_transaction() -> None:
    given = LogOnDisk()
    given.append(PID, transactional=True, guard=given.verify(PID))
    assert given.verify(PID, sequence=1) is NO_GUARD, "nobody needs to be asked"
    assert given.append(PID, sequence=1, transactional=True, guard=NO_GUARD).base_offset == 1


def test_all_verifications_share_a_guard_while_it_exists() -> None:
    given = LogOnDisk()
    assert given.verify(PID) is given.verify(PID, sequence=5)


def test_a_guard_is_valid_for_one_transaction_only() -> None:
    given = LogOnDisk()
    guard = given.verify(PID, supports_epoch_bump=False)
    given.append(PID, transactional=True, guard=guard)
    given.end(PID, commit=True)
    with refused(E.INVALID_TXN_STATE):
        given.append(PID, sequence=1, transactional=True, guard=guard)
    assert given.verify(PID, sequence=1, supports_epoch_bump=False) is not guard


def test_scenario_075_a_batch_verified_for_an_aborted_transaction_stays_out_of_the_next() -> None:
    given = LogOnDisk()
    guard = given.verify(PID, supports_epoch_bump=False)
    given.end(PID, commit=False)
    given.verify(PID, supports_epoch_bump=False)  # The next transaction is verified separately.
    with refused(E.INVALID_TXN_STATE):
        given.append(PID, transactional=True, guard=guard)


@pytest.mark.parametrize("supports_epoch_bump", [True, False])
def test_scenario_076_a_sequence_behind_one_that_was_refused_waits_until_that_one_is_written(
    supports_epoch_bump: bool,
) -> None:
    given = LogOnDisk()
    given.append(PID, sequence=0, records=2)
    guard = given.verify(PID, sequence=2, supports_epoch_bump=supports_epoch_bump)
    assert given.verify(PID, sequence=7, supports_epoch_bump=supports_epoch_bump) is guard
    with refused(E.OUT_OF_ORDER_SEQUENCE_NUMBER):
        given.append(PID, sequence=7, transactional=True, guard=guard)
    given.append(PID, sequence=2, records=5, transactional=True, guard=guard)
    assert given.append(PID, sequence=7, transactional=True, guard=NO_GUARD).base_offset == 7


def test_scenario_076_a_later_sequence_waits_even_without_producer_state() -> None:
    given = LogOnDisk()
    given.verify(PID, sequence=0, supports_epoch_bump=False)
    guard = given.verify(PID, sequence=5, supports_epoch_bump=False)
    with refused(E.OUT_OF_ORDER_SEQUENCE_NUMBER):
        given.append(PID, sequence=5, transactional=True, guard=guard)


def test_scenario_076_a_lower_sequence_that_asks_later_lowers_the_bound() -> None:
    given = LogOnDisk()
    guard = given.verify(PID, sequence=5, supports_epoch_bump=False)
    given.verify(PID, sequence=3, supports_epoch_bump=False)
    with refused(E.OUT_OF_ORDER_SEQUENCE_NUMBER):
        given.append(PID, sequence=5, transactional=True, guard=guard)
    given.append(PID, sequence=3, transactional=True, guard=guard)


def test_scenario_076_verification_switched_off_meanwhile_does_not_lift_the_bound() -> None:
    given = LogOnDisk()
    given.verify(PID, sequence=0, supports_epoch_bump=False)
    with refused(E.OUT_OF_ORDER_SEQUENCE_NUMBER):
        given.append(PID, sequence=5, transactional=True, guard=None)


def test_a_newer_epoch_asks_with_its_own_sequence_and_an_older_one_changes_nothing() -> None:
    given = LogOnDisk()
    guard = given.verify(PID, epoch=1, sequence=0, supports_epoch_bump=False)
    assert given.verify(PID, epoch=2, sequence=4, supports_epoch_bump=False) is guard
    assert given.verify(PID, epoch=1, sequence=0, supports_epoch_bump=False) is guard
    assert given.append(PID, epoch=2, sequence=4, transactional=True, guard=guard).base_offset == 0


def test_a_fenced_epoch_is_not_verified() -> None:
    given = LogOnDisk()
    given.end(PID, commit=True, epoch=2, transaction_version=2)
    with refused(E.INVALID_PRODUCER_EPOCH):
        given.verify(PID, epoch=1)


def test_an_older_epoch_gets_invalid_producer_epoch_instead_of_an_invalid_guard() -> None:
    given = LogOnDisk()
    guard = given.verify(PID, epoch=1)
    given.end(PID, commit=True, epoch=2, transaction_version=2)
    with refused(E.INVALID_PRODUCER_EPOCH):
        given.append(PID, epoch=1, transactional=True, guard=guard)


def test_scenario_077_a_producer_that_is_added_by_produce_begins_with_sequence_zero() -> None:
    given = LogOnDisk()
    guard = given.verify(PID, sequence=3)
    with refused(E.OUT_OF_ORDER_SEQUENCE_NUMBER):
        given.append(PID, sequence=3, transactional=True, guard=guard)


def test_scenario_077_an_idempotent_producer_without_state_may_begin_anywhere() -> None:
    assert LogOnDisk().append(PID, sequence=3).base_offset == 0


def test_scenario_084_the_marker_of_the_last_transaction_leaves_the_guard_of_the_next_at_version_2() -> None:
    given = LogOnDisk()
    given.append(PID, epoch=1, transactional=True)
    guard = given.verify(PID, epoch=2)
    given.end(PID, commit=True, epoch=2, transaction_version=2)
    assert given.append(PID, epoch=2, transactional=True, guard=guard).base_offset == 2


def test_scenario_084_before_version_2_a_late_marker_removes_the_guard_and_verification_is_repeated() -> None:
    given = LogOnDisk()
    guard = given.verify(PID, supports_epoch_bump=False)
    given.end(PID, commit=True)
    with refused(E.INVALID_TXN_STATE):
        given.append(PID, transactional=True, guard=guard)
    given.append(PID, transactional=True, guard=given.verify(PID, supports_epoch_bump=False))


@pytest.mark.parametrize("transaction_version", [0, 1])
def test_a_marker_below_version_2_also_removes_the_guard_of_a_batch_that_produce_adds(
    transaction_version: int,
) -> None:
    """Checks that a marker also removes the guard of a batch whose partition Produce itself adds to the transaction.
    Below version 2, the marker has the epoch of the transaction that it ends, so the batch would otherwise open that
    transaction again."""
    given = LogOnDisk()
    guard = given.verify(PID, epoch=1)
    given.end(PID, commit=False, epoch=1, transaction_version=transaction_version)
    with refused(E.INVALID_TXN_STATE):
        given.append(PID, epoch=1, transactional=True, guard=guard)
    assert given.log.last_stable_offset == given.log.high_watermark


def test_a_marker_of_another_epoch_removes_the_guard_at_version_2_too() -> None:
    given = LogOnDisk()
    guard = given.verify(PID, epoch=2)
    given.end(PID, commit=False, epoch=3, transaction_version=2)
    with refused(E.INVALID_PRODUCER_EPOCH):
        given.append(PID, epoch=2, transactional=True, guard=guard)
    assert given.verify(PID, epoch=3) is not guard


def test_a_batch_outside_transactions_leaves_the_guard() -> None:
    given = LogOnDisk()
    guard = given.verify(PID, sequence=1, supports_epoch_bump=False)
    given.append(PID, sequence=0)
    assert given.append(PID, sequence=1, transactional=True, guard=guard).base_offset == 1


def test_a_batch_that_could_not_be_written_needs_its_guard_again() -> None:
    given = LogOnDisk()
    guard = given.verify(PID, sequence=0)
    given.stage(PID, transactional=True, guard=guard)
    given.disk.fail(1, Fault.EIO)
    with refused(E.KAFKA_STORAGE_ERROR):
        given.log.write_staged()
    assert given.verify(PID, sequence=4) is guard
    with refused(E.OUT_OF_ORDER_SEQUENCE_NUMBER):
        given.append(PID, sequence=4, transactional=True, guard=guard)
    given.append(PID, sequence=0, transactional=True, guard=guard)


def test_a_marker_that_could_not_be_written_removes_no_guard() -> None:
    given = LogOnDisk()
    guard = given.verify(PID, supports_epoch_bump=False)
    given.end(PID, commit=True, write=False)
    given.disk.fail(1, Fault.EIO)
    with refused(E.KAFKA_STORAGE_ERROR):
        given.log.write_staged()
    given.append(PID, transactional=True, guard=guard)


def test_the_brokers_own_offsets_need_a_guard_too_but_have_no_sequence() -> None:
    given = LogOnDisk()
    guard = given.verify(PID, sequence=None)
    assert given.append(PID, sequence=0, transactional=True, guard=guard).base_offset == 0


def test_a_guard_is_forgotten_when_nobody_used_it_for_a_day() -> None:
    given = LogOnDisk()
    guard = given.verify(PID)
    given.log.expire_producers(given.now_ms + DAY_MS - 1)
    assert given.verify(PID) is guard
    given.log.expire_producers(given.now_ms + DAY_MS)
    with refused(E.INVALID_TXN_STATE):
        given.append(PID, transactional=True, guard=guard)


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_scenario_096_a_new_leader_has_no_guards_and_asks_only_where_no_transaction_is_open(how: str) -> None:
    given = LogOnDisk()
    given.append(1, transactional=True)
    guard = given.verify(2)
    opened = given.closed_and_opened() if how == "closed" else given.killed_and_opened()
    assert opened.verify(1, sequence=1) is NO_GUARD
    assert opened.append(1, sequence=1, transactional=True, guard=NO_GUARD).base_offset == 1
    with refused(E.INVALID_TXN_STATE):
        opened.append(2, transactional=True, guard=guard)
    opened.append(2, transactional=True, guard=opened.verify(2))
