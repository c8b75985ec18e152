"""Tests that the diagram in docs/using-transactions.md agrees with the tables of the transaction coordinator."""

import re

from odradek.broker.transactions.tables import ROWS, TxnState
from tests.unit.docs.transaction_diagram import PAGE, allowed, edges, mermaid, with_diagram


def test_every_transition_that_the_tables_allow_is_drawn_with_a_reason_and_no_other() -> None:
    found = edges()
    assert set(found) == allowed()
    assert all(found.values())


def test_the_page_shows_the_current_diagram() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_diagram(page) == page, "run: python -m tests.unit.docs.transaction_diagram"


def test_the_page_explains_every_state_that_is_drawn() -> None:
    page = PAGE.read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert {row.kafka_name for row in ROWS} <= explained


def test_ends_are_drawn_as_ends() -> None:
    assert f"{TxnState.COMPLETE_COMMIT.kafka_name} --> [*]" in mermaid()
    assert "Dead" not in mermaid()
