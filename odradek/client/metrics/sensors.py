"""A client's measurements. Values are recorded as events happen and turned into rates, averages and maxima when the
metrics are read.

A client records once per request, response or batch, not once per record. Reading changes nothing, so any thread may
read while the event loop records.

Rates, averages and maxima cover the last 30 to 60 seconds, as in Kafka's clients with their default settings
(`metrics.sample.window.ms`, `metrics.num.samples`): two windows of 30 seconds each, including the current window.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from odradek.client.metrics.values import Metric, MetricKind, Unit

Clock = Callable[[], float]
"""A clock that returns monotonic seconds."""

WINDOW_S = 30.0
WINDOWS = 2
SECONDS_PER_HOUR = 3600.0
NANOSECONDS_PER_SECOND = 1e9
NAN = float("nan")


class Window:
    """The values recorded in one time window, which begins at `start_s`, and the sums of all earlier values."""

    __slots__ = ("before_count", "before_sum", "count", "end_s", "largest", "start_s", "sum")

    def __init__(self, start_s: float, before_sum: float = 0.0, before_count: int = 0) -> None:
        self.start_s = start_s
        self.end_s = start_s + WINDOW_S
        self.before_sum = before_sum
        self.before_count = before_count
        self.sum = 0.0
        self.count = 0
        self.largest = float("-inf")


class Sensor:
    """Records one measurement's values."""

    __slots__ = ("_before", "_clock", "_window")

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._before: Window | None = None
        self._window = Window(clock())

    def record(self, value: float = 1.0, now_s: float | None = None) -> None:
        """Records a value.

        now_s   current time on the sensor's clock, if the caller has just read it
        """
        now_s = self._clock() if now_s is None else now_s
        window = self._window
        if now_s >= window.end_s:
            self._before = window
            window = self._window = Window(now_s, window.before_sum + window.sum, window.before_count + window.count)
        window.sum += value
        window.count += 1
        if value > window.largest:
            window.largest = value

    @property
    def total(self) -> float:
        """The sum of all values since the client was created."""
        window = self._window
        return window.before_sum + window.sum

    @property
    def count(self) -> int:
        """The number of values since the client was created."""
        window = self._window
        return window.before_count + window.count

    def rate(self) -> float:
        """Returns the sum of the values per second."""
        recent, elapsed_s = self.recent()
        return sum(each.sum for each in recent) / elapsed_s

    def events_rate(self) -> float:
        """Returns the number of recorded values per second."""
        recent, elapsed_s = self.recent()
        return sum(each.count for each in recent) / elapsed_s

    def recent(self) -> tuple[list[Window], float]:
        """Returns the recent windows, and the number of seconds that they cover. At least one full window is counted in
        addition to the current window, so a new client does not report an enormous rate."""
        now_s = self._clock()
        recent = [
            each
            for each in (self._before, self._window)
            if each is not None and now_s - each.start_s < WINDOWS * WINDOW_S
        ]
        oldest_s = min((each.start_s for each in recent), default=now_s)
        elapsed_s = now_s - oldest_s
        missing = max(0, WINDOWS - 1 - int(elapsed_s / WINDOW_S))
        return recent, elapsed_s + missing * WINDOW_S


class Sensors:
    """Combines several sensors, such as the sensors of all topics, into one. A value then has to be recorded only once,
    for its topic."""

    __slots__ = ("_all",)

    def __init__(self, sensors: Callable[[], Iterable[Sensor]]) -> None:
        """Combines the sensors that `sensors` returns each time a value is read."""
        self._all = sensors

    @property
    def total(self) -> float:
        return sum(each.total for each in self._all())

    @property
    def count(self) -> int:
        return sum(each.count for each in self._all())

    def rate(self) -> float:
        return sum(each.rate() for each in self._all())

    def events_rate(self) -> float:
        return sum(each.events_rate() for each in self._all())

    def average(self) -> float:
        recent = self._recent()
        count = sum(each.count for each in recent)
        return sum(each.sum for each in recent) / count if count else NAN

    def largest(self) -> float:
        return max((each.largest for each in self._recent() if each.count), default=NAN)

    def _recent(self) -> list[Window]:
        return [window for each in self._all() for window in each.recent()[0]]


@dataclass(frozen=True, slots=True)
class MetricSource:
    """The name of one metric and the function that reads its value."""

    name: str
    unit: Unit
    kind: MetricKind
    description: str
    read: Callable[[], float]


class MetricGroup:
    """Metrics that belong to the same Kafka metric group and have the same tags. The methods add metrics and return the
    sensor that records the values."""

    def __init__(self, name: str, clock: Clock = time.monotonic) -> None:
        self.name = name
        self.clock = clock
        self._entries: list[MetricSource] = []

    def meter(self, stem: str, what: str, *, counts_events: bool = False, is_bytes: bool = False) -> Sensor:
        """Adds the metrics `stem`-rate and `stem`-total and returns their sensor. They measure the recorded values, or
        the number of recordings if `counts_events` is set.

        what     a plural noun phrase, such as "records sent"
        """
        sensor = Sensor(self.clock)
        self.meter_of(sensor, stem, what, counts_events=counts_events, is_bytes=is_bytes)
        return sensor

    def meter_of(
        self, sensor: Sensor | Sensors, stem: str, what: str, *, counts_events: bool = False, is_bytes: bool = False
    ) -> None:
        """Like `meter`, for an existing sensor."""
        unit, total = (Unit.BYTES_PER_SECOND, Unit.BYTES) if is_bytes else (Unit.PER_SECOND, Unit.COUNT)
        self._add(f"{stem}-rate", unit, f"{what} per second", sensor.events_rate if counts_events else sensor.rate)
        self._add(
            f"{stem}-total",
            total,
            f"{what}, in total",
            lambda: float(sensor.count if counts_events else sensor.total),
            MetricKind.COUNTER,
        )

    def average(
        self, stem: str, unit: Unit, what: str, *, has_average: bool = True, has_maximum: bool = True
    ) -> Sensor:
        """Adds the metrics `stem`-avg and `stem`-max and returns their sensor."""
        sensor = Sensor(self.clock)
        self.average_of(Sensors(lambda: (sensor,)), stem, unit, what, has_average=has_average, has_maximum=has_maximum)
        return sensor

    def average_of(
        self, sensors: Sensors, stem: str, unit: Unit, what: str, *, has_average: bool = True, has_maximum: bool = True
    ) -> None:
        """Like `average`, for existing sensors."""
        if has_average:
            self._add(f"{stem}-avg", unit, f"{what}, average", sensors.average)
        if has_maximum:
            self._add(f"{stem}-max", unit, f"{what}, maximum", sensors.largest)

    def time_spent(self, stem: str, what: str) -> TimeSpent:
        """Adds the metric `stem`-time-ns-total and returns the object that measures it."""
        spent = TimeSpent(self.clock)
        self._add(
            f"{stem}-time-ns-total",
            Unit.NANOSECONDS,
            what,
            lambda: spent.total_s * NANOSECONDS_PER_SECOND,
            MetricKind.COUNTER,
        )
        return spent

    def gauge(self, name: str, unit: Unit, what: str, read: Callable[[], float]) -> None:
        self._add(name, unit, what, read)

    def counter(self, name: str, unit: Unit, what: str, read: Callable[[], float]) -> None:
        self._add(name, unit, what, read, MetricKind.COUNTER)

    def read(self, tags: Mapping[str, str]) -> Iterator[Metric]:
        for each in self._entries:
            yield Metric(each.name, self.name, tags, each.unit, each.kind, each.description, each.read())

    def _add(
        self, name: str, unit: Unit, what: str, read: Callable[[], float], kind: MetricKind = MetricKind.GAUGE
    ) -> None:
        self._entries.append(MetricSource(name, unit, kind, what, read))


class TimeSpent:
    """The total time that an application has spent in a call, measured with a `with` block. Includes calls that raised
    an error."""

    __slots__ = ("_began_s", "_clock", "total_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s: list[float] = []  # start times of the running calls; calls of several tasks may overlap
        self.total_s = 0.0

    def __enter__(self) -> None:
        self._began_s.append(self._clock())

    def __exit__(self, *_: object) -> None:
        self.total_s += self._clock() - self._began_s.pop()
