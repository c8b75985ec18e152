"""Tests that `odradek control` turns command-line arguments into the values of the call's fields."""

import argparse
from pathlib import Path

import pytest

from odradek.control_calls.table import CALLS
from odradek.tools.commands.control import configure, values_of

BY_ACTION = {call.action: call for call in CALLS if call.action is not None}


def made(*words: str) -> tuple[str, str, object]:
    """Returns the method, the path and the body of the call for these arguments."""
    parser = argparse.ArgumentParser()
    configure(parser)
    call = BY_ACTION[words[0]]
    return call.request(values_of(call, parser.parse_args(words)))


@pytest.mark.parametrize(
    ("words", "path", "body"),
    [
        (("follower", "orders", "0", "2", "0"), "/partitions/orders/0/follower", {"node": 2, "end": 0}),
        (("follower", "orders", "0", "2"), "/partitions/orders/0/follower", {"node": 2, "end": None}),
        (("truncate", "a/b", "1", "0", "--node", "0"), "/partitions/a%2Fb/1/truncate", {"offset": 0, "node": 0}),
        (("rack", "2"), "/nodes/2/rack", {"rack": None}),
        (("rack", "2", "r"), "/nodes/2/rack", {"rack": "r"}),
        (("lease", "60"), "/lease", {"ttl_s": 60}),
        (("restart",), "/restart", {"clean": True}),
        (("stop-node", "2", "--unclean"), "/nodes/2/stop", {"clean": False}),
        (("clock", "advance", "0"), "/clock/advance", {"ms": 0}),
        (("clock", "freeze"), "/clock/freeze", {}),
        (("odd", "0"), "/odd", {"seed": 0}),
        (("preset", "open-transaction", "topic=paid", "partition=1"), "/presets/open-transaction",
         {"topic": "paid", "partition": 1}),
        (("wait", "transaction=7", "state=null", 'group="7"'), "/wait",
         {"transaction": 7, "state": None, "group": "7", "timeout_ms": 10_000}),
        (("fault", '{"do": {"observe": true}}'), "/faults", {"do": {"observe": True}}),
        (("release", "a b"), "/holds/a%20b/release", {}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_words_become_a_call(words: tuple[str, ...], path: str, body: object) -> None:
    assert made(*words) == ("POST", path, body)


def test_a_create_call_has_every_field_of_its_row() -> None:
    body = made("create", "num.partitions=2", "--nodes", "4,2", "--topic", "orders=3", "--user", "alice=7")[2]
    assert body == {
        "settings": {"num.partitions": "2"},
        "fork": None,
        "nodes": [4, 2],
        "topics": {"orders": 3},
        "ttl_s": None,
        "preset": None,
        "emulate": None,
        "listeners": None,
        "users": {"alice": "7"},
        "seed": None,
    }
    assert made("create", "--listener", '{"name": "a"}', "--listener", '{"name": "b"}')[2] == {
        **dict.fromkeys(("fork", "nodes", "topics", "ttl_s", "preset", "emulate", "users", "seed")),
        "settings": {},
        "listeners": [{"name": "a"}, {"name": "b"}],
    }


def test_omitted_values_are_not_in_the_query_or_the_path() -> None:
    assert made("requests", "--since", "0", "--api", "EndTxn") == ("GET", "/requests?api=EndTxn&since=0", None)
    assert made("partitions") == ("GET", "/partitions", None)
    assert made("clear") == ("DELETE", "/faults", None)
    assert made("clear", "slow/1") == ("DELETE", "/faults/slow%2F1", None)


def test_a_rule_is_read_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "rule.json"
    file.write_text('[{"do": {"drop": true}}]')
    assert made("fault", f"@{file}") == ("POST", "/faults", [{"do": {"drop": True}}])
    with pytest.raises(ValueError, match="the rule is not JSON"):
        made("fault", "{")
    with pytest.raises(ValueError, match="nested too deeply"):
        made("fault", "[" * 100_000)


def test_a_seed_is_sent_as_the_text_that_it_is(tmp_path: Path) -> None:
    file = tmp_path / "seed.yaml"
    file.write_text("topics:\n- name: orders\n")
    body = made("create", "--seed", f"@{file}")[2]
    assert isinstance(body, dict)
    assert body["seed"] == "topics:\n- name: orders\n"
    body = made("create", "--seed", '{"topics": []}')[2]
    assert isinstance(body, dict)
    assert body["seed"] == '{"topics": []}'


@pytest.mark.parametrize(("words", "why"), [(("freeze", "7"), "no number"), (("advance",), "milliseconds")])
def test_a_move_of_the_clock_requires_a_number_if_it_has_one(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        made("clock", *words)
