"""Tests that due timers fire in order while time is controlled, whatever the system clock does."""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from typing import Protocol

import pytest

from odradek.broker.runtime.clock import Scan
from odradek.broker.runtime.controlled_time import ControlledTime
from tests.simulation.virtual_time import Life, VirtualTime

DAY_MS = 24 * 3600 * 1000
TEN_HOURS_MS = 10 * 3600 * 1000
MAX_ARMED_TIMERS = 30


class Cancellable(Protocol):
    def cancel(self) -> None: ...


async def settled() -> None:
    await asyncio.sleep(0)


async def test_a_frozen_clock_stands_and_no_timer_fires() -> None:
    time = ControlledTime(asyncio.get_running_loop(), 1000, is_frozen=True)
    fired: list[int] = []
    time.after(1, lambda: fired.append(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (time.now_ms(), fired) == (1000, [])


async def test_timers_without_a_delay_fire_while_the_clock_is_frozen() -> None:
    """Checks that timers without a delay fire in the order in which they were armed, although time is frozen."""
    time = ControlledTime(asyncio.get_running_loop(), 1000)
    fired: list[str] = []
    time.after(0, lambda: fired.append("armed before"))
    time.freeze()

    def first() -> None:
        fired.append("first")
        time.after(0, lambda: fired.append("armed by it"))

    time.after(0, first)
    time.after(0, lambda: fired.append("second"))
    assert fired == []
    while len(fired) < 4:
        await asyncio.sleep(0)
    assert fired == ["armed before", "first", "second", "armed by it"]
    assert (time.now_ms(), time.is_frozen) == (1000, True)


async def test_an_advance_runs_what_becomes_due_in_its_order_and_at_its_time() -> None:
    time = ControlledTime(asyncio.get_running_loop(), 0, is_frozen=True)
    fired: list[tuple[str, int]] = []

    def first() -> None:
        fired.append(("first", time.now_ms()))
        time.after(5, lambda: fired.append(("armed by it", time.now_ms())))

    time.after(30, lambda: fired.append(("last", time.now_ms())))
    time.after(10, first)
    time.after(31, lambda: fired.append(("later", time.now_ms())))
    await time.advance(30, settled)
    assert fired == [("first", 10), ("armed by it", 15), ("last", 30)]
    assert time.now_ms() == 30


async def test_callbacks_of_one_timer_run_before_the_next_timer_fires() -> None:
    loop = asyncio.get_running_loop()
    time = ControlledTime(loop, 0, is_frozen=True)
    happened: list[str] = []

    def first() -> None:
        loop.call_soon(happened.append, "a turn later")

    time.after(1, first)
    time.after(2, lambda: happened.append("the next timer"))
    await time.advance(2, settled)
    assert happened == ["a turn later", "the next timer"]


async def test_a_cancelled_timer_does_not_fire_and_many_do_not_pile_up() -> None:
    time = ControlledTime(asyncio.get_running_loop(), 0, is_frozen=True)
    fired: list[int] = []
    kept = [time.after(DAY_MS, lambda: fired.append(1)) for _ in range(10_000)]
    for timer in kept[1:]:
        timer.cancel()
    await time.advance(DAY_MS, settled)
    assert fired == [1]


async def test_a_resumed_clock_continues_from_its_frozen_time() -> None:
    loop = asyncio.get_running_loop()
    time = ControlledTime(loop, 0, is_frozen=True)
    await time.advance(7 * DAY_MS, settled)
    fired = loop.create_future()
    time.after(1, lambda: fired.set_result(time.now_ms()))
    time.resume()
    assert await asyncio.wait_for(fired, 10) >= 7 * DAY_MS + 1


async def test_a_clock_stands_at_any_millisecond() -> None:
    loop = asyncio.get_running_loop()
    times_ms = range(1_764_230_400_000, 1_764_230_401_000)
    assert [ControlledTime(loop, each, is_frozen=True).now_ms() for each in times_ms] == list(times_ms)


class SystemNs:
    """A fake system wall clock, which an administrator may set."""

    def __init__(self) -> None:
        self.ms = 5_000

    def __call__(self) -> int:
        return self.ms * 1_000_000


@pytest.mark.parametrize(
    ("touch", "moved_ms"),
    [(ControlledTime.freeze, 0), (lambda time: time.jump(-DAY_MS), -DAY_MS)],
    ids=["frozen", "set"],
)
async def test_an_untouched_clock_is_the_systems_and_another_one_is_not(
    touch: Callable[[ControlledTime], None], moved_ms: int
) -> None:
    system = SystemNs()
    time = ControlledTime(asyncio.get_running_loop(), system_ns=system)
    system.ms = 9 * DAY_MS
    assert time.now_ms() == 9 * DAY_MS
    touch(time)
    system.ms = 0
    assert 0 <= time.now_ms() - (9 * DAY_MS + moved_ms) < DAY_MS


async def test_the_steady_time_does_not_notice_a_wall_clock_that_is_set() -> None:
    time = ControlledTime(asyncio.get_running_loop(), DAY_MS, is_frozen=True)
    steady = time.steady
    await time.set(0, settled)
    await time.advance(10, settled)
    assert (time.now_ms(), steady.now_ms(), time.steady.now_ms()) == (10, DAY_MS + 10, 10)


async def test_a_clock_set_back_moves_no_timer() -> None:
    time = ControlledTime(asyncio.get_running_loop(), DAY_MS, is_frozen=True)
    fired: list[int] = []
    time.after(10, lambda: fired.append(time.now_ms()))
    await time.set(DAY_MS // 2, settled)
    assert (time.now_ms(), fired) == (DAY_MS // 2, [])
    await time.advance(10, settled)
    assert fired == [DAY_MS // 2 + 10]


async def test_a_timer_that_fails_keeps_no_other_from_firing() -> None:
    loop = asyncio.get_running_loop()
    errors: list[str] = []
    loop.set_exception_handler(lambda _, context: errors.append(str(context["exception"])))
    time = ControlledTime(loop, 0, is_frozen=True)
    fired: list[int] = []
    time.after(1, lambda: fired.append(1 // 0))
    time.after(1, lambda: fired.append(1))
    await time.advance(1, settled)
    assert (fired, errors) == ([1], ["integer division or modulo by zero"])


@pytest.mark.parametrize("seed", range(20))
async def test_random_timers_fire_as_sorted_by_their_times(seed: int) -> None:
    random = Random(seed)
    time = ControlledTime(asyncio.get_running_loop(), 0, is_frozen=True)
    fired: list[int] = []
    timers = {number: time.after(random.randrange(1000), partial(fired.append, number)) for number in range(200)}
    gone = random.sample(sorted(timers), 50)
    for number in gone:
        timers[number].cancel()
    random.seed(seed)
    due = {number: random.randrange(1000) for number in range(200)}
    while time.now_ms() < 1000:
        await time.advance(random.randrange(1, 200), settled)
    assert fired == sorted(timers.keys() - set(gone), key=due.__getitem__)


class World:
    """Holds the due times of events, some of which are added by timers, and scans periodically for due events. If
    `tells` is set, the clock can ask each scan when the next event is due."""

    def __init__(self, seed: int, *, tells: bool) -> None:
        self.random = Random(seed)
        self.time = ControlledTime(asyncio.get_running_loop(), 0, is_frozen=True)
        self.due: list[int] = []
        self.found: list[tuple[int, int]] = []
        self.runs = 0
        self.tells = tells
        for interval_ms in (10, 15, 700):
            self.arm(interval_ms)
        for at_ms in (3_000, 3_007, 50_000):
            self.time.after(at_ms, partial(self.add, at_ms))

    def arm(self, interval_ms: int) -> None:
        action = partial(self.scan, interval_ms)
        self.time.after(interval_ms, Scan(action, interval_ms, self.first) if self.tells else action)

    def first(self) -> int | None:
        return min(self.due, default=None)

    def add(self, now_ms: int) -> None:
        self.due += [now_ms + self.random.randrange(5_000) for _ in range(3)]

    def scan(self, interval_ms: int) -> None:
        self.runs += 1
        self.arm(interval_ms)
        now_ms = self.time.now_ms()
        for each in [each for each in self.due if each <= now_ms]:
            self.due.remove(each)
            self.found.append((each, now_ms))


@pytest.mark.parametrize("seed", range(10))
async def test_an_advance_leaves_out_scans_that_find_nothing_and_no_other(seed: int) -> None:
    telling, plain = World(seed, tells=True), World(seed, tells=False)
    for world in (telling, plain):
        for _ in range(4):
            await world.time.advance(17_003, settled)
    assert sorted(telling.found) == sorted(plain.found)
    assert len(telling.found) == 9
    assert telling.runs < 50 < 10_000 < plain.runs


async def test_scans_heed_a_wall_clock_that_was_set_back() -> None:
    world = World(0, tells=True)
    await world.time.advance(1_000, settled)
    await world.time.set(500, settled)
    world.due.append(600)
    await world.time.advance(1_000, settled)
    assert world.found == [(600, 600)]


Arm = Callable[[float, Callable[[], None]], Cancellable]


class RandomTimers:
    """Timers that arm and cancel other timers when they fire. The seed determines what each timer does."""

    def __init__(self, seed: int, now_ms: Callable[[], int], arm: Arm) -> None:
        self.fired: list[tuple[int, int]] = []  # (time, number) of each fired timer
        self._random = Random(seed)
        self._now_ms = now_ms
        self._arm = arm
        self._armed: dict[int, Cancellable] = {}
        self._numbers = count()
        for _ in range(MAX_ARMED_TIMERS // 2):
            self._arm_one()

    def _arm_one(self) -> None:
        number = next(self._numbers)
        delay_ms = self._random.choice((0, 1, 1_000, 60_000, self._random.randrange(1, 15 * 60_000)))
        self._armed[number] = self._arm(delay_ms, partial(self._fire, number))

    def _fire(self, number: int) -> None:
        del self._armed[number]
        self.fired.append((self._now_ms(), number))
        for _ in range(self._random.choice((0, 1, 1, 2, 3)) if self._armed else 2):
            if len(self._armed) < MAX_ARMED_TIMERS:
                self._arm_one()
        if self._armed and self._random.random() < 0.2:
            self._armed.pop(self._random.choice(list(self._armed))).cancel()


@pytest.mark.parametrize("seed", range(5))
async def test_ten_hours_of_random_timers_are_those_of_a_simulation_with_their_seed(seed: int) -> None:
    simulated, life = VirtualTime(0), Life()
    expected = RandomTimers(seed, simulated.now_ms, lambda delay_ms, action: simulated.after(delay_ms, action, life))
    while simulated.step(TEN_HOURS_MS):
        pass
    time = ControlledTime(asyncio.get_running_loop(), 0, is_frozen=True)
    found = RandomTimers(seed, time.now_ms, time.after)
    steps = Random(-seed)
    while time.now_ms() < TEN_HOURS_MS:
        await time.advance(min(steps.choice((0, 1, 999, 3_600_000)), TEN_HOURS_MS - time.now_ms()), settled)
    assert found.fired == expected.fired
    assert found.fired[-1][0] > TEN_HOURS_MS - DAY_MS // 24
    assert len(found.fired) > 1_000
