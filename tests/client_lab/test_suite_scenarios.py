"""Tests that each scenario of `odradek judge --suite` passes current clients and convicts a driver that breaks the
scenario's rule."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from odradek.testing.judge.verdicts import BROKEN, KEPT
from odradek.testing.suite.scenarios import SCENARIOS
from tests.client_lab.suite import CLIENTS, KAFKA_STREAMS, OWN, outcome
from tests.client_lab.verdicts_page import read_examined
from tests.support.broker_process import REFERENCE
from tests.support.oracle import needs_kafka

SPOILED = {
    "VER.8": "delivered twice",
    "CON.1": "sent twice",
    "CON.3": "produce raises",
    "CON.4": "produce raises",
    "CON.7": "sent twice",
    "MET.2": "sent twice",
    "MET.3": "sent twice",
    "MET.5": "heeds no setting",
    "MET.8": "sent twice",
    "MET.9": "sent twice",
    "MET.10": "commit raises",
    "ADM.1": "create raises",
    "ADM.2": "delivered twice",
    "ADM.3": "delivered twice",
    "PRD.6": "reversed",
    "PRD.7": "produce raises",
    "TXN.8": "produce raises",
    "TXN.11": "commit raises",
    "TXN.13": "poll raises",
    "TV2.7": "abort raises",
    "2PC.1": "prepare raises",
    "FET.2": "delivered twice",
    "FET.4": "delivered twice",
    "FET.9": "delivered twice",
    "FET.10": "poll raises",
    "FET.11": "ack raises",
    "FET.12": "ack raises",
    "FET.13": "delivered twice",
    "FET.14": "delivered twice",
    "FET.16": "delivered twice",
    "GRP.3": "delivered twice",
    "GRP.7": "leaves",
    "GRP.8": "delivered twice",
    "GRP.12": "poll raises",
    "GRP.13": "ack raises",
    "GRP.16": "delivered twice",
    "GRP.18": "delivered twice",
    "848.6": "delivered twice",
    "848.11": "unsubscribe raises",
    "848.12": "delivered twice",
    "SHR.6": "delivered twice",
    "SHR.8": "delivered twice",
    "SHR.9": "delivered twice",
    "SHR.10": "delivered twice",
    "SHR.11": "poll raises",
    "SHR.13": "delivered twice",
    "SHR.14": "offsets raises",
}
# Rules for streams groups, each with the argument that makes `streams_application.py` break it. Only Kafka Streams
# applications join streams groups.
STREAMS = {"STG.19": "closes silently", "STG.30": "commits nothing", "STG.31": "ignores statuses"}
# The spoiled driver uses Odradek's own client, which cannot break these rules: it has no fetch sessions
# (tests/unit/testing/test_suite_members.py covers FET.8), uses topic names in Produce (franz-go breaks MET.7), and does
# not join streams groups.
NOT_OURS = {"FET.8", "MET.7", *STREAMS}


def test_every_scenario_that_decides_its_rule_has_a_driver_that_breaks_it() -> None:
    assert SPOILED.keys() | NOT_OURS >= {each.rule for each in SCENARIOS if each.decides}
    assert SPOILED.keys() <= {each.rule for each in SCENARIOS}


@pytest.mark.parametrize(
    ("client", "without"),
    [
        pytest.param("ours", NOT_OURS, id="odradek.client"),
        pytest.param(f"Java {REFERENCE}", {"2PC.1", *STREAMS}, id="kafka-clients", marks=needs_kafka),
        pytest.param(
            "franz-go 1.22.3",
            {"2PC.1", "GRP.3", "FET.11", "MET.7", *STREAMS},
            id="franz-go",
            marks=pytest.mark.skipif(not shutil.which("go"), reason="needs Go"),
        ),
    ],
)
def test_a_current_client_breaks_only_rules_whose_break_was_examined(
    client: str, without: set[str], tmp_path: Path
) -> None:
    """Checks that a current client keeps all rules, except for the breaks in examined.toml.

    `without` lists rules that the client need not keep: it breaks them, or the driver lacks a verb or setting for them.
    """
    found = outcome(CLIENTS[client](), tmp_path, *[each.rule for each in SCENARIOS])
    assert found[BROKEN] <= {each.rule for each in read_examined() if each.client == client}
    assert {each.rule for each in SCENARIOS if each.decides} - without <= found[KEPT]


@pytest.mark.parametrize("rule", SPOILED)
def test_a_driver_that_breaks_the_rule_is_convicted_of_it(rule: str, tmp_path: Path) -> None:
    spoiled = [sys.executable, str(Path(__file__).with_name("spoiled_driver.py")), SPOILED[rule], *OWN]
    assert outcome(spoiled, tmp_path, rule)[BROKEN] == {rule}


@pytest.mark.parametrize("rule", STREAMS)
def test_a_streams_application_that_breaks_the_rule_is_convicted_of_it(rule: str, tmp_path: Path) -> None:
    assert outcome(streams_application(STREAMS[rule]), tmp_path, rule)[BROKEN] == {rule}


def test_a_streams_application_that_breaks_nothing_keeps_the_rules(tmp_path: Path) -> None:
    found = outcome(streams_application("nothing"), tmp_path, *STREAMS)
    assert not found[BROKEN]
    assert found[KEPT] >= STREAMS.keys()


@needs_kafka
def test_kafka_streams_keeps_the_rules_of_streams_groups(tmp_path: Path) -> None:
    found = outcome(CLIENTS[KAFKA_STREAMS](), tmp_path, *STREAMS)
    assert not found[BROKEN]
    assert found[KEPT] >= STREAMS.keys()


def streams_application(breaks: str) -> list[str]:
    return [sys.executable, "-m", "tests.client_lab.streams_application", breaks]
