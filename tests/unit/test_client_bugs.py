"""Tests that each client bug in `client_bugs.py` either is demonstrated with old releases or comes with the reason for
the missing demonstration.

A row of tests/client_lab demonstrates a bug if an application sees the bug or one of the judge's rules is broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain

from tests.client_lab.rows import NOT_SHOWN, ROWS
from tests.support.client_bugs import BY_CALLS, BY_NOTHING, BY_ODDITY, BY_PRESET, BY_RULES

NO_REGISTRY = "the registry of its language, Hex or NuGet, is not at hand"
ELSEWHERE: Mapping[str, str] = {
    "thomhurst/Dekaf#3342": NO_REGISTRY,
    "thomhurst/Dekaf#2364": NO_REGISTRY,
    "kafka4beam/brod#659": NO_REGISTRY,
    "kafkaex/kafka_ex#554": NO_REGISTRY,
    "tulios/kafkajs#598": "the same as #1050, which a rule convicts",
    "librdkafka 2.16, from 2²⁴ on": "tests/clients/test_control_odd_logs.py",
}
NAME = re.compile(r"(?:([\w.-]+/[\w.-]+))?#(\d+)")


def names(text: str) -> Iterator[str]:
    """Yields the names of the bugs in a text. `project#1, #2` names two bugs of a project, and a text without a number
    is a single name."""
    project = ""
    for found in NAME.finditer(text):
        project = found[1] or project
        yield f"{project}#{found[2]}"
    if NAME.search(text) is None:
        yield text


def test_each_bug_is_shown_or_has_a_reason_why_not() -> None:
    shown = set(chain.from_iterable(names(row.bug) for row in ROWS))
    explained = set(chain.from_iterable(names(bug) for bug in NOT_SHOWN))
    tables = (*BY_PRESET.values(), *BY_ODDITY.values(), *BY_CALLS.values(), *BY_NOTHING.values())
    bugs = set(chain.from_iterable((*tables, *(of_rule for _, of_rule in BY_RULES))))
    assert [bug for bug in sorted(bugs) if not {*names(bug)} & {*shown, *explained, *ELSEWHERE}] == []
    assert not explained & shown
