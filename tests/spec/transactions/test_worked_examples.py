"""Tests the worked examples of KIP-939 and compares each step with its decoded record (docs/spec/transactions.md#s3-6).

In example A, an ordinary transaction uses up its epochs. In example B, a kept transaction uses up the epochs of both
producer ids. Example C shows one recovery and one end from every possible state, and a retry of the end.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from odradek.broker.transactions.entry import NEVER_MS, Txn
from odradek.broker.transactions.records import decode_record
from odradek.broker.transactions.turn import TransactionConfig
from tests.support.transaction_scene import MAX, NEW_PID, E, Pair, S, Scene, given, refused, txn

LAST = MAX - 1
ALLOWED = TransactionConfig(transaction_two_phase_commit_enable=True)
NOBODY: Pair = (-1, -1)


class RecordedProducer(NamedTuple):
    """The producer ids and epochs in a record. None means that the record omits the field."""

    state: S
    producer_id: int
    producer_epoch: int
    previous: int
    following: int | None
    following_epoch: int | None


def recorded(scene: Scene) -> RecordedProducer:
    stored = decode_record(*scene.log[-1][:2])
    assert isinstance(stored, Txn)
    assert stored.producer_epoch is not None
    assert stored.previous_producer_id is not None
    return RecordedProducer(
        stored.state,
        stored.producer_id,
        stored.producer_epoch,
        stored.previous_producer_id,
        stored.next_producer_id,
        stored.next_producer_epoch,
    )


def with_next_producer_id(scene: Scene, producer_id: int) -> Scene:
    scene.next_producer_id = producer_id
    return scene


def test_scenario_116_example_a_the_epochs_of_an_ordinary_transaction_are_used_up() -> None:
    scene = with_next_producer_id(given(txn(S.EMPTY, (42, LAST - 1))), 85)
    assert scene.init() == (42, LAST)
    assert recorded(scene) == (S.EMPTY, 42, LAST, 42, None, None)
    scene.add5((42, LAST))
    assert recorded(scene) == (S.ONGOING, 42, LAST, 42, None, None)
    commit = scene.commit5((42, LAST))
    assert recorded(scene) == (S.PREPARE_COMMIT, 42, MAX, 42, 85, 0)
    (owed,) = scene.write_markers()
    assert (owed.producer_id, owed.producer_epoch) == (42, MAX)
    assert recorded(scene) == (S.COMPLETE_COMMIT, 85, 0, 42, None, None)
    assert commit.pair == (85, 0)


def test_scenario_116_example_b_both_pairs_of_a_kept_transaction_are_used_up() -> None:
    scene = with_next_producer_id(given(txn(S.EMPTY, (42, LAST - 1)), config=ALLOWED), 73)
    assert scene.init(enable2_pc=True) == (42, LAST)
    assert recorded(scene) == (S.EMPTY, 42, LAST, 42, None, None)
    scene.add5((42, LAST))
    assert recorded(scene) == (S.ONGOING, 42, LAST, 42, None, None)
    assert scene.keep(enable2_pc=True) == ((73, 0), (42, LAST))
    assert recorded(scene) == (S.ONGOING, 42, LAST, 42, 73, 0)
    assert scene.keep(enable2_pc=True) == ((73, 1), (42, LAST))
    assert recorded(scene) == (S.ONGOING, 42, LAST, 42, 73, 1)
    for epoch in range(2, MAX + 1):
        assert scene.keep(enable2_pc=True) == ((73, epoch), (42, LAST))
    assert recorded(scene) == (S.ONGOING, 42, LAST, 42, 73, MAX)
    assert scene.txn.timeout_ms == NEVER_MS
    scene.next_producer_id = 85
    commit = scene.commit5((73, MAX))
    assert recorded(scene) == (S.PREPARE_COMMIT, 42, MAX, 73, 85, 0)
    (owed,) = scene.write_markers()
    assert (owed.producer_id, owed.producer_epoch) == (42, MAX)
    assert recorded(scene) == (S.COMPLETE_COMMIT, 85, 0, 73, None, None)
    assert commit.pair == (85, 0)
    assert scene.commit5((73, MAX)).pair == (85, 0)


def test_scenario_116_example_b_one_recovery_more_would_take_a_producer_id() -> None:
    scene = given(kept_transaction((42, LAST), (73, MAX)), config=ALLOWED)
    assert scene.keep() == ((NEW_PID, 0), (42, LAST))
    assert recorded(scene) == (S.ONGOING, 42, LAST, 42, NEW_PID, 0)


def kept_transaction(pair: Pair, by: Pair) -> Txn:
    return txn(S.ONGOING, pair, following=by[0], following_epoch=by[1], timeout_ms=NEVER_MS)


class Row(NamedTuple):
    """A row of example C.

    ends_with  producer id and epoch of the producer that ends the transaction
    previous   producer id that clients used for the transactional id until then
    """

    start: Txn
    is_recovered: bool
    ends_with: Pair
    markers: Pair
    then: Pair
    previous: int


EXAMPLE_C = [
    Row(txn(S.ONGOING, (42, 10)), True, (42, 11), (42, 11), (42, 12), 42),
    Row(kept_transaction((42, 10), (73, 85)), False, (73, 85), (42, 11), (73, 86), 73),
    Row(kept_transaction((42, 10), (73, LAST)), False, (73, LAST), (42, 11), (NEW_PID, 0), 73),
    Row(kept_transaction((42, 10), (73, MAX)), False, (73, MAX), (42, 11), (NEW_PID, 0), 73),
    Row(txn(S.ONGOING, (42, LAST - 1)), True, (42, LAST), (42, LAST), (NEW_PID, 0), 42),
    Row(txn(S.ONGOING, (42, LAST)), True, (NEW_PID, 0), (42, MAX), (NEW_PID, 1), NEW_PID),
]


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("row", EXAMPLE_C)
def test_scenario_116_example_c_holds_for_every_combination_of_epochs(row: Row, committed: bool) -> None:
    scene = given(row.start, config=ALLOWED)
    started = row.start.producer_id, row.start.producer_epoch
    if row.is_recovered:
        assert scene.keep() == (row.ends_with, started)
    end = scene.end(row.ends_with, committed=committed, version=5)
    prepare, complete = (S.PREPARE_COMMIT, S.COMPLETE_COMMIT) if committed else (S.PREPARE_ABORT, S.COMPLETE_ABORT)
    assert recorded(scene) == (prepare, *row.markers, row.previous, *row.then)
    (owed,) = scene.write_markers()
    assert (owed.producer_id, owed.producer_epoch) == row.markers
    assert recorded(scene) == (complete, *row.then, row.previous, None, None)
    assert end.pair == row.then
    for after in (scene, scene.restarted()):
        assert after.end(row.ends_with, committed=committed, version=5).pair == row.then
        with refused(E.PRODUCER_FENCED if not committed else E.INVALID_TXN_STATE):
            after.end(row.ends_with, committed=not committed, version=5)


def owner_commits(scene: Scene) -> object:
    producer_id, producer_epoch = scene.txn.client_pair
    assert producer_epoch is not None
    return scene.commit5((producer_id, producer_epoch))


STEPS: list[Callable[[Scene], object]] = [Scene.keep, Scene.keep, owner_commits, Scene.write_markers]


def test_scenario_116_every_step_survives_a_restart_right_after_it() -> None:
    scene = with_next_producer_id(given(txn(S.ONGOING, (42, LAST), timeout_ms=NEVER_MS), config=ALLOWED), 73)
    for step in STEPS:
        step(scene)
        before = scene.txn
        scene = scene.restarted()
        assert scene.txn == before
