"""Tests that `odradek groups` lists, describes, resets and deletes streams groups (KIP-1071)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.clients.admin import create_topic
from tests.clients.speakers import wait_for
from tests.clients.streams_members import NO_DELAY, StreamsMember
from tests.support.broker_process import new_broker
from tests.support.commands import command
from tests.support.wire import Wire

CHANGELOG, REPARTITION = "counter-counts-changelog", "counter-by-word-repartition"


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", NO_DELAY) as broker:
        yield broker.bootstrap


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def at(bootstrap: str) -> Run:
    def run(*words: str, stdin: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
        done = command(*words, "-b", bootstrap, stdin=stdin)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return run


def parsed(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def test_a_streams_group_is_listed_described_reset_and_deleted(at: Run, bootstrap: str) -> None:
    create_topic(bootstrap, "lines", partitions=2, exact=True)
    at("produce", "-t", "lines", "-p", "0", stdin="a\nb\nc\n")
    with Wire(bootstrap) as wire:
        member = StreamsMember(wire, "counter", "m1", process="instance-1")
        member.join()
        wait_for("all tasks", lambda: member.beat() == {"0": [0, 1], "1": [0, 1]})
        (listed,) = parsed(at("groups", "list", "--type", "streams", "--json"))
        assert (listed["group"], listed["type"], listed["state"]) == ("counter", "streams", "Stable")
        assert (listed["members"], listed["uncommitted_partitions"]) == (1, 4)
        (shown,) = parsed(at("groups", "describe", "counter", "--members", "--json"))
        assert (shown["member"], shown["process"], shown["epoch"]) == ("m1", "instance-1", member.epoch)
        assert (shown["active"], shown["standby"], shown["warmup"]) == (["0_0", "0_1", "1_0", "1_1"], [], [])
        assert "ACTIVE" in at("groups", "describe", "counter", "--members").stdout
        (state,) = parsed(at("groups", "describe", "counter", "--state", "--json"))
        assert (state["type"], state["state"], state["assignor"]) == ("Streams", "Stable", "sticky")
        rows = parsed(at("groups", "describe", "counter", "--json"))
        assert [(row["topic"], row["partition"], row["log_end_offset"], row["consumer_id"]) for row in rows] == [
            (REPARTITION, 0, 0, "m1"),
            (REPARTITION, 1, 0, "m1"),
            ("lines", 0, 3, "m1"),
            ("lines", 1, 0, "m1"),
        ]
        topology = parsed(at("groups", "describe", "counter", "--topology", "--json"))
        assert [(row["subtopology"], row["role"], row["topic"], row["partitions"]) for row in topology] == [
            ("0", "source", "lines", None),
            ("0", "repartition sink", REPARTITION, None),
            ("1", "repartition source", REPARTITION, 2),
            ("1", "changelog", CHANGELOG, 2),
        ]
        assert "NON_EMPTY_GROUP" in at("groups", "delete", "counter", status=1).stderr
        at("groups", "reset-offsets", "counter", "-t", "lines", "--to-earliest", "--execute", status=1)
        member.leave()
    at("groups", "reset-offsets", "counter", "-t", "lines", "--to-offset", "1", "--execute")
    (listed,) = parsed(at("groups", "list", "--type", "streams", "--json"))
    assert (listed["state"], listed["members"], listed["lag"]) == ("Empty", 0, 2)
    at("groups", "delete-offsets", "counter", "-t", "lines:0")
    deleted = at("groups", "delete", "counter", "--delete-all-internal-topics").stdout
    assert deleted == f"Deleted group counter.\nDeleted its internal topics {REPARTITION}, {CHANGELOG}.\n"
    assert at("topics", "list").stdout.split() == ["lines"]
    assert parsed(at("groups", "list", "--type", "streams", "--json")) == []


def test_only_streams_groups_have_a_topology_and_internal_topics(at: Run, bootstrap: str) -> None:
    create_topic(bootstrap, "read", exact=True)
    at("groups", "reset-offsets", "readers", "-t", "read", "--to-earliest", "--execute")
    refused = at("groups", "describe", "readers", "--topology", status=1)
    assert "readers is not a streams group: only streams groups have a topology" in refused.stderr
    assert "GROUP_ID_NOT_FOUND" in at("groups", "delete", "readers", "--delete-all-internal-topics", status=4).stderr
    assert "readers" in at("groups", "list").stdout
