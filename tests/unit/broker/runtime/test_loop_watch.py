"""Tests the loop's watchdog, which measures the delay of ticks and names work that took too long."""

import gc
import logging
from itertools import count

import pytest

from odradek.broker.runtime.loop_watch import (
    BUSY_TICK_MS,
    GARBAGE_COLLECTION,
    IDLE_TICK_MS,
    LONG_S,
    LoopWatch,
    WatchedTimers,
)
from tests.support.clock import ManualClock, ManualTimers


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000)
        self.timers = ManualTimers(self.clock)
        self.behind_s = 0.0  # how long work has blocked the loop; not included in the timers' clock
        self.watch = LoopWatch(self.timers, lambda: self.clock.now_ms() / 1000 + self.behind_s)
        self.requests = 0
        self.watch.start(lambda: self.requests)

    def work(self, time_s: float) -> None:
        self.behind_s += time_s

    @property
    def late_ticks(self) -> int:
        """Returns the number of ticks that were more than 4 ms late."""
        return sum(self.watch.tick_delays[13:])

    @property
    def ticks(self) -> int:
        return sum(self.watch.tick_delays)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_tick_that_comes_in_time_is_not_late(scene: Scene) -> None:
    scene.timers.advance(BUSY_TICK_MS)
    assert (scene.ticks, scene.late_ticks) == (1, 0)


def test_a_tick_that_work_holds_up_is_as_late_as_the_work_was_long(scene: Scene) -> None:
    scene.work(0.250)
    scene.timers.advance(BUSY_TICK_MS)
    assert scene.late_ticks == 1
    assert scene.watch.late_s == pytest.approx(0.25)
    assert scene.watch.tick_delays[(250_000).bit_length()] == 1


def test_ticks_are_few_while_no_requests_come(scene: Scene) -> None:
    scene.timers.advance(BUSY_TICK_MS)  # the first tick finds that there was no request
    scene.timers.advance(10 * IDLE_TICK_MS)
    assert scene.ticks == 11
    for _ in range(20):
        scene.requests += 1
        scene.timers.advance(IDLE_TICK_MS)
    assert scene.ticks > 11 + 20


def test_long_work_is_counted_by_its_name(scene: Scene) -> None:
    for time_s in (0.004, 0.010, 0.030):
        scene.watch.record_duration("CreateTopics", time_s)
    found = scene.watch.blocking["CreateTopics"]
    assert (found.count, found.max_s) == (2, 0.030)
    assert found.total_s == pytest.approx(0.040)


def test_work_that_is_never_long_has_no_entry(scene: Scene) -> None:
    scene.watch.record_duration("Produce", LONG_S / 2)
    assert scene.watch.blocking == {}


def test_timed_work_is_counted_also_when_it_fails(scene: Scene) -> None:
    def fails() -> None:
        scene.work(0.1)
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        scene.watch.time_action("writes", fails)()
    assert scene.watch.blocking["writes"].count == 1


def test_the_actions_of_watched_timers_are_timed(scene: Scene) -> None:
    WatchedTimers(scene.timers, scene.watch, "housekeeping").after(10, lambda: scene.work(0.02))
    scene.timers.advance(10)
    assert scene.watch.blocking["housekeeping"].max_s == pytest.approx(0.02)


def test_garbage_collection_is_timed_until_the_watch_stops() -> None:
    times = count()
    watch = LoopWatch(ManualTimers(ManualClock(0)), lambda: next(times) * 0.2)
    before = list(gc.callbacks)
    watch.start(lambda: 0)
    gc.collect()
    assert watch.blocking[GARBAGE_COLLECTION].max_s == pytest.approx(0.2)
    watch.stop()
    assert gc.callbacks == before


def test_the_log_says_what_kept_the_loop(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "odradek.loop")
    scene.watch.record_duration("CreateTopics", 0.25)
    scene.watch.record_duration("garbage collection", 1.5)
    assert [(each.levelname, "CreateTopics" in each.message) for each in caplog.records] == [
        ("DEBUG", True),
        ("WARNING", False),
    ]


def test_the_log_says_when_nothing_that_is_timed_explains_a_late_tick(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "odradek.loop")
    scene.work(0.020)
    scene.timers.advance(BUSY_TICK_MS)
    assert "20.0 ms late" in caplog.text
