"""Formats the figures as a table or as JSON."""

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.rows import MEASUREMENTS, Comparison, Measurement, Row
from bench.subjects import COMPILED, KAFKA, KFAKE, PURE

HEADINGS = ("row", "goal", "pure", "compiled", "Kafka", "kfake", "ratio", "met", "baseline", "of baseline")
BASELINE = "baseline"


@dataclass(slots=True)
class Results:
    """The samples of all measurements: samples[measurement name][broker][figure] contains the values of all rounds, in
    order."""

    samples: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, measurement: Measurement, who: str, figures: Mapping[str, float]) -> None:
        into = self.samples.setdefault(measurement.name, {}).setdefault(who, {})
        for figure, value in figures.items():
            into.setdefault(figure, []).append(value)

    def median(self, measurement: Measurement, who: str, figure: str) -> float | None:
        values = self.samples.get(measurement.name, {}).get(who, {}).get(figure)
        return statistics.median(values) if values else None


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table. A figure is None if it was not measured."""

    row: Row
    pure: float | None
    compiled: float | None
    kafka: float | None
    kfake: float | None
    baseline: float | None

    @property
    def ours(self) -> float | None:
        """The figure of the variant that the goals apply to: the compiled one if it was measured."""
        return self.pure if self.compiled is None else self.compiled

    @property
    def ratio(self) -> float | None:
        """The ratio of Odradek's figure to kfake's if the goal names kfake, or to Kafka's otherwise."""
        goal = self.row.goal
        return _ratio(self.ours, self.kfake if goal is not None and goal.against is Comparison.KFAKE else self.kafka)

    @property
    def of_baseline(self) -> float | None:
        return _ratio(self.ours, self.baseline)

    @property
    def is_met(self) -> bool | None:
        goal = self.row.goal
        if goal is None:
            return None
        value = self.ours if goal.against is Comparison.ITSELF else self.ratio
        return None if value is None else goal.is_met(value)

    def cells(self) -> tuple[str, ...]:
        met = {True: "yes", False: "no", None: ""}[self.is_met]
        return (
            self.row.title,
            str(self.row.goal) if self.row.goal is not None else "",
            f"{_shown(self.pure)} {self.row.unit}" if self.pure is not None else "",
            f"{_shown(self.compiled)}{f' {self.row.unit}' if self.pure is None else ''}" if self.compiled else "",
            _shown(self.kafka),
            _shown(self.kfake),
            _shown(self.ratio, "×"),
            met,
            _shown(self.baseline),
            _shown(self.of_baseline, "×"),
        )


def lines(results: Results, measurement: Measurement) -> list[Line]:
    return [
        Line(row, *(results.median(measurement, who, row.figure) for who in (PURE, COMPILED, KAFKA, KFAKE, BASELINE)))
        for row in measurement.rows
    ]


def markdown(results: Results) -> str:
    rows: list[Sequence[str]] = [HEADINGS]
    for measurement in MEASUREMENTS:
        if measurement.name in results.failures:
            rows.append((measurement.rows[0].title, results.failures[measurement.name], *[""] * (len(HEADINGS) - 2)))
        elif measurement.name in results.samples:
            rows += [line.cells() for line in lines(results, measurement)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADINGS))]
    shown = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    shown.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(shown)


def write_json(results: Results, path: Path) -> None:
    content: dict[str, Any] = {"machine": machine(), "samples": results.samples, "failures": results.failures}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def machine() -> dict[str, Any]:
    """Returns information about the machine on which the figures were measured."""
    models = {
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    }
    return {
        "cpus": os.cpu_count(),
        "model": ", ".join(sorted(models)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
    }


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _shown(value: float | None, unit: str = "") -> str:
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 3
    return f"{value:,.{digits}f}{unit}"
