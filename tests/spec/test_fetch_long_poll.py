"""Tests that a fetch that finds too little data waits until there are enough bytes, its maximum wait has passed, or its
client has disconnected."""

from odradek.broker.fetch.wait import FetchWait
from tests.support.clock import ManualTimers


class Place:
    """A stand-in for the partition from which fetches are waiting to read."""

    def __init__(self) -> None:
        self.parked: dict[FetchWait, None] = {}

    def park(self, wait: FetchWait) -> None:
        self.parked[wait] = None

    def unpark(self, wait: FetchWait) -> None:
        del self.parked[wait]

    def append(self, size_bytes: int) -> None:
        for wait in [wait for wait in self.parked if wait.count_appended(size_bytes)]:
            wait.wake()


class Fetch:
    """A waiting fetch that records its events."""

    def __init__(self, *places: Place, missing_bytes: int = 1, max_wait_ms: int = 500) -> None:
        self.timers = ManualTimers()
        self.events: list[str] = []
        self.wait = FetchWait(
            places,
            missing_bytes=missing_bytes,
            max_wait_ms=max_wait_ms,
            timers=self.timers,
            look=lambda: self.events.append("look"),
            time_is_over=lambda: self.events.append("time is over"),
        )


def test_one_byte_wakes_a_fetch_by_default() -> None:
    place = Place()
    fetch = Fetch(place)
    place.append(1)
    assert fetch.events == ["look"]


def test_bytes_of_all_partitions_add_up() -> None:
    one, other = Place(), Place()
    fetch = Fetch(one, other, missing_bytes=100)
    one.append(60)
    assert fetch.events == []
    other.append(40)
    assert fetch.events == ["look"]


def test_a_fetch_is_woken_once_until_it_has_looked() -> None:
    one, other = Place(), Place()
    fetch = Fetch(one, other)
    assert [fetch.wait.count_appended(1), fetch.wait.count_appended(1)] == [True, False]


def test_a_look_that_found_less_than_was_appended_waits_for_the_rest() -> None:
    """Checks that the fetch continues to wait. A read_committed consumer, for example, finds less than was appended
    while a transaction is open."""
    place = Place()
    fetch = Fetch(place, missing_bytes=10)
    place.append(10)
    fetch.wait.still_missing(10)
    place.append(9)
    assert fetch.events == ["look"]
    place.append(1)
    assert fetch.events == ["look", "look"]


def test_a_fetch_times_out_exactly_after_max_wait() -> None:
    fetch = Fetch(Place(), max_wait_ms=500)
    fetch.timers.advance(499)
    assert fetch.events == []
    fetch.timers.advance(1)
    assert fetch.events == ["time is over"]


def test_there_is_one_timer_however_many_partitions() -> None:
    fetch = Fetch(*(Place() for _ in range(50)))
    assert fetch.timers.armed() == [500]


def test_nothing_happens_after_the_end_of_a_fetch() -> None:
    place = Place()
    fetch = Fetch(place)
    fetch.wait.end()
    place.append(1)
    fetch.timers.advance(1000)
    assert fetch.events == []
    assert place.parked == {}
    assert fetch.timers.armed() == []
