"""docs/presets.md and the presets agree."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from odradek.broker.control.faults.rules import parse_rule
from odradek.broker.control.odd.odd import ODDITIES
from odradek.broker.control.presets.behaviour import BEHAVIOUR
from odradek.broker.control.presets.table import PRESETS
from odradek.testing.sync import Cluster, Odradek
from tests.unit.client_bugs import BY_CALLS, BY_NOTHING, BY_ODDITY, BY_PRESET, BY_RULES

PAGE = Path(__file__).parents[2] / "docs" / "presets.md"
HOW_TO_RENEW = "python -m tests.unit.test_presets_page writes the page anew"
HEAD = """# Presets

Rare states by name: `kafka.preset("aborted-tail", topic="orders")`; [testing.md](testing.md) tells how.
[Answers that are lawful but rare](#lawful-but-rare) are below.
Written by `python -m tests.unit.test_presets_page` from `odradek/broker/control/presets/` and `odd.py`.

| preset | parameters | state | a correct client | wrong clients |
|---|---|---|---|---|
"""

ODD = """
## Lawful but rare

`POST …/odd` has a cluster give them, each as often as a seed draws.

| name | answer | of |
|---|---|---|
"""

OTHERWISE = """
What a broker does not choose comes otherwise: clients count sequences (preset `sequence-wrap`) and correlation ids
(theirs, returned as they are). An epoch of a transactional id near its end is preset `epoch-nearly-exhausted`. Node ids
with gaps are chosen where a cluster is made: `nodes: [1, 4, 9]`.
"""

BUGS = """
## Bugs of clients, and what brings their states about

Issues of the clients' projects tell of each. What is called is a method of `odradek.testing`.

| by | bug |
|---|---|
"""


def bugs() -> Iterator[str]:
    groups = (
        *((f"preset `{name}`", bugs) for name, bugs in BY_PRESET.items()),
        *((f"odd answer `{name}`", bugs) for name, bugs in BY_ODDITY.items()),
        *((f"`{name}`" if "," not in name else name, bugs) for name, bugs in BY_CALLS.items()),
        *((f"`{json.dumps(rule)}`", bugs) for rule, bugs in BY_RULES),
        *BY_NOTHING.items(),
    )
    for how, found in groups:
        yield f"| {how} | {', '.join(found)} |\n"


def written() -> str:
    rows = []
    for name, preset in PRESETS.items():
        parameters = ", ".join(f"`{key}` {value}" for key, value in preset.defaults.items()) or "–"
        clients = preset.clients
        rows.append(f"| `{name}` | {parameters} | {preset.text} | {clients.correct} | {clients.wrong or '–'} |\n")
    odd = [f"| `{name}` | {text} | {percent} % |\n" for name, (percent, text) in ODDITIES.items()]
    return HEAD + "".join(rows) + ODD + "".join(odd) + OTHERWISE + BUGS + "".join(bugs())


def test_the_page_lists_the_presets() -> None:
    assert PAGE.read_text(encoding="utf-8") == written(), HOW_TO_RENEW


def test_each_behaviour_is_that_of_a_preset() -> None:
    assert BEHAVIOUR.keys() == PRESETS.keys()


def test_what_brings_bugs_about_is_there() -> None:
    assert BY_PRESET.keys() <= PRESETS.keys()
    assert BY_ODDITY.keys() <= ODDITIES.keys()
    methods = {name for how in BY_CALLS for name in re.findall(r"(?:^|then )([a-z_]+)", how)}
    assert methods <= {*dir(Cluster), *dir(Odradek), "clock"}
    for rule, _ in BY_RULES:
        assert parse_rule(rule, "rule").source == rule


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
