"""Tests that the benchmark's table compares each row with the right broker and shows whether the row's goal is met. A
goal applies to the compiled variant if that variant was measured."""

import pytest

from bench.rows import Goal, Row, at_least, at_least_of_kfake, no_more_than
from bench.table import HEADINGS, Line


def line(goal: Goal | None, **figures: float) -> Line:
    measured = {"pure": 1_000.0, "compiled": None, "kafka": None, "kfake": None, "baseline": None}
    return Line(Row("requests_s", "1 KiB frames", "requests/s", goal), **{**measured, **figures})


@pytest.mark.parametrize(
    ("goal", "figures", "is_met"),
    [
        (at_least(2), {"kafka": 1_000.0}, False),
        (at_least(2), {"kafka": 1_000.0, "compiled": 2_000.0}, True),
        (at_least(1), {"kafka": 500.0, "compiled": 400.0}, False),  # the pure variant alone would meet the goal
        (at_least_of_kfake(1), {"kafka": 10.0, "kfake": 3_000.0, "compiled": 2_000.0}, False),
        (at_least_of_kfake(1), {"kafka": 9_000.0, "kfake": 1_500.0, "compiled": 2_000.0}, True),
        (at_least_of_kfake(1), {"kafka": 10.0}, None),  # kfake was not measured
        (no_more_than(900), {}, False),
        (no_more_than(900), {"compiled": 800.0}, True),
        (None, {"kafka": 10.0}, None),
    ],
)
def test_a_goal_is_met_or_not_or_not_known(goal: Goal | None, figures: dict[str, float], is_met: bool | None) -> None:
    assert line(goal, **figures).is_met is is_met


def test_a_row_without_a_goal_is_compared_with_kafka() -> None:
    assert line(None, kafka=500.0, kfake=100.0, compiled=2_000.0).ratio == 4.0


def test_a_line_has_a_cell_for_each_heading_and_its_unit_once() -> None:
    assert len(line(None).cells()) == len(HEADINGS)
    assert line(at_least_of_kfake(1), compiled=2_000.0, kfake=1_000.0).cells() == (
        "1 KiB frames",
        "≥ 1× kfake",
        "1,000 requests/s",
        "2,000",
        "",
        "1,000",
        "2.00×",
        "yes",
        "",
        "",
    )
    assert line(None, pure=None, compiled=2_000.0).cells()[2:4] == ("", "2,000 requests/s")  # type: ignore[arg-type]
