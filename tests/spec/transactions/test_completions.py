"""Tests completions that are recorded late. The record of a completed transaction is delayed until the next record of
its transactional id, and both are appended together (ADR 23).

In the meantime, requests see the transaction as complete. After a crash, only the decision is on record, so the
transaction is completed again.
"""

from random import Random

import pytest

from odradek.broker.transactions.core import COMPLETIONS
from odradek.broker.transactions.entry import Txn
from odradek.broker.transactions.turn import DecisionInputs, TransactionConfig
from odradek.protocol.errors import KafkaError
from tests.support.transaction_scene import ID, NOW_MS, P0, P1, PID, E, S, Scene, given, txn

DELAY_MS = 50
LATER = TransactionConfig(completion_delay_ms=DELAY_MS)


def completed(pair: tuple[int, int] = (PID, 0)) -> Scene:
    """Returns the scene of a committed transaction in P0 whose completion has not been recorded yet.

    The producer continues with the next epoch.
    """
    scene = given(txn(S.ONGOING, pair), config=LATER)
    reply = scene.commit5(pair)
    scene.write_markers()
    assert reply.pair == (pair[0], pair[1] + 1)
    return scene


def states(scene: Scene) -> list[str]:
    """Returns the state in each record written since the scene was created."""
    return [each.state.name for each in scene.written if isinstance(each, Txn)]


def test_a_transaction_is_complete_before_its_completion_is_recorded() -> None:
    scene = completed()
    assert states(scene) == ["PREPARE_COMMIT"]
    assert scene.state == (S.COMPLETE_COMMIT, PID, 1)
    assert scene.describe().transaction_state == "CompleteCommit"
    assert scene.describe().topics == []
    assert [each.state for each in scene.core.entries()] == [S.COMPLETE_COMMIT]
    assert scene.core.state_counts() == {S.COMPLETE_COMMIT: 1}
    assert scene.core.open_entries() == []


def test_the_completion_is_recorded_with_the_next_transaction() -> None:
    scene = completed()
    assert scene.add5((PID, 1), P1) == {P1: E.NONE}
    assert states(scene) == ["PREPARE_COMMIT", "COMPLETE_COMMIT", "ONGOING"]
    assert scene.txn.partitions == {P1}
    scene.advance(DELAY_MS)
    assert states(scene)[3:] == []


def test_the_completion_is_recorded_after_a_delay_if_no_transaction_follows() -> None:
    scene = completed()
    scene.advance(DELAY_MS - 1)
    assert states(scene) == ["PREPARE_COMMIT"]
    scene.advance(1)
    assert states(scene) == ["PREPARE_COMMIT", "COMPLETE_COMMIT"]
    assert COMPLETIONS not in scene.due, "nothing is left to be done"
    assert scene.core.open_count == 0


def test_one_timer_is_enough_for_all_ids() -> None:
    others = [txn(S.ONGOING, (PID + number, 0), transactional_id=f"id-{number}") for number in range(3)]
    scene = given(*others, config=LATER)
    for number in range(3):
        scene.end((PID + number, 0), committed=True, version=5, transactional_id=f"id-{number}")
        scene.write_markers()
        assert scene.due == {COMPLETIONS: NOW_MS + DELAY_MS}
        scene.now_ms += 1
    scene.advance(DELAY_MS - 3)
    assert states(scene)[3:] == ["COMPLETE_COMMIT"] * 3


def test_a_repeated_end_is_answered_as_before() -> None:
    scene = completed()
    assert scene.commit5((PID, 0)).pair == (PID, 1)
    assert states(scene) == ["PREPARE_COMMIT"]


def test_the_completion_is_recorded_with_a_new_owner() -> None:
    scene = completed()
    assert scene.init() == (PID, 2)
    assert states(scene) == ["PREPARE_COMMIT", "COMPLETE_COMMIT", "EMPTY"]


def test_the_completion_is_recorded_with_the_end_of_an_empty_transaction() -> None:
    scene = completed()
    assert scene.abort5((PID, 1)).is_parked
    assert states(scene) == ["PREPARE_COMMIT", "COMPLETE_COMMIT", "PREPARE_ABORT"]


def test_a_transaction_stays_complete_if_the_next_record_cannot_be_written() -> None:
    scene = completed()
    scene.refuse_appends = E.NOT_COORDINATOR
    with pytest.raises(KafkaError):
        scene.add5((PID, 1), P1)
    assert scene.state == (S.COMPLETE_COMMIT, PID, 1)
    scene.refuse_appends = None
    assert scene.add5((PID, 1), P1) == {P1: E.NONE}
    assert states(scene) == ["PREPARE_COMMIT", "COMPLETE_COMMIT", "ONGOING"]


def test_after_a_crash_the_markers_are_written_again() -> None:
    scene = completed().restarted()
    assert [each.partitions for each in scene.owed] == [{P0}]
    scene.write_markers()
    assert scene.state == (S.COMPLETE_COMMIT, PID, 1)
    assert scene.commit5((PID, 0)).pair == (PID, 1)
    assert scene.add5((PID, 1), P1) == {P1: E.NONE}


def test_markers_that_are_answered_twice_change_nothing() -> None:
    scene = given(txn(S.ONGOING, (PID, 0)), config=LATER)
    scene.commit5((PID, 0))
    (owed,) = scene.write_markers()
    scene.markers_answered(owed, owed.partitions)
    scene.add5((PID, 1), P1)
    scene.markers_answered(owed, owed.partitions)
    assert states(scene) == ["PREPARE_COMMIT", "COMPLETE_COMMIT", "ONGOING"]


def test_the_completion_is_recorded_before_a_deleted_topic_can_be_recreated() -> None:
    scene = completed()
    scene.delete_topic("orders")
    assert states(scene) == ["PREPARE_COMMIT", "COMPLETE_COMMIT"]
    assert scene.restarted().owed == []


def test_the_transaction_of_an_expired_lock_is_over_if_it_is_complete() -> None:
    scene = completed()
    fate = scene.core.abort_overdue(ID, PID, 0, inputs=DecisionInputs(NOW_MS))
    assert fate.response is not None
    assert fate.response.name == "OVER"
    assert fate.records == ()


@pytest.mark.parametrize("seed", range(60))
def test_a_delayed_completion_changes_neither_responses_nor_records(seed: int) -> None:
    """A delayed completion changes neither responses nor records, in any order of requests.

    The records of each transactional id are also in the same order.
    """
    one, other = (play(given(config=config), Random(seed)) for config in (TransactionConfig(), LATER))
    assert one == other


def play(scene: Scene, random: Random) -> list[object]:
    outcomes: list[object] = []
    pair = (-1, -1)
    for _ in range(80):
        outcomes.append((scene.state, scene.txn.partitions) if scene.core.txn(ID) else None)
        try:
            match random.choice(["init", "add", "add", "end", "end", "write", "write", "refuse", "wait", "delete"]):
                case "init":
                    pair = scene.init()
                case "add":
                    outcomes.append(scene.add5(pair, random.choice([P0, P1])))
                case "end":
                    reply = scene.end(pair, committed=random.random() < 0.7, version=random.choice([4, 5, 5]))
                    if not reply.is_parked:
                        outcomes.append(reply.pair)
                        pair = reply.pair if reply.pair != (-1, -1) else pair
                    elif scene.txn.client_version == 2:
                        pair = (scene.txn.producer_id, scene.txn.producer_epoch or 0)
                case "write":
                    outcomes.append(len(scene.write_markers()))
                case "refuse":
                    outcomes.append(len(scene.write_markers(only=[P0])))
                case "wait":
                    scene.advance(random.choice([1, DELAY_MS, 200]))
                case "delete":
                    scene.delete_topic("orders")
        except KafkaError as error:
            outcomes.append(error.code)
    scene.write_markers()
    scene.advance(1_000)
    return [
        *outcomes,
        [(each.state, each.producer_epoch, each.partitions) for each in scene.written if isinstance(each, Txn)],
    ]
