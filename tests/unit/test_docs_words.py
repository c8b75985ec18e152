"""The docs stay short enough to be read: words of docs/, but for the rule book and pages that a program writes."""

import re

import pytest

from tests.unit.test_citations import DOCS, pages

AT_MOST = 40_000
OF_PERFORMANCE = 2_500
WRITTEN_BY = re.compile(r"[Ww]ritten by `python -m ")  # says the head of a page that a program writes
HEAD_LINES = 15


def is_written_by_a_program(text: str) -> bool:
    return any(WRITTEN_BY.search(line) for line in text.splitlines()[:HEAD_LINES])


def words() -> dict[str, int]:
    """By page, as `wc -w` counts: code and the bars of tables too."""
    found = {str(page.relative_to(DOCS)): page.read_text() for page in pages() if DOCS in page.parents}
    own = {name: text for name, text in found.items() if not name.startswith("spec/")}
    return {name: len(text.split()) for name, text in own.items() if not is_written_by_a_program(text)}


def test_the_docs_are_short() -> None:
    assert sum(words().values()) <= AT_MOST
    assert words()["performance.md"] <= OF_PERFORMANCE


@pytest.mark.parametrize("page", ["apis.md", "commands.md", "scenarios.md", "scale/figures.md"])
def test_what_a_program_writes_is_not_counted(page: str) -> None:
    assert (DOCS / page).exists()
    assert page not in words()


@pytest.mark.parametrize("page", ["compatibility.md", "using-transactions.md", "adr/README.md", "formats/wire.md"])
def test_what_people_write_is_counted(page: str) -> None:
    assert words()[page] > 100
