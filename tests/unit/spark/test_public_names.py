"""Tests that applications can import the names in docs/using-spark.md. The tests do not need pyspark."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
IMPORT = re.compile(r"^from (odradek\.spark\.\w+) import (.+)$", re.MULTILINE)


def documented() -> list[tuple[str, str]]:
    """Returns the module and the name of each import in the guide's examples."""
    text = (REPOSITORY / "docs" / "using-spark.md").read_text(encoding="utf-8")
    return [(module, name.strip()) for module, names in IMPORT.findall(text) for name in names.split(",")]


def test_the_guide_imports_each_job() -> None:
    jobs = ("audit", "avro", "diff", "export", "inputs", "profile")
    assert {f"odradek.spark.{job}" for job in jobs} <= {module for module, _ in documented()}


@pytest.mark.parametrize(("module", "name"), documented())
def test_a_documented_name_is_defined_where_the_public_module_takes_it_from(module: str, name: str) -> None:
    tree = ast.parse((REPOSITORY / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    taken = {alias.name: node.module for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert name in taken
    source = REPOSITORY / f"{str(taken[name]).replace('.', '/')}.py"
    defined = {getattr(node, "name", None) for node in ast.parse(source.read_text(encoding="utf-8")).body}
    assert name in defined
