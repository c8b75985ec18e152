"""Tests that each known broker bug has a test. The test for the rule that the bug breaks is marked with the bug's
number.

The numbers refer to a list of bugs in Kafka, in other brokers that use its protocol, and in this broker.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
# All bugs up to number 62. Of the later bugs, only those in Kafka 4.4.
NUMBERS = {*range(1, 63), 82}


def marked(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the numbers of the known bugs that a test file covers, each with the name of the test."""
    text = path.read_text(encoding="utf-8")
    if "known_bug" not in text:
        return
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name.startswith("test_"):
            for each in function.decorator_list:
                match each:
                    case ast.Call(
                        func=ast.Attribute(attr="known_bug"),
                        args=[ast.Constant(value=int() as number), ast.Constant(value=str())],
                    ):
                        yield number, function.name


def test_each_known_bug_is_held_by_a_test_that_is_run() -> None:
    paths = [*(TESTS / "spec").rglob("test_*.py"), *(TESTS / "clients").glob("test_*.py")]
    assert {number for path in paths for number, _ in marked(path)} == NUMBERS
