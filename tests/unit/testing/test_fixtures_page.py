"""Tests that docs/fixtures.md names every method of every fixture, and no others."""

import re
from pathlib import Path

import pytest

from odradek.testing import sync

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = (REPOSITORY / "docs/fixtures.md").read_text(encoding="utf-8")
# By language: two patterns, one for the declaration of a method or field with a given name, and one for the declaration
# of any public method or field.
LANGUAGES = {
    "Go": (
        "go/odradek/odradek.go",
        r"(?:^func \(k \*Cluster\) {0}\(|^\t{0}\s+\S)",
        r"^func \(k \*Cluster\) ([A-Z]\w*)\(",
    ),
    "Node": (
        "node/odradek.mjs",
        r"(?:^  (?:async )?{0}\(|this\.{0} = )",
        r"^  (?:async )?(?!constructor|rows|end)(\w+)\(.*\) \{{",
    ),
    "Java": (
        "java/src/test/java/odradek/Odradek.java",
        r"^    public (?:final )?\S+ {0}[(;]",
        r"^    public (?!static)(?:final )?\S+ (?!close)(\w+)[(;]",
    ),
    "Rust": ("rust/odradek.rs", r"(?:^    pub fn {0}\(|^    pub {0}:)", r"^    pub fn (?!new\b)(\w+)\("),
}


def table() -> list[dict[str, list[str]]]:
    lines = PAGE.split("## Every method")[1].split("\n## ")[0].split("| what it does |")[1].splitlines()
    rows = [[re.findall(r"`([^`(]+)[^`]*`", cell) for cell in line.split("|")[2:-1]] for line in lines[2:] if line]
    return [dict(zip(("Python", *LANGUAGES), row, strict=True)) for row in rows]


def test_the_table_has_every_method_of_python() -> None:
    of_cluster = {name for name in vars(sync.Cluster) if not name.startswith("_")}
    of_clock = {f"clock.{name}" for name in vars(sync.Clock) if not name.startswith("_")}
    named = {name for row in table() for name in row["Python"]}
    assert of_cluster | of_clock <= named
    assert {name for name in named if name.startswith("clock.")} == of_clock


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_fixture_has_what_the_table_says_and_no_more(language: str) -> None:
    file, declared, public = LANGUAGES[language]
    source = (REPOSITORY / "examples" / file).read_text(encoding="utf-8")
    named = {name for row in table() for name in row[language]}
    assert all(row[language] for row in table())
    missing = {name for name in named if not re.search(declared.format(name), source, re.MULTILINE)}
    assert missing == set()
    assert set(re.findall(public.replace("{{", "{"), source, re.MULTILINE)) <= named
