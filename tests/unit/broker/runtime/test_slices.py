"""Tests that work on a very large number of items is done in slices, and that other work runs between the slices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count, pairwise
from time import perf_counter

import pytest

from odradek.broker.runtime.loop_watch import LoopWatch
from odradek.broker.runtime.slices import (
    ENTRIES_PER_SLICE,
    ENTRIES_PER_SLICE_UNDER_LOAD,
    MAX_DECODED_BYTES,
    MAX_LONG_REQUESTS,
    NAMES_PER_RUN,
    SLICE_S,
    Rotation,
    Steps,
    in_order,
    run_to_end,
    sliced,
    visit_in_slices,
    work_in_slices,
)
from odradek.broker.runtime.waiting import Deferred
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.support.clock import ManualClock, ManualTimers

NOW_MS = 1_700_000_000_000


def visited(each_s: float) -> list[str]:
    """Visits the items a and b, each of which takes `each_s`, while another coroutine gets two turns. Returns the
    events in order."""
    happened: list[str] = []

    async def other() -> None:
        for _ in range(2):
            happened.append("other")
            await asyncio.sleep(0)

    async def both() -> None:
        watch = LoopWatch(ManualTimers(ManualClock(NOW_MS)), count(0.0, each_s).__next__)
        await asyncio.gather(visit_in_slices(["a", "b"], happened.append, watch, "test"), other())

    asyncio.run(both())
    return happened


def test_others_get_their_turn_after_each_slice() -> None:
    assert visited(SLICE_S * 1.5) == ["a", "other", "b", "other"]


def test_other_work_gets_a_turn_after_each_slice_of_many_visits() -> None:
    """Checks that other work gets a turn after each slice, although many visits are running at the same time. For
    example, each of 200 open pages lists all topics once a second."""
    happened: list[str] = []

    async def other(visits: list[asyncio.Task[None]]) -> None:
        while not all(each.done() for each in visits):
            happened.append("other")
            await asyncio.sleep(0)

    async def all_of_them() -> None:
        watch = LoopWatch(ManualTimers(ManualClock(NOW_MS)), count(0.0, SLICE_S * 1.5).__next__)
        visits = [visit_in_slices(["item"] * 3, happened.append, watch, "test") for _ in range(20)]
        tasks = [asyncio.create_task(each) for each in visits]
        await other(tasks)

    asyncio.run(all_of_them())
    assert happened.count("item") == 60
    assert not any(pair == ("item", "item") for pair in pairwise(happened))


def test_a_visit_that_fits_into_one_slice_takes_one_turn() -> None:
    assert visited(SLICE_S / 3) == ["a", "b", "other", "other"]


def counted(entries: int, looked_at: list[int]) -> Steps[str]:
    for entry in range(entries):
        looked_at.append(entry)
        yield
    return "all"


async def test_a_sliced_handler_answers_at_once_if_one_slice_is_enough() -> None:
    assert sliced(counted)(ENTRIES_PER_SLICE - 1, []) == "all"


async def test_others_are_served_after_each_slice_of_a_long_request() -> None:
    looked_at: list[int] = []
    reply = sliced(counted)(10 * ENTRIES_PER_SLICE, looked_at)
    assert isinstance(reply, Deferred)
    seen = [len(looked_at)]
    while not reply.is_done:
        await asyncio.sleep(0)
        seen.append(len(looked_at))
    assert reply.outcome() == "all"
    assert max(after - before for before, after in pairwise(seen)) <= ENTRIES_PER_SLICE


async def test_each_turn_runs_at_most_two_slices_of_long_requests() -> None:
    looked_at: list[int] = []
    replies = [sliced(counted)(4 * ENTRIES_PER_SLICE, looked_at) for _ in range(3 * MAX_LONG_REQUESTS)]
    seen = [len(looked_at)]
    while not all(isinstance(reply, Deferred) and reply.is_done for reply in replies):
        await asyncio.sleep(0)
        seen.append(len(looked_at))
    assert len(looked_at) == 3 * MAX_LONG_REQUESTS * 4 * ENTRIES_PER_SLICE
    assert max(after - before for before, after in pairwise(seen)) <= 2 * ENTRIES_PER_SLICE


async def test_a_request_that_ends_does_not_cost_another_request_its_turn() -> None:
    order: list[str] = []

    def noted(name: str, slices: int) -> Steps[str]:
        for entry in range(slices * ENTRIES_PER_SLICE):
            if entry % ENTRIES_PER_SLICE == 0:
                order.append(name)
            yield
        return name

    replies = [sliced(noted)(name, slices) for name, slices in (("a", 2), ("b", 4), ("c", 4))]
    while not all(isinstance(reply, Deferred) and reply.is_done for reply in replies):
        await asyncio.sleep(0)
    assert "".join(order) == "abcabcbcbc"


async def test_long_requests_that_came_later_wait_until_one_before_them_has_its_answer() -> None:
    before = [sliced(counted)(3 * ENTRIES_PER_SLICE, []) for _ in range(MAX_LONG_REQUESTS)]
    looked_at: list[int] = []
    reply = sliced(counted)(3 * ENTRIES_PER_SLICE, looked_at)
    assert isinstance(reply, Deferred)
    while not any(isinstance(each, Deferred) and each.is_done for each in before):
        assert len(looked_at) == ENTRIES_PER_SLICE_UNDER_LOAD
        await asyncio.sleep(0)
    while not reply.is_done:
        await asyncio.sleep(0)
    assert reply.outcome() == "all"


async def test_a_short_request_is_answered_at_once_in_a_crowd_too_while_its_turn_has_time_for_beginnings() -> None:
    for _ in range(2 * MAX_LONG_REQUESTS):
        sliced(counted)(3 * ENTRIES_PER_SLICE, [])
    for _ in range(2):
        await asyncio.sleep(0)
    assert sliced(counted)(ENTRIES_PER_SLICE_UNDER_LOAD - 1, []) == "all"


async def test_very_many_short_requests_in_a_crowd_share_a_slice_of_each_turn_and_are_answered_in_their_order() -> None:
    for _ in range(MAX_LONG_REQUESTS):
        sliced(counted)(3 * ENTRIES_PER_SLICE, [])
    looked_at: list[int] = []
    replies = [sliced(counted)(ENTRIES_PER_SLICE_UNDER_LOAD - 1, looked_at) for _ in range(500)]
    seen = [len(looked_at)]
    answered: list[bool] = []
    while len(answered) < len(replies):
        await asyncio.sleep(0)
        seen.append(len(looked_at))
        answered = [not isinstance(reply, Deferred) or reply.is_done for reply in replies]
        assert answered == sorted(answered, reverse=True)
        answered = [each for each in answered if each]
    assert max(after - before for before, after in pairwise([0, *seen])) <= ENTRIES_PER_SLICE
    assert replies[0] == "all"


class Decoders:
    """Decoder threads that finish a frame when the test calls `end`."""

    def __init__(self, rotation: Rotation) -> None:
        self._rotation = rotation
        self.decoding: dict[str, Callable[[str], None]] = {}

    def ask(self, name: str, frame_bytes: int, handle: Callable[[str], None] = lambda _: None) -> None:
        self._rotation.decode(frame_bytes, partial(self.decoding.__setitem__, name), handle)

    def end(self, name: str) -> None:
        self.decoding.pop(name)(name)


HALF = MAX_DECODED_BYTES // 2


async def test_frames_are_decoded_in_their_order_while_there_is_room_for_what_they_become() -> None:
    decoders = Decoders(Rotation())
    for name in "abcd":
        decoders.ask(name, HALF)
    assert [*decoders.decoding] == ["a", "b"]
    decoders.end("b")
    assert [*decoders.decoding] == ["a", "c"]


async def test_a_frame_that_is_larger_than_the_room_is_decoded_alone() -> None:
    decoders = Decoders(Rotation())
    decoders.ask("large", 10 * MAX_DECODED_BYTES)
    decoders.ask("small", 1)
    assert [*decoders.decoding] == ["large"]
    decoders.end("large")
    assert [*decoders.decoding] == ["small"]


async def test_a_request_takes_room_until_its_slices_are_done() -> None:
    rotation = Rotation()
    decoders = Decoders(rotation)
    answers: list[Deferred[str]] = []

    def handle(name: str) -> None:
        answers.append(Deferred())
        rotation.add(counted(3 * ENTRIES_PER_SLICE, []), answers[-1])

    decoders.ask("a", 2 * HALF, handle)
    decoders.ask("b", 2 * HALF, handle)
    decoders.end("a")
    while not answers[0].is_done:
        assert not decoders.decoding
        await asyncio.sleep(0)
    assert [*decoders.decoding] == ["b"]


async def test_a_request_that_its_handler_fails_to_answer_leaves_its_room() -> None:
    decoders = Decoders(Rotation())

    def fails(_: str) -> None:
        raise RuntimeError("a bug")

    decoders.ask("a", 2 * HALF, fails)
    decoders.ask("b", 2 * HALF)
    with pytest.raises(RuntimeError):
        decoders.end("a")
    assert [*decoders.decoding] == ["b"]


async def test_a_handler_in_slices_ends_when_the_client_has_gone() -> None:
    looked_at: list[int] = []
    reply = sliced(counted)(10 * ENTRIES_PER_SLICE, looked_at)
    assert isinstance(reply, Deferred)
    reply.abandon()
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(looked_at) == ENTRIES_PER_SLICE


async def test_an_error_in_a_later_slice_fails_the_response() -> None:
    def fails() -> Steps[str]:
        yield from counted(2 * ENTRIES_PER_SLICE, [])
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    reply = sliced(fails)()
    assert isinstance(reply, Deferred)
    while not reply.is_done:
        await asyncio.sleep(0)
    with pytest.raises(KafkaError):
        reply.outcome()


@pytest.mark.parametrize("size", [0, 1, NAMES_PER_RUN, 3 * NAMES_PER_RUN + 7])
def test_names_are_put_in_order_a_run_at_a_time(size: int) -> None:
    names = [f"name-{number * 7919 % (size or 1)}" for number in range(size)]

    def run() -> Steps[list[str]]:
        return list((yield from in_order(names)))

    whole, yields = run(), 0
    found: list[str] | None = None
    while found is None:
        try:
            next(whole)
            yields += 1
        except StopIteration as done:
            found = done.value
    assert (found, yields) == (sorted(names), size)


def steps_of_a_slice(name: str, done: list[str]) -> Steps[str]:
    for _ in range(3):
        until_s = perf_counter() + SLICE_S
        while perf_counter() < until_s:
            pass
        done.append(name)
        yield
    return name


async def test_works_take_turns_of_a_slice() -> None:
    done: list[str] = []
    await asyncio.gather(*(work_in_slices(steps_of_a_slice(name, done)) for name in "ab"))
    assert done == ["a", "b", "a", "b", "a", "b"]


async def test_others_have_a_turn_after_each_slice() -> None:
    done: list[str] = []
    work = asyncio.ensure_future(work_in_slices(steps_of_a_slice("a", done)))
    while not work.done():
        done.append(".")
        await asyncio.sleep(0)
    assert "aa" not in "".join(done)
    assert done.count("a") == 3


async def test_an_error_in_a_slice_is_raised() -> None:
    def fails() -> Steps[None]:
        yield
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    with pytest.raises(KafkaError):
        await work_in_slices(fails())


def test_steps_can_be_done_at_once() -> None:
    done: list[str] = []
    assert run_to_end(steps_of_a_slice("a", done)) == "a"
    assert done == ["a"] * 3
