"""Tests `odradek control` against a broker that a client uses (docs/testing.md)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from odradek.control_calls import table
from odradek.testing.sync import Odradek, Refused
from odradek.tools.commands.tree import run
from tests.clients.admin import list_topics

Control = Callable[..., Any]


@pytest.fixture
def control(odradek: Odradek, capsys: pytest.CaptureFixture[str]) -> Control:
    """Returns a function that runs the command and returns its JSON output or its error message."""

    def call(*words: str, status: int = 0) -> Any:
        assert run(["control", *words, "--http", f"{odradek.host}:{odradek.port}"]) == status
        said = capsys.readouterr()
        return json.loads(said.out) if said.out else said.err

    return call


@pytest.fixture
def cluster(control: Control) -> Iterator[dict[str, Any]]:
    facts = control("create", "num.partitions=2")
    yield facts
    control("delete", "-C", facts["id"])


def test_a_cluster_is_made_shown_and_deleted(control: Control) -> None:
    facts = control("create", "--nodes", "4,2", "--ttl-s", "600", "num.partitions=2")
    assert [node["id"] for node in facts["nodes"]] == [4, 2]
    del facts["token"]
    assert facts in control("clusters")
    assert control("show", "-C", facts["id"]) == facts
    control("delete", "-C", facts["id"])
    assert "there is no cluster" in control("show", "-C", facts["id"], status=4)


def test_a_cluster_is_made_with_topics(control: Control) -> None:
    facts = control("create", "--topic", "orders=3", "--topic", "paid=1")
    topics = list_topics(AdminClient({"bootstrap.servers": facts["bootstrap"]})).topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {"orders": 3, "paid": 1}
    control("delete", "-C", facts["id"])
    assert "topics.orders" in control("create", "--topic", "orders=many", status=1)


def test_a_cluster_is_made_with_listeners_and_users(control: Control) -> None:
    listeners = ("--listener", '{"name": "open"}', "--listener", '{"name": "tls", "protocol": "SASL_SSL"}')
    facts = control("create", *listeners, "--user", "alice=secret", "--user", "bob=b=b")
    assert [each["protocol"] for each in facts["listeners"]] == ["PLAINTEXT", "SASL_SSL"]
    assert facts["ca_certificate"].startswith("-----BEGIN CERTIFICATE-----")
    control("delete", "-C", facts["id"])
    assert "is not JSON" in control("create", "--listener", "SSL", status=2)


def test_a_fault_acts_and_is_deleted(control: Control, cluster: dict[str, Any], tmp_path: Path) -> None:
    rule = tmp_path / "rule.json"
    rule.write_text(
        '{"name": "moved", "match": {"api": "Produce"}, "do": {"error": "NOT_LEADER_OR_FOLLOWER"}, "times": 1}'
    )
    control("fault", "-C", cluster["id"], f"@{rule}")
    producer = Producer({"bootstrap.servers": cluster["bootstrap"]})
    producer.produce("orders", "a")
    assert producer.flush(20) == 0
    assert control("wait", "-C", cluster["id"], "fault=moved", "hits=1")["hits"] == 1
    assert [each["name"] for each in control("faults", "-C", cluster["id"])] == ["moved"]
    assert [each["api"] for each in control("requests", "-C", cluster["id"], "--api", "Produce")] == ["Produce"] * 2
    control("clear", "-C", cluster["id"], "moved")
    assert control("faults", "-C", cluster["id"]) == []
    assert "there is no rule" in control("clear", "-C", cluster["id"], "moved", status=4)


def test_a_preset_its_hold_and_a_condition(control: Control, cluster: dict[str, Any]) -> None:
    control("preset", "-C", cluster["id"], "half-written-markers", "topic=orders")
    control("wait", "-C", cluster["id"], "hold=marker")
    (held,) = control("holds", "-C", cluster["id"])
    (who,) = held["who"]
    assert (held["name"], held["waiting"], who["at"], who["partitions"]) == ("marker", 1, "marker", ["orders-1"])
    open_at = ("topic=orders", "partition=1", "last_stable_offset=2")
    facts = control("wait", "-C", cluster["id"], *open_at, "--timeout-ms", "0", status=6)
    assert facts["last_stable_offset"] == 0
    assert control("release", "-C", cluster["id"], "marker") == {"released": 1}
    assert control("wait", "-C", cluster["id"], *open_at)["last_stable_offset"] == 2


def test_the_clock_is_moved(control: Control, cluster: dict[str, Any]) -> None:
    before = control("clock", "-C", cluster["id"], "freeze")
    assert before["frozen"]
    after = control("clock", "-C", cluster["id"], "advance", "604800000")
    assert after["now_ms"] == before["now_ms"] + 604_800_000
    assert control("now", "-C", cluster["id"]) == after
    assert "needs milliseconds" in control("clock", "-C", cluster["id"], "advance", status=2)


def test_a_cluster_returns_to_a_checkpoint(control: Control, cluster: dict[str, Any]) -> None:
    control("checkpoint", "-C", cluster["id"], "before")
    control("preset", "-C", cluster["id"], "open-transaction", "topic=orders")
    control("rewind", "-C", cluster["id"], "before")
    topics = list_topics(AdminClient({"bootstrap.servers": cluster["bootstrap"]})).topics
    assert topics == {}


def test_mistakes_on_the_command_line_are_explained(control: Control) -> None:
    assert "did you mean open-transaction" in control("preset", "open-transactions", status=1)
    assert "the rule is not JSON" in control("fault", "{", status=2)
    assert run(["control", "clusters", "--http", "localhost:1"]) == 3
    assert run(["control", "clusters", "--http", "localhost"]) == 2


def test_the_environment_names_the_broker_and_its_token_as_for_fixtures() -> None:
    with Odradek.start(**{"odradek.http.token": "a-token"}) as guarded:
        address = {"ODRADEK_CONTROL": f"{guarded.host}:{guarded.port}"}
        processes = [
            subprocess.run(
                [sys.executable, "-m", "odradek", "control", "clusters"],
                env={**os.environ, **address, "ODRADEK_TOKEN": token},
                capture_output=True,
                text=True,
            )
            for token in ("a-token", "another")
        ]
    assert [each.returncode for each in processes] == [0, 5]
    assert [cluster["id"] for cluster in json.loads(processes[0].stdout)] == ["default"]
    assert "token of odradek.http.token, or the token is wrong" in processes[1].stderr


def test_the_token_of_a_cluster_opens_its_calls_alone() -> None:
    with Odradek.start(**{"odradek.http.token": "a-token"}) as guarded:
        owner = Odradek(guarded.host, guarded.port, token="a-token")
        made = [owner.call("POST", "/clusters", {})[1] for _ in range(2)]
        assert made[0]["token"] != made[1]["token"]
        lent = Odradek(guarded.host, guarded.port, token=made[0]["token"])
        assert lent.call("GET", f"/clusters/{made[0]['id']}")[1].keys() == made[0].keys() - {"token"}
        for path in (f"/clusters/{made[1]['id']}", "/clusters/default", "/clusters", "/clusters/none", ""):
            with pytest.raises(Refused, match="401") as refused:
                lent.call("GET", path)
            assert refused.value.problem == {
                "type": "about:blank",
                "status": 401,
                "detail": "the request lacks the token of odradek.http.token, or the token is wrong",
            }
        assert lent.call("DELETE", f"/clusters/{made[0]['id']}")[0] == 200


def test_every_call_of_the_interface_has_an_action() -> None:
    names = {call.name for call in table.CALLS}
    made = {call.name for call in table.CALLS if call.action is not None}
    # `openapi` returns the document itself, `move-clock` is another form of `clock`, and `judge --attach` uses
    # `recording`.
    assert names - made == {"openapi", "move-clock", "recording"}
