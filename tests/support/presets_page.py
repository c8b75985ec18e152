"""Writes the documentation site's Presets page (`make docs`): the presets, the rare answers, and the client bugs that
each of them reproduces."""

from __future__ import annotations

import json
from collections.abc import Iterator

from odradek.broker.control.odd.odd import ODDITIES
from odradek.broker.control.presets.table import PRESETS
from tests.support.client_bugs import BY_CALLS, BY_NOTHING, BY_ODDITY, BY_PRESET, BY_RULES

HEAD = """# Presets

A preset brings a cluster into a rare state: `kafka.preset("aborted-tail", topic="orders")`. The guide about [testing a
client](testing.md#presets) explains how to use presets. [Answers that are lawful but rare](#lawful-but-rare) are below.
`make docs` writes this page from `odradek/broker/control/presets/` and `odradek/broker/control/odd/odd.py`.

| preset | parameters | state | a correct client | wrong clients |
|---|---|---|---|---|
"""

ODD = """
## Lawful but rare

After `POST …/odd`, a cluster gives these answers. A seed decides which requests get such an answer.

| name | answer | share of the requests |
|---|---|---|
"""

OTHERWISE = """
Some numbers are not chosen by the broker, so you get rare values of them in other ways. Clients count sequence numbers
(preset `sequence-wrap`) and choose correlation ids, which the broker returns unchanged. The preset
`epoch-nearly-exhausted` brings the epoch of a transactional id close to its limit. To get node ids with gaps, choose
them when you create the cluster: `nodes: [1, 4, 9]`.
"""

BUGS = """
## Bugs of clients, and how to reach their states

Issues in the projects of the clients describe the bugs. Names of calls are methods of `odradek.testing`.

| reached by | bug |
|---|---|
"""


def page() -> str:
    rows = []
    for name, preset in PRESETS.items():
        parameters = ", ".join(f"`{key}` {value}" for key, value in preset.defaults.items()) or "–"
        clients = preset.clients
        rows.append(f"| `{name}` | {parameters} | {preset.text} | {clients.correct} | {clients.wrong or '–'} |\n")
    odd = [f"| `{name}` | {text} | {percent} % |\n" for name, (percent, text) in ODDITIES.items()]
    return HEAD + "".join(rows) + ODD + "".join(odd) + OTHERWISE + BUGS + "".join(_bugs())


def _bugs() -> Iterator[str]:
    groups = (
        *((f"preset `{name}`", bugs) for name, bugs in BY_PRESET.items()),
        *((f"odd answer `{name}`", bugs) for name, bugs in BY_ODDITY.items()),
        *((f"`{name}`" if "," not in name else name, bugs) for name, bugs in BY_CALLS.items()),
        *((f"`{json.dumps(rule)}`", bugs) for rule, bugs in BY_RULES),
        *BY_NOTHING.items(),
    )
    for how, found in groups:
        yield f"| {how} | {', '.join(found)} |\n"
