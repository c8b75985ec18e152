"""Tests dual writes in which a step fails before or after it takes effect. After recovery, the database and Kafka
always agree."""

import pytest

from odradek.dualwrite import DualWriteError, Fate, InDoubt, NotCommitted, NotRecovered, Phase, Result, Step
from tests.support.dual_write_scene import AnyScene, Moment, NoAnswer, ProcessKilled, killed_at
from tests.support.fake_two_phase import FaultTime

ORDINARY = (
    Step.BEGIN_DATABASE,
    Step.APPLICATION,
    Step.PREPARE_KAFKA,
    Step.WRITE_STATE,
    Step.COMMIT_DATABASE,
    Step.COMMIT_KAFKA,
)
RECOVERY = (
    Step.TAKE_OVER_DATABASE,
    Step.TAKE_OVER_KAFKA,
    Step.READ_STATE,
    Step.COMPLETE_KAFKA,
    Step.FORGET_STATE,
)
MOMENTS = [(step, when) for step in ORDINARY for when in FaultTime]
MOMENTS_OF_RECOVERY = [(step, when) for step in RECOVERY for when in FaultTime]
UNTIL_COMMIT = MOMENTS[: MOMENTS.index((Step.COMMIT_DATABASE, FaultTime.AFTER))]


def named(value: object) -> str | None:
    match value:
        case (Step() as step, FaultTime() as when):
            return f"{when.name.lower()} {step.name}"
        case FaultTime():
            return value.name.lower()
    return None


def leave_by_a_kill(scene: AnyScene, moment: Moment, *names: str) -> None:
    with pytest.raises(ProcessKilled):
        scene.order(scene.recovered(killed_at(moment)), *names)
    scene.kill()


# --- The process is killed.


@pytest.mark.parametrize("moment", MOMENTS, ids=named)
def test_a_process_that_is_killed_has_committed_both_or_neither(scene: AnyScene, moment: Moment) -> None:
    scene.order(scene.recovered(), "before")
    leave_by_a_kill(scene, moment, "tea", "milk")
    dual = scene.recovered()
    expected = ["before"] if moment in UNTIL_COMMIT else ["before", "tea", "milk"]
    assert scene.rows == scene.messages == expected
    scene.order(dual, "after")
    assert scene.rows == scene.messages == [*expected, "after"]


@pytest.mark.parametrize("moment", MOMENTS[MOMENTS.index((Step.PREPARE_KAFKA, FaultTime.AFTER)) : -1], ids=named)
def test_a_transaction_stays_open_until_recovery(scene: AnyScene, moment: Moment) -> None:
    leave_by_a_kill(scene, moment, "tea")
    assert scene.kafka.open is not None
    assert (scene.messages, scene.kafka.aborted) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("second", MOMENTS_OF_RECOVERY, ids=named)
@pytest.mark.parametrize("first", MOMENTS, ids=named)
def test_a_recovery_that_is_killed_is_made_up_for_by_the_next(scene: AnyScene, first: Moment, second: Moment) -> None:
    leave_by_a_kill(scene, first, "tea")
    with pytest.raises(ProcessKilled):
        scene.recovered(killed_at(second))
    scene.kill()
    dual = scene.recovered()
    assert scene.rows == scene.messages == ([] if first in UNTIL_COMMIT else ["tea"])
    scene.order(dual, "after")
    assert scene.rows == scene.messages


# --- A request or its response is lost.


@pytest.mark.parametrize("when", FaultTime, ids=named)
def test_a_failed_prepare_rolls_both_back(scene: AnyScene, when: FaultTime) -> None:
    dual = scene.recovered()
    scene.kafka.faults["prepare"] = when
    with pytest.raises(NotCommitted) as caught:
        scene.order(dual, "tea")
    assert caught.value.messages is Fate.ROLLED_BACK
    scene.order(dual, "milk")
    assert scene.rows == scene.messages == ["milk"]


@pytest.mark.parametrize("when", FaultTime, ids=named)
@pytest.mark.parametrize("statement", ["BEGIN", "INSERT INTO orders", "UPDATE"])
def test_a_statement_that_fails_rolls_both_back(scene: AnyScene, statement: str, when: FaultTime) -> None:
    dual = scene.recovered()
    scene.statements.fault = (statement, when)
    with pytest.raises((NotCommitted, NoAnswer)):
        scene.order(dual, "tea")
    assert scene.statements.fault is None
    scene.order(dual, "milk")
    assert scene.rows == scene.messages == ["milk"]


@pytest.mark.parametrize(("when", "expected"), [(FaultTime.BEFORE, []), (FaultTime.AFTER, ["tea"])], ids=named)
def test_a_database_commit_without_a_response_is_decided_by_the_stored_state(
    scene: AnyScene, when: FaultTime, expected: list[str]
) -> None:
    dual = scene.recovered()
    scene.statements.fault = ("COMMIT", when)
    if expected:
        scene.order(dual, "tea")
    else:
        with pytest.raises(NotCommitted):
            scene.order(dual, "tea")
    assert scene.rows == scene.messages == expected
    scene.order(dual, "milk")
    assert scene.rows == scene.messages == [*expected, "milk"]


@pytest.mark.parametrize(("when", "expected"), [(FaultTime.BEFORE, []), (FaultTime.AFTER, ["tea"])], ids=named)
def test_an_unreachable_database_leaves_the_outcome_in_doubt(
    scene: AnyScene, when: FaultTime, expected: list[str]
) -> None:
    def observe(step: Step, result: Result | None) -> None:
        scene.is_database_away |= step is Step.COMMIT_DATABASE

    dual = scene.recovered(observe)
    scene.statements.fault = ("COMMIT", when)
    with pytest.raises(InDoubt) as caught:
        scene.order(dual, "tea")
    assert (caught.value.rows, caught.value.messages) == (Fate.UNKNOWN, Fate.PENDING)
    assert scene.kafka.open is not None
    with pytest.raises(NotRecovered):
        dual.recover()
    assert scene.kafka.open is not None
    scene.is_database_away = False
    assert dual.recover().messages is (Fate.COMMITTED if expected else Fate.ROLLED_BACK)
    assert scene.rows == scene.messages == expected


@pytest.mark.parametrize("when", FaultTime, ids=named)
def test_a_kafka_commit_without_an_answer_leaves_rows_that_stand_and_messages_that_recovery_commits(
    scene: AnyScene, when: FaultTime
) -> None:
    dual = scene.recovered()
    scene.kafka.faults["complete"] = when
    with pytest.raises(InDoubt) as caught:
        scene.order(dual, "tea")
    assert (caught.value.rows, caught.value.messages) == (Fate.COMMITTED, Fate.PENDING)
    assert dual.recover().messages is (Fate.COMMITTED if when is FaultTime.BEFORE else None)
    assert scene.rows == scene.messages == ["tea"]


@pytest.mark.parametrize("when", FaultTime, ids=named)
def test_an_abort_without_an_answer_is_left_to_recovery(scene: AnyScene, when: FaultTime) -> None:
    dual = scene.recovered()
    scene.kafka.faults |= {"prepare": FaultTime.AFTER, "abort": when}
    with pytest.raises(NotCommitted) as caught:
        scene.order(dual, "tea")
    assert (caught.value.messages, dual.phase) == (Fate.PENDING, Phase.UNRECOVERED)
    dual.recover()
    scene.order(dual, "milk")
    assert scene.rows == scene.messages == ["milk"]


@pytest.mark.parametrize("call", ["take_over", "complete"])
@pytest.mark.parametrize("when", FaultTime, ids=named)
def test_a_recovery_that_fails_may_be_repeated(scene: AnyScene, call: str, when: FaultTime) -> None:
    leave_by_a_kill(scene, (Step.COMMIT_DATABASE, FaultTime.AFTER), "tea")
    dual = scene.dual()
    scene.kafka.faults[call] = when
    with pytest.raises(NotRecovered):
        dual.recover()
    dual.recover()
    assert scene.rows == scene.messages == ["tea"]


@pytest.mark.parametrize("when", FaultTime, ids=named)
def test_only_the_rows_of_a_block_without_messages_can_be_in_doubt(scene: AnyScene, when: FaultTime) -> None:
    dual = scene.recovered()
    scene.statements.fault = ("COMMIT", when)
    with pytest.raises(InDoubt) as caught, dual.transaction() as transaction:
        scene.insert(transaction, "tea")
    assert caught.value.rows is Fate.UNKNOWN
    scene.order(dual, "milk")
    assert scene.messages == ["milk"]


def test_a_state_of_a_deleted_cluster_does_not_count_for_a_new_cluster(scene: AnyScene) -> None:
    """Checks that recovery clears the states that it has resolved, because a new cluster assigns the same producer ids
    and epochs again."""
    scene.order(scene.recovered(), "tea")
    assert scene.stored_state == "1000:0"
    scene.kafka = type(scene.kafka)()
    leave_by_a_kill(scene, (Step.PREPARE_KAFKA, FaultTime.AFTER), "milk")
    assert scene.kafka.open is not None
    assert scene.kafka.open.state == "1000:0"
    scene.recovered()
    assert (scene.rows, scene.messages) == (["tea"], [])


@pytest.mark.parametrize("call", ["prepare", "complete"])
def test_the_exception_names_its_cause(scene: AnyScene, call: str) -> None:
    dual = scene.recovered()
    scene.kafka.faults[call] = FaultTime.BEFORE
    with pytest.raises(DualWriteError) as caught:
        scene.order(dual, "tea")
    assert str(caught.value.__cause__) == f"{call}: the request was lost"
