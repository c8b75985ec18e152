"""Tests that old releases of clients break a rule because of their bugs, and that the releases that fix these bugs do
not.

Run with `make judge-history`, or `make judge-history ARGS="-k sarama"` for tests whose names contain "sarama".
"""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.testing.sync import Odradek
from tests.client_lab.row import (
    AccusedRelease,
    Conviction,
    Row,
    ScenarioConviction,
    check_accused,
    check_conviction,
    check_scenario,
)
from tests.client_lab.rows import ACCUSED, ROWS

CONVICTIONS = [
    pytest.param(row, conviction, id=f"{row.bug}-{conviction.rule}")
    for row in ROWS
    for conviction in row.evidence
    if isinstance(conviction, Conviction)
]
BY_SCENARIO = [
    pytest.param(row, conviction, id=f"{row.bug}-{conviction.rule}")
    for row in ROWS
    for conviction in row.evidence
    if isinstance(conviction, ScenarioConviction)
]


@pytest.mark.parametrize(("row", "conviction"), CONVICTIONS)
def test_the_judge_convicts_the_old_release_and_acquits_the_mended_one(
    row: Row, conviction: Conviction, odradek: Odradek, tmp_path: Path
) -> None:
    check_conviction(row, conviction, odradek, tmp_path)


@pytest.mark.parametrize(("row", "conviction"), BY_SCENARIO)
def test_a_scenario_of_the_suite_convicts_the_old_release_and_acquits_the_mended_one(
    row: Row, conviction: ScenarioConviction, tmp_path: Path
) -> None:
    check_scenario(row, conviction, tmp_path)


@pytest.mark.parametrize(
    "accused", ACCUSED, ids=lambda accused: f"{accused.client.package}-{accused.version}-{accused.rule}"
)
def test_a_release_that_was_accused_wrongly_breaks_no_rule(
    accused: AccusedRelease, odradek: Odradek, tmp_path: Path
) -> None:
    check_accused(accused, odradek, tmp_path / "recording")
