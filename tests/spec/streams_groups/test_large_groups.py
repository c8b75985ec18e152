"""Tests streams groups whose target assignment is computed while the broker handles other requests
(`ClusterView.compute_target`)."""

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from odradek.broker.coordinators.target_computations import TargetComputations
from odradek.broker.groups.records import decode_record, encode_record
from odradek.broker.groups.streams.records import target_of, target_record
from odradek.broker.runtime.slices import Steps, run_to_end
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.streams_group_target_assignment_member_key import StreamsGroupTargetAssignmentMemberKey
from odradek.protocol.messages.streams_group_target_assignment_member_value import (
    StreamsGroupTargetAssignmentMemberValue,
)
from tests.support.streams_scene import StreamsHeartbeatResult, StreamsScene, subtopology, topology

OK = ErrorCode.NONE.value
DELAYED, MISSING_SOURCE = 5, 1
TARGET, TARGET_EPOCH = 21, 20  # record types


def large_group(*, interval_ms: int = 0, delay_ms: int = 0) -> StreamsScene:
    scene = StreamsScene(interval_ms=interval_ms, delay_ms=delay_ms)
    scene.cluster.computes_later = True
    return scene


def settled_group() -> StreamsScene:
    """Returns a group of four tasks, in which member a owns 0 and 1, and member c owns 2 and 3.

    Each later target is computed after the response to the heartbeat that requires it.
    """
    scene = StreamsScene()
    scene.member("a")
    scene.member("c")
    scene.beat("a")
    scene.beat("a", owned="0:01")
    scene.beat("c")
    assert (scene.held("a"), scene.held("c"), scene.state) == ("0:01", "0:23", ("Stable", 3, 3))
    scene.cluster.computes_later = True
    return scene


def test_a_member_that_joins_is_answered_before_its_target_is_computed() -> None:
    scene = large_group()
    assert scene.member("a") == StreamsHeartbeatResult(OK, 1, "", (DELAYED,))
    assert scene.status(DELAYED) == ("Assignment delayed because the assignment of this large group is being computed.")
    assert scene.state == ("Assigning", 2, 1)
    scene.end_computation()
    assert scene.state == ("Reconciling", 2, 2)
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 2, "0:0123")


def test_heartbeats_during_the_computation_get_the_current_state_and_begin_no_second_one() -> None:
    scene = settled_group()
    scene.member("b")
    (computation,) = scene.cluster.computing.values()
    since = len(scene.log)
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 3, None, (DELAYED,))
    assert scene.beat("c") == StreamsHeartbeatResult(OK, 3, None, (DELAYED,))
    assert [*scene.cluster.computing.values()] == [computation]
    assert scene.keys_written(since) == []
    scene.end_computation()
    assert scene.keys_written(since) == [21, 21, 20] or scene.keys_written(since) == [21, 21, 21, 20]
    assert scene.beat("a").statuses == ()


def test_a_target_for_an_earlier_epoch_is_recorded_with_that_epoch_and_the_next_one_follows() -> None:
    scene = settled_group()
    scene.member("b")  # The group is now at epoch 4.
    scene.member("d")  # The group moves to epoch 5 while the target for epoch 4 is being computed.
    scene.end_computation()
    assert scene.state == ("Assigning", 5, 4)
    assert scene.target("d") == ""
    assert scene.target("b") != ""
    scene.beat("a")
    scene.end_computation()
    assert scene.state == ("Reconciling", 5, 5)
    assert scene.target("d") != ""


def test_a_target_of_a_member_that_has_left_meanwhile_is_not_recorded() -> None:
    scene = settled_group()
    scene.member("b")
    scene.beat("c", -1)
    scene.end_computation()
    assert [member.member_id for member in scene.described().members] == ["a", "b"]
    assert "c" not in scene.group_of().targets


def test_a_target_for_topics_that_have_changed_meanwhile_is_discarded_and_computed_again() -> None:
    scene = settled_group()
    scene.member("b")
    scene.cluster.grow("i4", 5)
    scene.beat("a")
    since = len(scene.log)
    scene.end_computation()
    assert scene.keys_written(since) == []
    scene.end_computation()
    assert scene.state[1:] == (5, 5)
    assert sorted("".join(scene.target(name)[2:] for name in "abc")) == ["0", "1", "2", "3", "4"]


def test_a_group_whose_topics_are_missing_loses_its_tasks_at_once() -> None:
    scene = settled_group()
    scene.member("b")
    scene.cluster.delete("i4")
    assert scene.beat("a").statuses == (MISSING_SOURCE,)
    assert scene.state[1:] == (5, 5)
    since = len(scene.log)
    scene.end_computation()
    assert scene.keys_written(since) == []


def test_a_target_without_a_static_member_that_came_back_under_another_id_is_computed_again() -> None:
    scene = StreamsScene()
    scene.member("a", instance="ia", process="P")
    scene.member("c")
    scene.cluster.computes_later = True
    scene.member("b")
    epoch = scene.state[1]
    scene.beat("a", -2, instance="ia")
    scene.member("a2", instance="ia", process="P")
    assert scene.state[1] == epoch
    since = len(scene.log)
    scene.end_computation()
    assert scene.keys_written(since) == []
    scene.end_computation()
    assert scene.state[1:] == (epoch, epoch)
    assert scene.target("a2") != ""


def test_the_initial_delay_ends_with_a_computation() -> None:
    scene = large_group(delay_ms=1_000)
    scene.member("a")
    scene.member("c")
    assert scene.cluster.computing == {}
    scene.advance(1_000)
    assert scene.state == ("Assigning", 3, 1)
    assert scene.beat("a").statuses == (DELAYED,)
    scene.end_computation()
    assert scene.state == ("Reconciling", 3, 3)


def test_a_group_that_was_emptied_or_deleted_ignores_its_computation() -> None:
    scene = large_group()
    scene.member("a")
    scene.beat("a", -1)
    since = len(scene.log)
    scene.end_computation()
    assert scene.keys_written(since) == []
    scene.member("a")
    scene.beat("a", -1)
    scene.turn(lambda core: core.delete_group("billing"))
    since = len(scene.log)
    scene.end_computation()
    assert scene.keys_written(since) == []


def test_a_restart_during_the_computation_begins_it_again() -> None:
    scene = large_group()
    scene.member("a")
    scene.restart()
    scene.cluster.computing.clear()
    assert scene.beat("a").statuses == (DELAYED,)
    scene.end_computation()
    assert scene.beat("a") == StreamsHeartbeatResult(OK, 2, "0:0123")


@pytest.mark.parametrize("seed", range(30))
def test_no_task_has_two_owners_whenever_computations_end(seed: int) -> None:
    """Members join, leave and follow their assignments. Each computation finishes at a random later time."""
    rng = Random(seed)
    reads = topology(subtopology("0", ["i4"]), subtopology("1", ["i4"], ["log"]))
    scene = StreamsScene(topics={"i4": 4, "log": 4}, reads=reads, standby=1, interval_ms=rng.choice([0, 1_000]))
    scene.cluster.computes_later = True
    names, present = "abcdef", set[str]()

    def step(name: str) -> None:
        heartbeat = scene.beat(name)
        if heartbeat.tasks is not None:
            active, _, standby = heartbeat.tasks.partition("|")
            scene.beat(name, owned=active, standby=standby)

    def check() -> None:
        active = [task for name in present for task in expanded(scene.held(name).partition("|")[0])]
        assert len(active) == len(set(active)), "a task has two owners"

    for _ in range(120):
        name = rng.choice(names)
        match rng.choice(["step", "step", "step", "join", "leave", "end", "end", "time"]):
            case "step" if name in present:
                step(name)
            case "join" if name not in present:
                scene.member(name, process=rng.choice(["P", "Q", "R"]))
                present.add(name)
            case "leave" if name in present and len(present) > 1:
                scene.beat(name, -1)
                scene.epochs.pop(name)
                present.remove(name)
            case "end" if scene.cluster.computing:
                scene.end_computation()
            case "time":
                scene.advance(400)
        check()
    for _ in range(20):
        scene.advance(1_000)
        for name in sorted(present):
            step(name)
            check()
        if scene.cluster.computing:
            scene.end_computation()
    assert scene.state[0] == "Stable"
    owned = sorted(task for name in present for task in expanded(scene.held(name).partition("|")[0]))
    assert owned == [f"{each}:{partition}" for each in "01" for partition in range(4)]


def expanded(text: str) -> list[str]:
    return [f"{part[0]}:{digit}" for part in text.split() for digit in part[2:]]


# --- The records of a target, which are encoded in the last steps of its computation.


def interrupted() -> Iterator[StreamsScene]:
    """Yields a settled group that a third member has joined, once for each step after which the computation of its
    target can be interrupted. In the last scene, all records of the target are encoded."""
    number, has_more = 0, True
    while has_more:
        scene = settled_group()
        scene.member("b")
        has_more = scene.compute(number)
        yield scene
        number += 1


def test_a_heartbeat_during_any_step_is_answered_with_the_current_tasks() -> None:
    for scene in interrupted():
        since = len(scene.log)
        assert scene.beat("a") == StreamsHeartbeatResult(OK, 3, None, (DELAYED,))
        assert scene.keys_written(since) == []
        scene.end_computation()
        assert scene.state == ("Reconciling", 4, 4)
        assert sorted("".join(scene.target(name)[2:] for name in "abc")) == ["0", "1", "2", "3"]


def test_a_member_that_leaves_during_any_step_gets_no_record_and_its_tasks_follow_later() -> None:
    for scene in interrupted():
        scene.beat("c", -1)
        since = len(scene.log)
        scene.end_computation()
        keys = [record.key for record in scene.written(since)]
        assert {key.member_id for key in keys if isinstance(key, StreamsGroupTargetAssignmentMemberKey)} <= {"a", "b"}
        assert scene.state == ("Assigning", 5, 4)
        scene.beat("a")
        scene.end_computation()
        assert scene.state[1:] == (5, 5)
        assert sorted(scene.target("a")[2:] + scene.target("b")[2:]) == ["0", "1", "2", "3"]


def test_a_member_that_leaves_and_comes_back_during_any_step_gets_the_record_that_its_departure_removed() -> None:
    for scene in interrupted():
        scene.beat("c", -1)
        scene.member("c", process="C")
        scene.end_computation()
        assert scene.state == ("Assigning", 6, 4)
        targets = scene.group_of().targets
        assert targets["c"].active
        scene.restart()
        assert scene.group_of().targets == targets


def test_a_member_that_joins_during_any_step_gets_its_tasks_from_the_next_target() -> None:
    for scene in interrupted():
        scene.member("d")
        scene.end_computation()
        assert (scene.state, scene.target("d")) == (("Assigning", 5, 4), "")
        scene.beat("a")
        scene.end_computation()
        assert scene.state[1:] == (5, 5)
        assert scene.target("d") != ""


def test_nothing_is_recorded_for_a_group_that_was_deleted_during_any_step() -> None:
    for scene in interrupted():
        for name in "abc":
            scene.beat(name, -1)
        scene.turn(lambda core: core.delete_group("billing"))
        since = len(scene.log)
        scene.end_computation()
        assert scene.keys_written(since) == []


def test_the_records_of_a_target_are_one_batch_with_its_epoch_at_the_end() -> None:
    scene = large_group()
    for name in "abc":
        scene.member(name)
        scene.end_computation()
    scene.member("d")
    computed = run_to_end(scene.cluster.computing.pop("billing"))
    outcome = scene.core.target_computed("billing", computed, scene.now_ms)
    assert [record.key.API_KEY for record in outcome.records] == [TARGET] * (len(outcome.records) - 1) + [TARGET_EPOCH]
    assert len(outcome.records) > 2
    assert not outcome.may_split


def test_a_record_that_was_encoded_early_is_what_encoding_and_replaying_it_now_produces() -> None:
    reads = topology(subtopology("0", ["i4"]), subtopology("1", ["i4"], ["log"]))
    scene = StreamsScene(topics={"i4": 4, "log": 4}, reads=reads, standby=1)
    scene.member("a")
    scene.cluster.computes_later = True
    scene.member("b")
    computed = run_to_end(scene.cluster.computing["billing"])
    assert computed.records
    for member_id, record in computed.records.items():
        assert record.prepared is not None
        key, value, content = record.prepared
        plain = target_record("billing", member_id, computed.targets[member_id])
        assert (key, value) == encode_record(plain)
        decoded = decode_record(key, value)
        assert decoded is not None
        assert isinstance(decoded.value, StreamsGroupTargetAssignmentMemberValue)
        assert content == target_of(decoded.value) == computed.targets[member_id]


# --- The steps of a computation.


def counting(steps: int, log: list[str], name: str) -> Steps[str]:
    for number in range(steps):
        log.append(f"{name}{number}")
        yield
    return name


def test_little_work_is_done_at_once_and_much_work_later_one_group_after_another() -> None:
    async def scenario() -> None:
        log: list[str] = []
        ended: list[tuple[str, str]] = []
        computations = TargetComputations(max_unsliced=10)
        computations.when_computed(lambda group_id, result: ended.append((group_id, result)))
        assert computations.compute("small", 10, counting(2, log, "s")) == "s"
        assert computations.compute("g", 11, counting(2, log, "g")) is None
        assert computations.compute("h", 11, counting(2, log, "h")) is None
        assert computations.compute("g", 11, counting(2, log, "again")) is None
        assert log == ["s0", "s1"]
        while len(ended) < 2:
            await asyncio.sleep(0)
        assert log == ["s0", "s1", "g0", "g1", "h0", "h1"]
        assert ended == [("g", "g"), ("h", "h")]
        assert computations.compute("g", 11, counting(1, log, "g")) is None
        while len(ended) < 3:
            await asyncio.sleep(0)

    asyncio.run(scenario())


@pytest.mark.traceback("cannot be computed")
def test_a_computation_that_fails_is_logged_and_leaves_the_others_alone() -> None:
    def failing() -> Steps[str]:
        yield
        raise ZeroDivisionError

    async def scenario() -> None:
        ended: list[str] = []
        computations = TargetComputations(max_unsliced=0)
        computations.when_computed(lambda group_id, _: ended.append(group_id))
        computations.compute("bad", 1, failing())
        computations.compute("good", 1, counting(1, [], "good"))
        while not ended:
            await asyncio.sleep(0)
        assert ended == ["good"]

    asyncio.run(scenario())
