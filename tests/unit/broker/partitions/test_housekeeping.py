"""Tests that chores visit all partitions regularly, without blocking the loop."""

from types import SimpleNamespace
from typing import Any

from odradek.broker.partitions.housekeeping import NEVER_MS, SLICE_MS, Chore, Housekeeping
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.support.clock import ManualTimers


def partitions(count: int) -> list[Any]:
    return [SimpleNamespace(index=index, is_deleted=False) for index in range(count)]


class House:
    def __init__(self, count: int = 3, *, interval_ms: int | None = 1000, work_ms: int = 0) -> None:
        self.timers = ManualTimers()
        self.partitions = partitions(count)
        self.visited: list[int] = []
        self.ended_at: list[int] = []
        self.interval_ms = interval_ms
        self._work_ms = work_ms
        chore = Chore("sweeping", lambda: self.interval_ms, self.visit, self.ended_at.append)
        self.keeping = Housekeeping([chore], lambda: self.partitions, self.timers.clock, self.timers)

    def visit(self, partition: Any, now_ms: int) -> None:
        self.visited.append(partition.index)
        self.timers.clock.advance(self._work_ms)
        if partition.index == 13:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)


def test_a_chore_visits_every_partition_and_comes_again() -> None:
    house = House()
    house.keeping.start(initial_delay_ms=10_000)
    house.timers.advance(999)
    assert house.visited == []
    house.timers.advance(1)
    assert house.visited == [0, 1, 2]
    house.timers.advance(1000)
    assert house.visited == [0, 1, 2] * 2
    assert house.ended_at == [1000, 2000]


def test_the_first_run_need_not_wait_for_a_whole_interval() -> None:
    house = House(interval_ms=300_000)
    house.keeping.start(initial_delay_ms=30_000)
    house.timers.advance(30_000)
    assert house.visited == [0, 1, 2]
    house.timers.advance(299_999)
    assert house.visited == [0, 1, 2]


def test_work_is_cut_into_slices() -> None:
    house = House(10, work_ms=SLICE_MS // 2)
    house.keeping.start(1)
    house.timers.advance(1)
    assert house.visited == list(range(10))
    house.visited.clear()
    house.keeping.stop()

    house.keeping.start(1)
    began_ms = house.timers.clock.now_ms()
    first_slice = SLICE_MS // (SLICE_MS // 2)
    seen_between: list[int] = []
    house.timers.after(1, lambda: seen_between.append(len(house.visited)))
    house.timers.advance(1)
    assert seen_between == [first_slice], "another timer had its turn after the first slice"
    assert house.timers.clock.now_ms() > began_ms


def test_a_partition_deleted_between_slices_is_left_alone() -> None:
    house = House(3)
    house.partitions[1].is_deleted = True
    house.keeping.start(1)
    house.timers.advance(1)
    assert house.visited == [0, 2]


def test_one_partition_that_fails_does_not_keep_the_others_waiting() -> None:
    house = House(15)
    house.keeping.start(1)
    house.timers.advance(1)
    assert house.visited == list(range(15))
    assert len(house.ended_at) == 1


def test_an_interval_may_mean_never_and_may_change() -> None:
    for never in (None, NEVER_MS, 2**63 - 1):
        house = House(interval_ms=never)
        house.keeping.start(1)
        assert house.timers.armed() == []
    house = House(interval_ms=1000)
    house.keeping.start(1)
    house.interval_ms = 50
    house.timers.advance(1)
    assert house.timers.armed() == [50]


def test_after_stop_nothing_runs() -> None:
    house = House()
    house.keeping.start(1)
    house.keeping.stop()
    house.timers.advance(10_000)
    assert house.visited == []
