"""Each scenario of `odradek judge --suite` passes our own client, Java's and franz-go, and convicts a driver that
breaks its rule.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from odradek.testing.judge.verdicts import BROKEN, KEPT
from odradek.testing.suite.scenarios import SCENARIOS
from tests.judge_history.installing import install
from tests.judge_history.suite import DRIVERS, OWN, outcome
from tests.support.oracle import needs_kafka, run_kafka

SPOILED = {
    "VER.8": "delivered twice",
    "CON.1": "sent twice",
    "CON.7": "sent twice",
    "MET.2": "sent twice",
    "MET.3": "sent twice",
    "MET.8": "sent twice",
    "MET.10": "commit raises",
    "ADM.3": "delivered twice",
    "PRD.6": "reversed",
    "PRD.7": "produce raises",
    "TXN.8": "produce raises",
    "TXN.11": "commit raises",
    "TXN.13": "poll raises",
    "TV2.7": "abort raises",
    "FET.2": "delivered twice",
    "FET.4": "delivered twice",
    "FET.9": "delivered twice",
    "FET.13": "delivered twice",
    "GRP.7": "leaves",
    "GRP.12": "poll raises",
    "GRP.13": "ack raises",
    "GRP.18": "delivered twice",
}


def test_every_scenario_has_a_driver_that_breaks_its_rule() -> None:
    assert SPOILED.keys() == {each.rule for each in SCENARIOS}


def java() -> Sequence[str]:
    return "java", "-cp", run_kafka("classpath").strip(), str(DRIVERS / "KafkaClients.java")


def franz_go() -> Sequence[str]:
    return install("github.com/twmb/franz-go", "1.22.2", DRIVERS / "franz_go.go").words


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(lambda: OWN, id="odradek.client"),
        pytest.param(java, id="kafka-clients", marks=needs_kafka),
        pytest.param(franz_go, id="franz-go", marks=pytest.mark.skipif(not shutil.which("go"), reason="needs Go")),
    ],
)
def test_a_client_of_today_breaks_nothing(command: Callable[[], Sequence[str]], tmp_path: Path) -> None:
    rules = [each.rule for each in SCENARIOS]
    found = outcome(command(), tmp_path, *rules)
    assert found[BROKEN] == set()
    assert set(rules) <= found[KEPT]


@pytest.mark.parametrize("rule", SPOILED)
def test_a_driver_that_breaks_the_rule_is_convicted_of_it(rule: str, tmp_path: Path) -> None:
    spoiled = [sys.executable, str(Path(__file__).with_name("spoiled_driver.py")), SPOILED[rule], *OWN]
    assert outcome(spoiled, tmp_path, rule)[BROKEN] == {rule}
