"""Tests that each rule has a clause. A clause is a row of docs/spec/client-rules.md with the rule's reason and
source."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.testing.judge.rule import ProtocolRule
from odradek.testing.judge.rules import RULES

REPOSITORY = Path(__file__).parents[5]
PAGE = "docs/spec/client-rules.md"
ROW = re.compile(
    r'\| <a id="(?P<anchor>[\w-]+)"></a>(?P<rule>[\w.]+) \| (?P<text>.*) \| (?P<why>.*) \| (?P<source>.*) \|'
)
# Permitted sources: a KIP, the message definitions or format, the protocol guide, a setting, or a section of the rule
# book.
SOURCE = re.compile(
    r"KIP-\d+|message definitions?|message format|protocol guide, [a-z ]+|configuration, [a-z.]+"
    r"|\]\([\w-]+\.md#s[\d-]+\)"
)


class Clause(NamedTuple):
    anchor: str
    rule: str
    text: str
    why: str
    source: str


def clauses() -> dict[str, Clause]:
    """Returns the clauses on the page, keyed by their anchors."""
    lines = (REPOSITORY / PAGE).read_text(encoding="utf-8").splitlines()
    found = [Clause(*match.groups()) for line in lines if (match := ROW.fullmatch(line))]
    return {clause.anchor: clause for clause in found}


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_the_clause_of_a_rule_resolves_and_says_why(rule: ProtocolRule) -> None:
    page, _, anchor = rule.clause.partition("#")
    clause = clauses()[anchor]
    assert (page, clause.rule, clause.text) == (PAGE, rule.id, rule.text)
    assert clause.why.endswith(".")
    assert SOURCE.search(clause.source)


def test_no_clause_is_without_its_rule() -> None:
    assert {clause.rule for clause in clauses().values()} == RULES.keys()
