"""Tests that prose wraps at 120 characters, so that a diff shows the changed sentence. For code, ruff checks this
(E501).

Tables, code blocks and headings cannot wrap. Neither can a single word, such as a link.
"""

from collections.abc import Iterator

import pytest

from tests.unit.test_citations import named, pages

WIDTH = 120


def too_wide(text: str) -> Iterator[int]:
    """Yields the numbers of lines of a Markdown page that are too wide and could be wrapped."""
    in_code = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif len(line) > WIDTH and not in_code and not line.lstrip().startswith(("|", "#")) and " " in line.strip():
            yield number


def test_prose_of_the_pages_wraps() -> None:
    assert [f"{named(page)}:{number}" for page in pages() for number in too_wide(page.read_text())] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("word " * 25, [1]),
        ("- item\n  " + "word " * 25, [2]),
        ("word " * 24, []),
        ("| " + "word " * 25 + "|", []),
        ("```\n" + "word " * 25 + "\n```\n" + "word " * 25, [4]),
        ("x" * 121, []),
    ],
)
def test_only_lines_that_could_wrap_are_found(text: str, found: list[int]) -> None:
    assert list(too_wide(text)) == found
