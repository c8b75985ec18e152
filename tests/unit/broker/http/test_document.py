"""Tests that the page is a single file whose modules use only the permitted syntax, and that no content from a broker
can terminate its script."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from odradek.broker.http.page.document import ASSETS, EXPORT, IMPORT, VENDOR, document, script, variable

MODULES = sorted(ASSETS.rglob("*.js"))
OWN = [each for each in MODULES if each.parent.name != VENDOR]
# The digest of dist/preact.module.js in preact 10.29.8, as published in the registry.
PREACT = "c30e721ebfdc6e2ad4c18c14d2dfb82667829c8aec27de1207774e3fc16858a8"
WIDTH = 120


def names(path: Path) -> str:
    return str(path.relative_to(ASSETS))


@pytest.mark.parametrize("module", OWN, ids=names)
def test_a_module_imports_and_exports_in_the_forms_that_are_understood(module: Path) -> None:
    text = module.read_text()
    lines = re.findall(r"^ *(?:import|export)\b.*", text, re.MULTILINE)
    understood = [each[0].splitlines()[0] for pattern in (IMPORT, EXPORT) for each in pattern.finditer(text)]
    assert [line for line in lines if not line.startswith(tuple(understood))] == []


def test_each_module_is_in_the_script_once_after_those_it_imports() -> None:
    text = script(ASSETS)
    defined: set[str] = set()
    for line in text.splitlines():
        if found := re.match(r"const (\$\w+) = \(\(\) =>", line):
            assert found[1] not in defined
            defined.add(found[1])
        elif found := re.match(r"(?:const \{.*|)\} = (\$\w+);", line):
            assert found[1] in defined
    assert defined == {variable(module.name) for module in MODULES}
    assert len(defined) == len(MODULES)


@pytest.mark.parametrize(
    "file", [each for each in ASSETS.rglob("*") if each.is_file() and each.parent.name != VENDOR], ids=names
)
def test_no_line_of_the_page_is_too_wide(file: Path) -> None:
    lines = enumerate(file.read_text().splitlines(), start=1)
    assert [number for number, line in lines if len(line) > WIDTH and '"data:' not in line] == []


def test_a_library_is_as_its_authors_publish_it_and_has_its_licence() -> None:
    assert hashlib.sha256((ASSETS / VENDOR / "preact.module.js").read_bytes()).hexdigest() == PREACT
    assert "The MIT License" in (ASSETS / VENDOR / "preact.LICENSE").read_text()


@pytest.mark.parametrize("name", ["</script>", "<!--<script>", '"', "\\", "\u2028", "/*SCRIPT*/"])
def test_a_name_of_any_characters_survives_in_the_document(name: str) -> None:
    text = document({"name": name}, token=None)
    given = re.findall(r'<script type="application/json" id="given">(.*?)</script>', text, re.DOTALL)
    assert len(given) == 1
    assert "<" not in given[0]
    assert json.loads(given[0]) == {"token": None, "first": {"name": name}}
    assert len(re.findall("</?script", text)) == 4
