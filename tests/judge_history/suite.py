"""Scenarios of `odradek judge --suite` run with one driver, and the rules that it keeps and breaks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from odradek.testing.judge.verdicts import BROKEN, KEPT, verdicts
from odradek.testing.suite.running import run
from odradek.testing.suite.scenarios import SCENARIOS

REPOSITORY = Path(__file__).parents[2]
DRIVERS = REPOSITORY / "examples" / "judge_drivers"
OWN = (sys.executable, str(DRIVERS / "own.py"))


def outcome(command: Sequence[str], folder: Path, *rules: str) -> dict[str, set[str]]:
    """The rules that the driver's clients broke, and those that they kept, by verdict: of the scenarios of `rules`."""
    folder.mkdir(exist_ok=True)
    clients = run(command, [each for each in SCENARIOS if each.rule in rules], folder, print)
    found = verdicts(clients)
    broken = {each.rule.id for one in found for each in one.of(BROKEN)}
    return {BROKEN: broken, KEPT: {each.rule.id for one in found for each in one.of(KEPT)} - broken}
