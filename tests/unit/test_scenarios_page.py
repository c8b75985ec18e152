"""Each numbered scenario of the rule book has tests with its number, and the page Scenarios of the site lists them.

A page of the rule book (docs/spec/README.md) whose scenarios all have tests is named in `COMPLETE`.
"""

import pytest

from tests.support.scenarios_page import (
    CASES,
    CHAPTERS,
    RULE_BOOK,
    SCENARIO,
    cases_with_a_test,
    missing,
    numbered_tests,
    page,
    sections,
    sentence,
)
from tests.unit.test_citations import DOCS, LINK
from tests.unit.test_citations import missing as leads_nowhere

# The pages that have a test for every scenario. The others list the tests they have so far.
COMPLETE = ("transactions", "consumer-groups", "share-groups", "dead-letter-queues")


def test_every_scenario_of_a_complete_chapter_has_a_test() -> None:
    wanted = {(page, number) for page in COMPLETE for section in sections(page) for number in section.numbers}
    assert len(wanted) >= 140
    assert sorted(wanted - numbered_tests().keys()) == []


def test_every_corner_case_of_transactional_acknowledgements_has_a_test() -> None:
    text = (RULE_BOOK / "share-groups.md").read_text()
    section = text[text.index(CASES) :].split("\n## ")[0]
    known = {int(match[2]) for line in section.splitlines() if (match := SCENARIO.match(line))}
    assert len(known) >= 14
    assert {number for number, _ in cases_with_a_test()} == known


def test_no_test_carries_the_number_of_a_scenario_that_does_not_exist() -> None:
    known = {(page, number) for page in CHAPTERS for section in sections(page) for number in section.numbers}
    assert sorted(numbered_tests().keys() - known) == []


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


def test_each_link_of_the_page_leads_somewhere() -> None:
    links = LINK.findall(page())
    assert len(links) > len(CHAPTERS)
    assert [link for link in links if leads_nowhere(link, DOCS / "scenarios.md")] == []


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("test_scenario_012_an_abort_is_repeated", "an abort is repeated"),
        ("test_scenarios_003_and_004_a_member_leaves", "a member leaves"),
    ],
)
def test_a_row_tells_the_scenario_in_the_words_of_the_tests_name(name: str, told: str) -> None:
    assert sentence(name) == told
