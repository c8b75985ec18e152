"""Tests a client's measurements on a clock that the test advances. As in Kafka, rates and averages cover the last two
windows."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest

from odradek.client.metrics.sensors import WINDOW_S, MetricGroup, Sensor, Sensors
from odradek.client.metrics.values import Metric, MetricKind, Metrics, Unit


class Seconds:
    """A clock that a test advances by whole or fractional seconds."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


def read(*sensors: Sensor) -> Sensors:
    return Sensors(lambda: sensors)


def test_sensors_of_several_parts_are_read_as_one(clock: Seconds) -> None:
    one, other = Sensor(clock), Sensor(clock)
    one.record(10)
    clock.now_s += 45
    other.record(20)
    other.record(60)
    both = read(one, other)
    assert (both.total, both.count, both.average(), both.largest()) == (90, 3, 30, 60)
    assert both.rate() == one.rate() + other.rate()
    assert both.events_rate() == one.events_rate() + other.events_rate()


def test_nothing_measured_has_a_rate_of_0_and_no_average(clock: Seconds) -> None:
    sensor = Sensor(clock)
    assert (sensor.rate(), sensor.events_rate(), sensor.total, sensor.count) == (0, 0, 0, 0)
    assert all(map(math.isnan, (read(sensor).average(), read(sensor).largest())))


def test_a_client_that_has_just_begun_shows_the_rate_of_a_whole_window(clock: Seconds) -> None:
    sensor = Sensor(clock)
    clock.now_s += 0.001
    sensor.record(300)
    assert sensor.rate() == pytest.approx(300 / WINDOW_S, rel=0.001)


def test_rates_cover_the_window_before_and_the_current_one(clock: Seconds) -> None:
    sensor = Sensor(clock)
    sensor.record(60)
    clock.now_s += 45
    sensor.record(30)
    assert sensor.rate() == 90 / 45
    assert sensor.events_rate() == 2 / 45
    assert (read(sensor).average(), read(sensor).largest()) == (45, 60)


def test_values_older_than_two_windows_count_only_in_the_total(clock: Seconds) -> None:
    sensor = Sensor(clock)
    sensor.record(60)
    clock.now_s += 40
    sensor.record(30)
    clock.now_s += 40
    assert (read(sensor).average(), read(sensor).largest()) == (30, 30)
    assert sensor.rate() == 30 / 40
    clock.now_s += 40
    assert (sensor.rate(), sensor.total, sensor.count) == (0, 90, 2)
    assert math.isnan(read(sensor).average())


def test_reading_changes_nothing(clock: Seconds) -> None:
    """Checks that reading has no side effects, because another thread may read at the same time."""
    sensor = Sensor(clock)
    sensor.record(10)
    clock.now_s += 29
    assert {sensor.rate() for _ in range(100)} == {10 / WINDOW_S * WINDOW_S / 59}
    sensor.record(20)
    assert read(sensor).average() == 15


def test_the_time_of_calls_that_overlap_or_raise_is_counted(clock: Seconds) -> None:
    group = MetricGroup("producer-metrics", clock)
    spent = group.time_spent("flush", "time spent in flush")
    with spent:
        clock.now_s += 2
        with suppress(RuntimeError), spent:
            clock.now_s += 3
            raise RuntimeError
    (found,) = group.read({})
    assert (found.name, found.value, found.unit, found.kind) == (
        "flush-time-ns-total",
        8e9,
        Unit.NANOSECONDS,
        MetricKind.COUNTER,
    )


def test_a_meter_gives_a_rate_and_a_total_of_values_or_of_events(clock: Seconds) -> None:
    group = MetricGroup("producer-metrics", clock)
    size = group.average("request-size", Unit.BYTES, "size of a request in bytes")
    group.meter_of(size, "request", "requests", counts_events=True)
    group.meter_of(size, "outgoing-byte", "bytes sent", is_bytes=True)
    size.record(100)
    size.record(500)
    clock.now_s += 60 - 1e-9
    found = {each.name: (round(each.value, 3), each.unit) for each in group.read({})}
    assert found == {
        "request-size-avg": (300, Unit.BYTES),
        "request-size-max": (500, Unit.BYTES),
        "request-rate": (0.033, Unit.PER_SECOND),
        "request-total": (2, Unit.COUNT),
        "outgoing-byte-rate": (10, Unit.BYTES_PER_SECOND),
        "outgoing-byte-total": (600, Unit.BYTES),
    }


def test_a_value_is_found_by_its_name_and_just_its_tags() -> None:
    def metric(value: float, group: str = "g", **tags: str) -> Metric:
        return Metric("m", group, {"client-id": "c", **tags}, Unit.COUNT, MetricKind.GAUGE, "", value)

    found = Metrics((metric(1), metric(2, topic="t"), metric(3, **{"node-id": "node-1"})))
    assert (found.value("m"), found.value("m", topic="t"), found.value("m", node_id="node-1")) == (1, 2, 3)
    with pytest.raises(KeyError, match="no metric 'm'"):
        found.value("m", topic="other")
    twice = Metrics((metric(1), metric(2, "other")))
    with pytest.raises(KeyError, match="groups g, other"):
        twice.value("m")
    assert twice.value("m", group="other") == 2
