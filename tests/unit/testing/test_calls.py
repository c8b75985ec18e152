"""Tests that every method of `odradek.testing` has a row in the table of control calls, and that every row has a
method."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from odradek.control_calls import table
from odradek.control_calls.call import ControlCall
from odradek.testing import asynchronous, sync

ROWS = {name: row for name, row in vars(table).items() if isinstance(row, ControlCall)}
CLASSES = ("Odradek", "Cluster", "Clock")
# methods that make no call themselves, or that can make any call
WITHOUT_A_ROW = {
    *("Odradek.start", "Odradek.stop", "Odradek.call", "Odradek.stream"),
    *("Cluster.call", "Cluster.check_faults"),
}


def calls_made() -> dict[str, set[str]]:
    """Returns, for each row of the table, the public methods of the blocking form that refer to the row."""
    made: dict[str, set[str]] = defaultdict(set)
    for found in ast.parse(Path(sync.__file__).read_text(encoding="utf-8")).body:
        if not isinstance(found, ast.ClassDef) or found.name not in CLASSES:
            continue
        for method in found.body:
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                for node in ast.walk(method):
                    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "table" and node.attr in ROWS:
                        made[ROWS[node.attr].name].add(f"{found.name}.{method.name}")
    return made


def test_each_row_names_the_methods_that_make_its_call() -> None:
    made = calls_made()
    assert {call.name: set(call.python) for call in table.CALLS} == {call.name: made[call.name] for call in table.CALLS}


def test_every_row_is_in_the_list_of_the_calls() -> None:
    assert {call.name for call in ROWS.values()} == {call.name for call in table.CALLS}


def test_each_method_makes_a_call_of_the_table() -> None:
    methods = {
        f"{one}.{name}"
        for one in CLASSES
        for name, value in vars(getattr(sync, one)).items()
        if not name.startswith("_") and (callable(value) or isinstance(value, property | classmethod))
    }
    named = {method for call in table.CALLS for method in call.python}
    assert methods == named | WITHOUT_A_ROW


def test_the_form_on_asyncio_has_each_method_of_a_row() -> None:
    for method in (method for call in table.CALLS for method in call.python):
        one, _, name = method.partition(".")
        assert hasattr(getattr(asynchronous, one), name), method


def test_the_values_of_a_call_go_to_the_path_query_and_body_of_its_row() -> None:
    values = {"topic": "a/b", "partition": 0, "node": 2}
    assert table.MOVE_LEADER.request(values) == ("POST", "/partitions/a%2Fb/0/leader", {"node": 2})
    assert table.REQUESTS.request({"api": "End&Txn", "since": 3, "limit": None}) == (
        *("GET", "/requests?api=End%26Txn&since=3", None),
    )
    assert table.CLEAR.request({"name": None}) == ("DELETE", "/faults", None)
    assert table.CLEAR.request({"name": "a b"}) == ("DELETE", "/faults/a%20b", None)
    assert table.FAULT.request({"rule": [1]}) == ("POST", "/faults", [1])
    assert table.WAIT.request({"transaction": "t", "state": None}) == (
        *("POST", "/wait", {"transaction": "t", "state": None}),
    )
    assert table.CRASH.request({}) == ("POST", "/crash", {})


def test_a_call_with_a_missing_or_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="move-leader requires the field node"):
        table.MOVE_LEADER.request({"topic": "t", "partition": 0})
    with pytest.raises(TypeError, match="move-leader requires the field topic"):
        table.MOVE_LEADER.request({"partition": 0, "node": 1})
    with pytest.raises(TypeError, match="crash has no field hard"):
        table.CRASH.request({"hard": True})


def test_the_page_about_testing_names_each_call() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/testing.md").read_text(encoding="utf-8")
    for call in table.CALLS:
        short = call.path.removesuffix("/{name}") if call is table.CLEAR else call.path
        named = {f"{prefix}{short.replace('{how}', 'advance')}" for prefix in ("…", "", "/clusters/{id}")} - {""}
        assert any(f"{each}{end}" in page for each in named for end in (*"` ?[,", "\n")), call.name
