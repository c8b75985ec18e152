"""Tests several instances that share a transactional id. A recovery fences the other instances in the database and in
Kafka, in either order."""

import os
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from odradek.dualwrite import DualWriteError, Fate, Fenced, NotRecovered, Observer, Phase, Result, Step
from odradek.dualwrite.database import WRITE
from tests.support.dual_write_scene import AnyScene, PostgresqlScene, ProcessKilled, SqliteScene, killed_at
from tests.support.fake_two_phase import FaultTime
from tests.support.interleaving import Actor, interleave

SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else range(30)


def test_a_second_instance_fences_the_first_which_can_commit_nothing_more(scene: AnyScene) -> None:
    first = scene.recovered()
    scene.order(first, "tea")
    second = scene.recovered()
    with pytest.raises(Fenced) as caught:
        scene.order(first, "milk")
    assert caught.value.rows is Fate.ROLLED_BACK
    assert first.phase is Phase.FENCED
    scene.order(second, "sugar")
    assert scene.rows == scene.messages == ["tea", "sugar"]


def test_a_fenced_instance_cannot_commit_rows_without_messages_either(scene: AnyScene) -> None:
    first = scene.recovered()
    scene.recovered()
    with pytest.raises(Fenced), first.transaction() as transaction:
        scene.insert(transaction, "tea")
    assert scene.rows == []


def test_a_fenced_instance_may_take_over_again(scene: AnyScene) -> None:
    first = scene.recovered()
    second = scene.recovered()
    with pytest.raises(Fenced):
        scene.order(first, "tea")
    first.recover()
    scene.order(first, "milk")
    with pytest.raises(Fenced):
        scene.order(second, "sugar")
    assert scene.rows == scene.messages == ["milk"]


def sleeping_before(step: Step, meanwhile: Callable[[], object]) -> Observer:
    """Returns an observer that calls `meanwhile` once, before `step`, as if the process had been suspended there."""
    naps = [meanwhile]

    def observe(at: Step, result: Result | None) -> None:
        if at is step and result is None and naps:
            naps.pop()()

    return observe


@pytest.mark.parametrize("step", [Step.WRITE_STATE, Step.PREPARE_KAFKA, Step.APPLICATION])
def test_an_instance_that_sleeps_until_another_takes_over_cannot_commit(
    postgresql_scene: PostgresqlScene, step: Step
) -> None:
    """Checks that an instance cannot commit if another one has taken over while it was suspended. Any messages that it
    had prepared have been aborted, so its rows must not be committed."""
    scene = postgresql_scene
    first = scene.recovered(sleeping_before(step, scene.recovered))
    with pytest.raises(Fenced) as caught:
        scene.order(first, "tea")
    assert caught.value.rows is Fate.ROLLED_BACK
    assert scene.rows == scene.messages == []


def test_without_the_generation_in_the_row_both_sides_would_diverge(postgresql_scene: PostgresqlScene) -> None:
    """Shows that the previous test can fail: without the generation check, the rows exist but the messages do not."""
    scene = postgresql_scene
    planted = WRITE.replace("AND generation = ?", "AND ? IS NOT NULL").replace("?", "%s")
    scene.statements.rewrite = lambda text: planted if text == WRITE.replace("?", "%s") else text
    first = scene.recovered(sleeping_before(Step.WRITE_STATE, scene.recovered))
    with pytest.raises(Fenced) as caught:
        scene.order(first, "tea")
    assert caught.value.rows is Fate.COMMITTED
    assert (scene.rows, scene.messages) == (["tea"], [])


def refused_recovery(scene: AnyScene) -> Callable[[], None]:
    def try_to_recover() -> None:
        scene.timeout_ms = 50
        with pytest.raises(NotRecovered):
            scene.recovered()

    return try_to_recover


def test_an_instance_that_sleeps_after_writing_its_state_delays_recovery_and_commits(scene: AnyScene) -> None:
    """Checks that an instance suspended just before its database commit can still commit, because it holds the lock on
    its row. Until the lock is released, no other instance can resolve the block or fence the producer."""
    first = scene.recovered(sleeping_before(Step.COMMIT_DATABASE, refused_recovery(scene)))
    scene.order(first, "tea")
    assert scene.rows == scene.messages == ["tea"]


def test_in_sqlite_a_block_keeps_recovery_waiting_from_its_beginning(sqlite_scene: SqliteScene) -> None:
    """Checks that recovery waits even before the block has written anything, because SQLite has a single lock for the
    whole file."""
    first = sqlite_scene.recovered(sleeping_before(Step.APPLICATION, refused_recovery(sqlite_scene)))
    sqlite_scene.order(first, "tea")
    assert sqlite_scene.rows == sqlite_scene.messages == ["tea"]


@pytest.mark.parametrize(
    "step", [Step.TAKE_OVER_DATABASE, Step.TAKE_OVER_KAFKA, Step.READ_STATE, Step.COMPLETE_KAFKA, Step.FORGET_STATE]
)
def test_one_of_two_simultaneous_recoveries_decides_and_the_other_does_no_harm(scene: AnyScene, step: Step) -> None:
    """Checks that the rows and the messages agree after two simultaneous recoveries. The slower instance is suspended
    before one of the steps of its recovery. In the meantime, the faster instance recovers the same transaction and
    leaves a second transaction in doubt."""
    with pytest.raises(ProcessKilled):
        scene.order(scene.recovered(killed_at((Step.COMMIT_DATABASE, FaultTime.AFTER))), "tea")
    scene.kill()

    def recover_and_leave_in_doubt() -> None:
        with pytest.raises(ProcessKilled):
            scene.order(scene.recovered(killed_at((Step.COMMIT_DATABASE, FaultTime.AFTER))), "milk")

    slower = scene.dual(sleeping_before(step, recover_and_leave_in_doubt))
    with suppress(Fenced):
        slower.recover()
    scene.recovered()
    assert scene.rows == scene.messages == ["tea", "milk"]


def test_a_recovery_that_found_nothing_open_keeps_the_state_of_a_later_writer(scene: AnyScene) -> None:
    """Checks that the slower instance is fenced and keeps the faster one's state. The broker cannot report the takeover
    in this case, because the slower instance has nothing to complete."""

    def write_and_leave_in_doubt() -> None:
        with pytest.raises(ProcessKilled):
            scene.order(scene.recovered(killed_at((Step.COMMIT_DATABASE, FaultTime.AFTER))), "tea")

    slower = scene.dual(sleeping_before(Step.READ_STATE, write_and_leave_in_doubt))
    with pytest.raises(Fenced):
        slower.recover()
    scene.recovered()
    assert scene.rows == scene.messages == ["tea"]


def at_every_step(actor: Actor) -> Observer:
    def observe(step: Step, result: Result | None) -> None:
        if result is None:
            actor.step(step)

    return observe


def test_an_instance_that_takes_the_row_first_and_the_producer_last_is_fenced(scene: AnyScene) -> None:
    """Checks that the slower instance gives up. Otherwise, it would find the faster one's open transaction, whose state
    is not stored yet, and abort messages that are about to be committed."""

    def recover(actor: Actor) -> None:
        with suppress(Fenced):
            scene.recovered(at_every_step(actor))

    def recover_and_write(actor: Actor) -> None:
        dual = scene.recovered(at_every_step(actor))
        with suppress(Fenced):
            scene.order(dual, "tea")

    scene.recovered().close()  # Recovery creates the table.
    slower, faster = Actor("slower", recover), Actor("faster", recover_and_write)
    slower.move_until(Step.TAKE_OVER_KAFKA)
    faster.move_until(Step.BEGIN_DATABASE if isinstance(scene, SqliteScene) else Step.WRITE_STATE)
    slower.move_until(Step.COMPLETE_KAFKA)
    faster.move_until("the end")
    slower.move_until("the end")
    assert (slower.failure, faster.failure) == (None, None)
    scene.recovered()
    assert scene.rows == scene.messages


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_both_sides_agree_although_three_instances_are_killed_at_random(scene: AnyScene, seed: int) -> None:
    rng = Random(seed)
    trace = [f"SEED={seed}"]
    scene.recovered().close()  # Recovery creates the table.

    def play(actor: Actor) -> None:
        own = Random(f"{seed} {actor.name}")

        def observe(step: Step, result: Result | None) -> None:
            trace.append(f"{actor.name} {step.name} {result.name if result else ''}")
            if own.random() < 0.02:
                raise ProcessKilled
            actor.step(step)

        opened: list[Any] = []
        dual = scene.dual(observe, opened)
        with suppress(ProcessKilled):
            for number in range(4):
                with suppress(DualWriteError):
                    if dual.phase is not Phase.READY:
                        dual.recover()
                    scene.order(dual, f"{actor.name}{number}")
        for connection in opened:
            connection.close()

    interleave([Actor(name, play) for name in "abc"], rng)
    scene.recovered()
    assert sorted(scene.rows) == sorted(scene.messages), "\n".join(trace)
