"""Tests that the Presets page of the documentation site lists all presets, rare answers, and ways to reproduce a
bug."""

import re

from odradek.broker.control.faults.rule_json import parse_rule
from odradek.broker.control.odd.odd import ODDITIES
from odradek.broker.control.presets.behaviour import BEHAVIOUR
from odradek.broker.control.presets.table import PRESETS
from odradek.testing.sync import Cluster, Odradek
from tests.support.client_bugs import BY_CALLS, BY_ODDITY, BY_PRESET, BY_RULES
from tests.support.presets_page import page


def test_the_page_has_a_row_for_each_preset_and_each_rare_answer() -> None:
    first, odd, _ = page().split("\n## ")
    assert re.findall(r"^\| `([\w-]+)` \|", first, flags=re.MULTILINE) == [*PRESETS]
    assert re.findall(r"^\| `([\w -]+)` \|", odd, flags=re.MULTILINE) == [*ODDITIES]


def test_the_page_has_a_row_for_each_way_to_reach_a_bug() -> None:
    bugs = page().split("\n## ")[2]
    assert "| preset `open-transaction` | confluentinc/librdkafka#3265, confluentinc/librdkafka#3297 |\n" in bugs
    assert [name for name in BY_PRESET if f"| preset `{name}` |" not in bugs] == []


def test_each_behaviour_is_that_of_a_preset() -> None:
    assert BEHAVIOUR.keys() == PRESETS.keys()


def test_every_preset_and_call_that_reproduces_a_bug_exists() -> None:
    assert BY_PRESET.keys() <= PRESETS.keys()
    assert BY_ODDITY.keys() <= ODDITIES.keys()
    methods = {name for how in BY_CALLS for name in re.findall(r"(?:^|then )([a-z_]+)", how)}
    assert methods <= {*dir(Cluster), *dir(Odradek), "clock"}
    for rule, _ in BY_RULES:
        assert parse_rule(rule, "rule").source == rule
