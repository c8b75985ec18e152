"""Tests that each function named on a page as `file::function` exists, and that each class named on the pages for
readers exists. docs/architecture.md names functions for each step of its walks.

File paths start at the root of the repository or, on the architecture page, at `odradek/`.
"""

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
CODE = REPOSITORY / "odradek"
DOCS = REPOSITORY / "docs"
PAGE = DOCS / "architecture.md"
READERS_PAGES = ("architecture.md", "glossary.md", "reading.md")
# Matches a class, or a member of a class such as `Shard.carry_out`.
CLASS = re.compile(r"`([A-Z][a-z]+\w*)(?:\.(\w+))?`")
STEP = re.compile(r"`([a-z_/]+\.py)::([\w.]+)`")
# Matches a file in the reading list and its number of lines.
LISTED = re.compile(r"^\d+\. \*\*\[`([a-z_/]+\.py)`\]\(\S+\)\*\* \((\d+)\s+lines\)", re.MULTILINE)
IN_ALL = re.compile(r"Together they have about ([\d,]+) lines")
WALKS = (
    "The usual Produce",
    "The general Produce",
    "EndTxn",
    "A read_committed Fetch",
    "A ShareFetch",
    "A TxnShareAcknowledge",
    "A SASL login",
    "A held marker",
    "A judged exchange",
)


def steps(text: str) -> list[tuple[str, str]]:
    return STEP.findall(text)


def walk(title: str) -> str:
    """Returns the section of docs/architecture.md under this heading."""
    after = PAGE.read_text(encoding="utf-8").partition(f"### {title}\n")[2]
    return re.split(r"^##", after, maxsplit=1, flags=re.MULTILINE)[0]


def names_in(path: Path) -> set[str]:
    """Returns the names that a file defines at its top level, and its classes' members as `Class.name`."""

    def defined(body: list[ast.stmt]) -> list[str]:
        names = []
        for statement in body:
            match statement:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    names.append(statement.name)
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    names.append(name)
        return names

    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set(defined(tree.body))
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            found |= {f"{statement.name}.{name}" for name in defined(statement.body)}
    return found


@pytest.mark.parametrize("title", WALKS)
def test_the_page_lists_the_functions_of_each_walk(title: str) -> None:
    assert len(steps(walk(title))) >= 8


def test_every_function_that_a_page_names_exists() -> None:
    named = {step for page in DOCS.rglob("*.md") for step in steps(page.read_text(encoding="utf-8"))}
    missing = [
        f"{file}::{name}"
        for file, name in sorted(named)
        if not any((root / file).is_file() and name in names_in(root / file) for root in (REPOSITORY, CODE))
    ]
    assert missing == []


def test_every_class_and_method_that_the_pages_for_readers_name_exists() -> None:
    defined = {
        name for file in CODE.rglob("*.py") if "messages" not in file.relative_to(CODE).parts for name in names_in(file)
    }
    named = {
        name if not member else f"{name}.{member}"
        for page in READERS_PAGES
        for name, member in CLASS.findall((DOCS / page).read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert sorted(named - defined) == []


def test_the_files_of_the_reading_list_are_about_as_long_as_it_says() -> None:
    page = (DOCS / "reading.md").read_text(encoding="utf-8")
    stated = {file: int(lines) for file, lines in LISTED.findall(page)}
    actual = {file: (CODE / file).read_text(encoding="utf-8").count("\n") for file in stated}
    assert len(stated) >= 15
    assert [file for file in stated if abs(stated[file] - actual[file]) > max(20, actual[file] // 10)] == []
    in_all = IN_ALL.search(page)
    assert in_all is not None
    assert abs(int(in_all[1].replace(",", "")) - sum(actual.values())) <= 200
