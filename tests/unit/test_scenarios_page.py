"""Tests that each numbered scenario of the rule book has tests with its number, and that the Scenarios page of the
documentation site lists them. The same applies to each row of the page about Kafka 4.4.

`COMPLETE` names the pages of the rule book (docs/spec/README.md) whose scenarios all have tests.
"""

import pytest

from tests.support.scenarios_page import (
    CASES,
    CHAPTERS,
    RULE_BOOK,
    SCENARIO,
    cases_with_a_test,
    cited_rows,
    missing,
    missing_rows,
    numbered_tests,
    page,
    row_tests,
    sections,
    sentence,
    tables,
)
from tests.unit.test_citations import LINK

# Pages that have a test for every scenario. On the other pages, only some scenarios have tests.
COMPLETE = ("transactions", "consumer-groups", "share-groups", "dead-letter-queues", "streams-groups")
# Rows about Kafka 4.4 that have no test of Odradek alone. Most of them were found only by reading, or need several
# nodes.
NOT_TESTED = {"U5", "M5", "C5", "O1", "O4"}
# Rows about Kafka 4.4 that have no test sending requests to a running Kafka.
UNASKED_SCENARIOS = {"U5", "M5", "C5", "T11", "S12", "O1", "O2", "O4"}


def test_every_scenario_of_a_complete_chapter_has_a_test() -> None:
    scenarios = {(page, number) for page in COMPLETE for section in sections(page) for number in section.numbers}
    assert len(scenarios) >= 140
    assert sorted(scenarios - numbered_tests().keys()) == []


def test_every_corner_case_of_transactional_acknowledgements_has_a_test() -> None:
    text = (RULE_BOOK / "share-groups.md").read_text()
    section = text[text.index(CASES) :].split("\n## ")[0]
    known = {int(match[2]) for line in section.splitlines() if (match := SCENARIO.match(line))}
    assert len(known) >= 14
    assert {number for number, _ in cases_with_a_test()} == known


def test_no_test_carries_the_number_of_a_scenario_that_does_not_exist() -> None:
    known = {(page, number) for page in CHAPTERS for section in sections(page) for number in section.numbers}
    assert sorted(numbered_tests().keys() - known) == []


def test_every_row_of_kafka_4_4_has_a_test_of_odradek_and_one_that_asks_kafka_or_is_named_here() -> None:
    assert set(missing_rows(of_kafka=False)) == NOT_TESTED
    assert set(missing_rows(of_kafka=True)) == UNASKED_SCENARIOS


def test_no_test_cites_a_row_of_kafka_4_4_that_does_not_exist() -> None:
    known = {row for table in tables() for row in table.rows}
    assert len(known) >= 60
    assert sorted(row_tests().keys() - known) == []


def test_the_page_lists_each_test_of_a_row_of_kafka_4_4() -> None:
    written = page()
    without_a_line = [
        (row, name)
        for row, tests in row_tests().items()
        for file, name in tests
        if f"| {row} | {sentence(name)} | `{file}` |\n" not in written
    ]
    assert without_a_line == []


@pytest.mark.parametrize(
    ("docstring", "rows"),
    [
        ("T1 and T11 of docs/spec/kafka-4.4.md#s5-2: the id.", ["T1", "T11"]),
        ("docs/spec/kafka-4.4.md#s5-5, O6. A topic.", ["O6"]),
        ("A1 to A3.", ["A1", "A2", "A3"]),
        ("The rows M1 to\n    M3, and M6\n    to M7.", ["M1", "M2", "M3", "M6", "M7"]),
    ],
)
def test_a_docstring_cites_single_rows_and_ranges_of_rows(docstring: str, rows: list[str]) -> None:
    assert cited_rows(docstring) == rows


def test_the_page_has_a_row_for_every_numbered_test() -> None:
    written = page()
    without_a_row = [
        (cited, number, name)
        for (cited, number), tests in numbered_tests().items()
        for file, name in tests
        if f"| {number} | {sentence(name)} | `{file}` |\n" not in written
    ]
    assert without_a_row == []


def test_the_page_names_the_scenarios_without_a_test() -> None:
    written = page()
    without = [line for lines in missing().values() for line in lines]
    assert [line for line in without if f"- {line}\n" not in written] == []
    assert ("Every scenario has a test." in written) == (without == [])


def test_the_page_links_to_each_chapter() -> None:
    assert len(LINK.findall(page())) > len(CHAPTERS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("test_scenario_012_an_abort_is_repeated", "an abort is repeated"),
        ("test_scenarios_003_and_004_a_member_leaves", "a member leaves"),
    ],
)
def test_a_row_has_the_words_of_the_tests_name(name: str, expected: str) -> None:
    assert sentence(name) == expected
