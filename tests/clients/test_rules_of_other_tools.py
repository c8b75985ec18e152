"""Tests that Odradek accepts the rules that docs/testing.md gives as translations of other tools' calls."""

import json
import re
from pathlib import Path

from odradek.testing.sync import Odradek

PAGE = Path(__file__).resolve().parents[2] / "docs/testing.md"
RULES = re.findall(r"`(\{.*?\})`", PAGE.read_text(encoding="utf-8").split("### Coming from another tool")[1])


def test_the_rules_that_other_tools_become_are_rules() -> None:
    with Odradek.start() as odradek, odradek.cluster() as kafka:
        for rule in RULES:
            kafka.fault({**json.loads(rule), "unused": "ok"})
        assert len(kafka.faults()) == len(RULES) == 8
