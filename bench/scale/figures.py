"""The figures measured at each size, the sizes at which they have doubled (knees), and the table. This module uses
neither a clock nor a broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

KNEE = 2.0  # a cost has its knee where it reaches this multiple of the cost at the smallest size


@dataclass(frozen=True, slots=True)
class Point:
    """The figures at one size. `cpu_us` is the broker's CPU time per request. The two restart figures are the CPU
    seconds until every partition responds."""

    size: int
    cpu_us: float
    p99_us: float
    rss_mib: float
    clean_s: float  # restart after SIGTERM
    killed_s: float  # restart after SIGKILL


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. `fields` pairs each displayed field of Point with its name in the legend."""

    title: str
    unit: str
    fields: tuple[tuple[str, str], ...]


METRICS = (
    Metric("CPU per request", "µs", (("cpu_us", ""),)),
    Metric("p99", "µs", (("p99_us", ""),)),
    Metric("RSS", "MiB", (("rss_mib", ""),)),
    Metric("CPU of a restart", "s", (("clean_s", "stopped"), ("killed_s", "killed"))),
)


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one axis, ordered by size. `request` describes the measured request."""

    name: str
    title: str
    request: str
    points: tuple[Point, ...]

    def values(self, field: str) -> list[float]:
        found = [asdict(point)[field] for point in self.points]
        return [float(value) for value in found]


def knee(sizes: Sequence[int], values: Sequence[float]) -> int | None:
    """Returns the first size from which the cost stays at least twice as high as at the smallest size, or None if there
    is none."""
    found = None
    for size, value in zip(sizes, values, strict=True):
        if value < KNEE * values[0]:
            found = None
        elif found is None:
            found = size
    return found


def knees(curve: Curve) -> list[str]:
    """Returns a phrase about each metric's knee."""
    sizes = [point.size for point in curve.points]
    sentences = []
    for metric in METRICS:
        for field, label in metric.fields:
            name = f"{metric.title}, {label}" if label else metric.title
            values = curve.values(field)
            at = knee(sizes, values)
            sentences.append(f"{name}: {'no knee' if at is None else f'doubled at {shown_size(curve, at)}'}")
    return sentences


def shown_size(curve: Curve, size: int) -> str:
    if curve.name != "log":
        return f"{size:,}"
    return f"{size // 1000:,} GB" if size >= 1000 else f"{size} MB"


def shown(value: float) -> str:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def table(curves: Sequence[Curve]) -> str:
    """Formats the figures as a Markdown table."""
    lines = [
        "| | size | CPU per request | p99 | RSS | restart, stopped | restart, killed |",
        "|---|---|---|---|---|---|---|",
    ]
    for curve in curves:
        for number, point in enumerate(curve.points):
            cells = (
                curve.title if number == 0 else "",
                shown_size(curve, point.size),
                f"{shown(point.cpu_us)} µs",
                f"{shown(point.p99_us)} µs",
                f"{shown(point.rss_mib)} MiB",
                f"{shown(point.clean_s)} s",
                f"{shown(point.killed_s)} s",
            )
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
