"""Each scenario of `odradek judge --suite` passes our own client, and convicts a driver that breaks its rule."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from odradek.testing.judge.verdicts import BROKEN, KEPT
from odradek.testing.suite.scenarios import SCENARIOS
from tests.judge_history.suite import OWN, outcome

SPOILED = {
    "VER.8": "delivered twice",
    "CON.7": "sent twice",
    "MET.8": "sent twice",
    "MET.10": "commit raises",
    "PRD.6": "reversed",
    "PRD.7": "produce raises",
    "TXN.11": "commit raises",
    "TXN.13": "poll raises",
    "TV2.7": "abort raises",
    "FET.2": "delivered twice",
    "FET.4": "delivered twice",
    "FET.13": "delivered twice",
    "GRP.12": "poll raises",
    "GRP.13": "ack raises",
    "GRP.18": "delivered twice",
}
NO_SPOILED = {"GRP.7"}  # the answers of a driver do not tell whether LeaveGroup came


def test_every_scenario_has_a_driver_that_breaks_its_rule() -> None:
    assert SPOILED.keys() | NO_SPOILED == {each.rule for each in SCENARIOS}


def test_our_own_client_breaks_nothing(tmp_path: Path) -> None:
    rules = [each.rule for each in SCENARIOS]
    found = outcome(OWN, tmp_path, *rules)
    assert found[BROKEN] == set()
    assert set(rules) <= found[KEPT]


@pytest.mark.parametrize("rule", SPOILED)
def test_a_driver_that_breaks_the_rule_is_convicted_of_it(rule: str, tmp_path: Path) -> None:
    spoiled = [sys.executable, str(Path(__file__).with_name("spoiled_driver.py")), SPOILED[rule], *OWN]
    assert outcome(spoiled, tmp_path, rule)[BROKEN] == {rule}
