"""Tests that each break on the page docs/verdicts.md has been examined, and that the program that writes the page omits
no break."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from pathlib import Path

from odradek.testing.judge.rules import RULES
from tests.client_lab.suite import SuiteResult, read_played
from tests.client_lab.verdicts_page import TOURS, Cell, ExaminedBreak, page, read_examined, unexamined

TEXT = (Path(__file__).parents[2] / "docs/verdicts.md").read_text(encoding="utf-8")
WHEN = datetime(2026, 11, 25, tzinfo=UTC)
MATRIX = {"one": {"VER.1": Cell(3), "TXN.1": Cell(1, 2, ["nothing unusual"])}, "two": {"TXN.1": Cell(4)}}


def test_every_break_of_the_page_was_examined() -> None:
    rows = [line.split("|")[1:-1] for line in TEXT.splitlines() if line.startswith("|")]
    clients = [cell.strip() for cell in rows[0][2:]]
    assert clients == [tour.name for tour in TOURS]
    shown = {
        (client, row[0].strip())
        for row in rows
        if row[0].strip() in RULES
        for client, cell in zip(clients, row[2:], strict=True)
        if "**" in cell
    }
    breaks = {(row[0].strip(), row[1].split()[0]) for row in rows if re.match(r"[0-9A-Z]+\.\d+ ", row[1].strip())}
    in_suite = {(each.client, rule) for each in read_played() for rule in each.broken}
    rows_of_clients = {
        (client, rule) for client, rule in breaks if client in clients
    }  # suites judged the other clients
    assert shown <= rows_of_clients <= shown | in_suite
    examined = {(each.client, each.rule) for each in read_examined()}
    assert {(client.split(",")[0], rule) for client, rule in breaks} <= examined


PLAYED = SuiteResult("two", date(2026, 11, 25), ["CON.1"], ["MET.2"], ["MET.8"], ["2PC.1"])


def test_every_break_in_the_suite_was_examined() -> None:
    assert unexamined({}, read_examined(), read_played()) == []


def test_a_break_that_nobody_examined_is_named() -> None:
    assert unexamined({}, [], [PLAYED]) == [("two", "MET.2")]
    assert unexamined(MATRIX, []) == [("one", "TXN.1")]
    assert unexamined(MATRIX, [ExaminedBreak("one", "TXN.1", "it did")]) == []


def test_the_page_has_a_cell_for_each_rule_and_client() -> None:
    lines = list(
        page(
            MATRIX,
            2,
            [ExaminedBreak("one", "TXN.1", "it did"), ExaminedBreak("two", "TXN.1", "it did not")],
            [PLAYED],
            WHEN,
        )
    )
    assert "| node that hangs up | CON.1 | kept |" in lines
    assert "| metadata of an older epoch | MET.2 | **broken** |" in lines
    assert "| topic missing from one answer | MET.8 |  |" in lines
    assert "| prepared transaction | 2PC.1 | – |" in lines
    assert "| TXN.1 | M | **2 of 3** | 4 |" in lines
    assert "| VER.1 | S | 3 |  |" in lines
    assert sum("it did" in line for line in lines) == 1
