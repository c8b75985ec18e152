"""Tests that the broker's commands and the page indent JSON as text, without parsing it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.broker.http.page.document import ASSETS
from odradek.protocol.decoded.json_text import DEEPEST, indented

DENO = Path(sys.executable).with_name("deno")
PROGRAM = f"""
import {{ indented }} from "{(ASSETS / "json_text.js").as_uri()}";
const given = JSON.parse(await new Response(Deno.stdin.readable).text());
console.log(JSON.stringify(given.map(indented)));
"""
DEEP = 30_000
LARGE = '{"text": "' + "x" * 5_000_000 + '", "list": [' + ",".join(["1.50"] * 1_000_000) + "]}"

CASES = {
    '{"id":9007199254740993}': '{\n  "id": 9007199254740993\n}',
    '{"price": 10.00, "low":1e-400,"high":1E+400, "none":-0}': (
        '{\n  "price": 10.00,\n  "low": 1e-400,\n  "high": 1E+400,\n  "none": -0\n}'
    ),
    '{"a":1,"a":2}': '{\n  "a": 1,\n  "a": 2\n}',
    r'["\u00e9\n\\\"\/", "é", "{,:}"]': '[\n  "\\u00e9\\n\\\\\\"\\/",\n  "é",\n  "{,:}"\n]',
    " [ ] ": "[]",
    '{"a":{},"b":[[]]}': '{\n  "a": {},\n  "b": [\n    []\n  ]\n}',
    "[true,false,null]": "[\n  true,\n  false,\n  null\n]",
    "\r\n{\t}": "{}",
}
NOT_JSON = (
    *("", "text", "12", '"text"', "null", "[", "]", "{", "[1,]", "[,1]", "[1 2]", "[01]", "[1.]", "[.5]", "[+1]"),
    *('{"a"}', '{"a":}', '{"a":1,}', "{a:1}", "{1:2}", '{"a" 1}', "[1]]", "[1] x", "[}", "{]", "[NaN]", "[truer]"),
    *('["a]', '["\\x"]', '["\\u12"]', '["\n"]', "[1}", '{"a":1]', "['a']", "[1-2]", "[\u00a01]", "[\u0661]"),
)


@pytest.fixture(params=["Python", "JavaScript"])
def each_indented(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[list[str]], list[str | None]]:
    if request.param == "Python":
        return lambda texts: [indented(text) for text in texts]
    program = tmp_path / "program.js"
    program.write_text(PROGRAM)

    def run(texts: list[str]) -> list[str | None]:
        given = json.dumps(texts).encode()
        command = [str(DENO), "run", "--quiet", "--no-remote", str(program)]
        done = subprocess.run(command, input=given, capture_output=True, check=True)
        found: list[str | None] = json.loads(done.stdout)
        return found

    return run


Indented = Callable[[list[str]], list[str | None]]


def test_json_keeps_its_text_when_it_is_indented(each_indented: Indented) -> None:
    assert dict(zip(CASES, each_indented(list(CASES)), strict=True)) == CASES


def test_indented_json_is_not_changed(each_indented: Indented) -> None:
    assert each_indented(list(CASES.values())) == list(CASES.values())


def test_only_objects_and_arrays_are_indented(each_indented: Indented) -> None:
    found = dict(zip(NOT_JSON, each_indented(list(NOT_JSON)), strict=True))
    assert {text: lines for text, lines in found.items() if lines is not None} == {}


def test_deep_nesting_costs_no_more_than_its_length(each_indented: Indented) -> None:
    text = "[" * DEEP + "1" + "]" * DEEP
    (found,) = each_indented([text])
    assert found is not None
    assert "".join(found.split()) == text
    assert found.count("\n") == 2 * DEEPEST
    assert len(found) < len(text) + 3 * DEEPEST * DEEPEST


def test_ten_megabytes_are_indented(each_indented: Indented) -> None:
    (found,) = each_indented([LARGE])
    assert found is not None
    assert found.count("\n") == 1_000_004
    assert found.endswith("    1.50\n  ]\n}")
