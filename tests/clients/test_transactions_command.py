"""Tests `odradek transactions` against a running broker. If BROKER=kafka is set, the tests run with Apache Kafka."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from odradek.protocol.errors import ErrorCode
from tests.clients.admin import create_topic
from tests.clients.transactions import READERS
from tests.support.broker_process import Broker, new_broker
from tests.support.commands import command
from tests.support.hanging import leave_hanging
from tests.support.two_phase import TwoPhaseClient
from tests.support.wire import Wire

SETTINGS: dict[str, object] = {
    "transaction.state.log.num.partitions": 4,
    "transaction.partition.verification.enable": "false",  # allows the test to create a hanging transaction
    "transaction.two.phase.commit.enable": "true",
    "unstable.api.versions.enable": "true",  # Kafka accepts two-phase commits only with this setting.
}
PATIENCE_S = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", SETTINGS) as running:
        yield running


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap


def transactions(*words: str) -> subprocess.CompletedProcess[str]:
    return command("transactions", *words)


def found(*words: str) -> list[dict[str, Any]]:
    done = transactions(*words, "--json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def producer_of(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0})
    producer.init_transactions(PATIENCE_S)
    return producer


def in_transaction(bootstrap: str, transactional_id: str, topic: str) -> Producer:
    """Returns a producer with an open transaction that contains one record."""
    producer = producer_of(bootstrap, transactional_id)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(PATIENCE_S) == 0
    return producer


def test_an_open_transaction_is_listed_and_described_with_its_partitions(bootstrap: str) -> None:
    topic = create_topic(bootstrap, "described")
    producer = in_transaction(bootstrap, "describe-me", topic)
    (listed,) = [row for row in found("list", "-b", bootstrap) if row["transactional_id"] == "describe-me"]
    (described,) = found("describe", "describe-me", "-b", bootstrap)
    producer.commit_transaction(PATIENCE_S)
    (ended,) = found("describe", "describe-me", "-b", bootstrap)
    assert listed["state"] == "Ongoing"
    assert described == described | {
        "transactional_id": "describe-me",
        "state": "Ongoing",
        "producer_id": listed["producer_id"],
        "coordinator": 1,
        "partitions": [f"{topic}-0"],
    }
    assert described["open_for_ms"] >= 0
    assert (ended["state"], ended["partitions"], ended["open_for_ms"]) == ("CompleteCommit", [], None)


def test_lists_can_be_narrowed(bootstrap: str) -> None:
    topic = create_topic(bootstrap, "narrowed")
    producer = in_transaction(bootstrap, "narrow-open", topic)
    producer_of(bootstrap, "narrow-idle")
    ids = {row["transactional_id"]: row["producer_id"] for row in found("list", "-b", bootstrap)}

    def only(*words: str) -> set[str]:
        return {row["transactional_id"] for row in found("list", "-b", bootstrap, *words)} & {
            "narrow-open",
            "narrow-idle",
        }

    assert {"narrow-open", "narrow-idle"} <= ids.keys()
    assert only("--state", "Ongoing") == {"narrow-open"}
    assert only("--producer-id", str(ids["narrow-idle"])) == {"narrow-idle"}
    assert only("--transactional-id-pattern", "narrow-o.*") == {"narrow-open"}
    assert only("--state", "Ongoing", "--duration-filter", "3600000") == set()
    producer.abort_transaction(PATIENCE_S)


def test_people_get_a_table(bootstrap: str) -> None:
    producer_of(bootstrap, "tabled")
    lines = transactions("list", "-b", bootstrap).stdout.splitlines()
    assert re.split(r"  +", lines[0].strip()) == ["TRANSACTIONAL ID", "COORDINATOR", "PRODUCER ID", "STATE"]
    assert any(re.match(r"tabled +1 +\d+ +Empty", line) for line in lines)


def test_a_transaction_that_no_coordinator_knows_is_found_and_aborted_and_readers_go_on(bootstrap: str) -> None:
    topic = create_topic(bootstrap, "hangs")
    producer_id = leave_hanging(bootstrap, "lost", topic)
    ordinary = Producer({"bootstrap.servers": bootstrap})
    ordinary.produce(topic, b"behind it")
    assert ordinary.flush(PATIENCE_S) == 0
    place = ("--topic", topic, "--partition", "0")
    (hanging,) = found("find-hanging", "-b", bootstrap, *place, "--max-transaction-timeout", "0")
    assert (hanging["producer_id"], hanging["start_offset"]) == (producer_id, 0)
    assert READERS["confluent-kafka"](bootstrap, topic, committed=True) == []
    done = transactions("abort", "-b", bootstrap, *place, "--start-offset", "0")
    assert (done.returncode, done.stdout) == (0, f"Aborted the transaction at offset 0 of {topic}-0.\n"), done.stderr
    assert READERS["confluent-kafka"](bootstrap, topic, committed=True) == [b"behind it"]
    assert found("find-hanging", "-b", bootstrap, *place, "--max-transaction-timeout", "0") == []


def test_a_transaction_that_its_coordinator_will_end_does_not_hang_and_gets_no_marker_behind_its_back(
    bootstrap: str,
) -> None:
    topic = create_topic(bootstrap, "alive")
    producer = in_transaction(bootstrap, "alive", topic)
    assert found("find-hanging", "-b", bootstrap, "--topic", topic, "--max-transaction-timeout", "0") == []
    refused = transactions("abort", "-b", bootstrap, "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert refused.returncode == 1
    assert "the transaction belongs to the transactional id 'alive' (Ongoing)" in refused.stderr
    assert "abort --transactional-id alive" in refused.stderr
    producer.commit_transaction(PATIENCE_S)


def test_a_transaction_can_be_ended_by_its_coordinator_which_fences_the_producer(bootstrap: str) -> None:
    topic = create_topic(bootstrap, "ended")
    producer = in_transaction(bootstrap, "ended", topic)
    assert transactions("abort", "-b", bootstrap, "--transactional-id", "ended").returncode == 0
    (described,) = found("describe", "ended", "-b", bootstrap)
    assert described["partitions"] == []
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)
    assert READERS["confluent-kafka"](bootstrap, topic, committed=True) == []
    again = transactions("abort", "-b", bootstrap, "--transactional-id", "ended")
    assert again.returncode == 1
    assert "'ended' has no open transaction" in again.stderr


# --- Two-phase commit.


def in_two_phase_commit(bootstrap: str, transactional_id: str, *topics: str) -> tuple[int, int]:
    with Wire(bootstrap) as wire:
        return TwoPhaseClient(wire).open(transactional_id, *topics)


def in_doubt(bootstrap: str, *words: str) -> dict[str, dict[str, Any]]:
    return {row["transactional_id"]: row for row in found("list", "--in-doubt", "-b", bootstrap, *words)}


def test_a_prepared_transaction_is_in_doubt_and_listed_with_the_records_that_it_holds_back(bootstrap: str) -> None:
    first, second = create_topic(bootstrap, "first"), create_topic(bootstrap, "second")
    ordinary = in_transaction(bootstrap, "doubt-ordinary", second)
    pair = in_two_phase_commit(bootstrap, "doubt-prepared", first, second)
    listed = in_doubt(bootstrap)
    assert "doubt-ordinary" not in listed, "it is young, and has a timeout"
    row = listed["doubt-prepared"]
    assert row == row | {
        "producer_id": pair[0],
        "producer_epoch": pair[1],
        "two_phase_commit": True,
        "partitions": sorted([f"{first}-0", f"{second}-0"]),
        "holds": [{"partition": f"{first}-0", "offset": 0, "records": 1}],
    }
    assert row["open_for_ms"] >= 0
    older = in_doubt(bootstrap, "--duration-filter", "0")["doubt-ordinary"]
    assert (older["two_phase_commit"], older["holds"]) == (
        False,
        [{"partition": f"{second}-0", "offset": 0, "records": 2}],
    )
    assert "doubt-prepared" not in in_doubt(bootstrap, "--duration-filter", "3600000")
    ordinary.abort_transaction(PATIENCE_S)
    assert {held["partition"] for held in in_doubt(bootstrap)["doubt-prepared"]["holds"]} == {
        f"{first}-0",
        f"{second}-0",
    }
    lines = transactions("list", "--in-doubt", "-b", bootstrap).stdout.splitlines()
    assert lines[0].split()[:2] == ["TRANSACTIONAL", "ID"]
    assert any(re.match(rf"doubt-prepared +{pair[0]}:{pair[1]} +two-phase commit +\d+ m?s", line) for line in lines)


def test_a_two_phase_commit_is_ended_by_force_only_and_its_owner_is_fenced(bootstrap: str) -> None:
    topic = create_topic(bootstrap, "forced")
    pair = in_two_phase_commit(bootstrap, "forced", topic)
    ordinary = Producer({"bootstrap.servers": bootstrap})
    ordinary.produce(topic, b"behind it")
    assert ordinary.flush(PATIENCE_S) == 0
    assert re.search(r"forced .* Ongoing +never ", transactions("describe", "forced", "-b", bootstrap).stdout)
    refused = transactions("abort", "-b", bootstrap, "--transactional-id", "forced")
    assert refused.returncode == 1
    assert "force-terminate --transactional-id forced" in refused.stderr
    assert "forced" in in_doubt(bootstrap)
    done = transactions("force-terminate", "-b", bootstrap, "--transactional-id", "forced")
    assert (done.returncode, done.stdout) == (
        0,
        "Aborted the transaction of a two-phase commit of forced, in 1 partition.\n",
    ), done.stderr
    assert READERS["confluent-kafka"](bootstrap, topic, committed=True) == [b"behind it"]
    with Wire(bootstrap) as wire:
        assert TwoPhaseClient(wire).end("forced", pair, commit=True) is ErrorCode.PRODUCER_FENCED
    (described,) = found("describe", "forced", "-b", bootstrap)
    assert described["timeout_ms"] == 30_000, "it is no longer of a two-phase commit"
    assert "forced" not in in_doubt(bootstrap)


def test_force_terminate_fences_the_owner_of_an_id_without_a_transaction(bootstrap: str) -> None:
    producer = producer_of(bootstrap, "forced-idle")
    done = transactions("force-terminate", "-b", bootstrap, "--transactional-id", "forced-idle")
    assert done.stdout == "forced-idle had no open transaction (Empty); its owner is fenced.\n"
    topic = create_topic(bootstrap, "fenced")
    producer.begin_transaction()
    producer.produce(topic, b"too late")
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)


@pytest.mark.parametrize(
    ("words", "complaint", "status"),
    [
        (["describe", "nobody"], "the transactional id 'nobody': TRANSACTIONAL_ID_NOT_FOUND", 4),
        (["find-hanging", "--topic", "nowhere"], "the topic 'nowhere': UNKNOWN_TOPIC_OR_PARTITION", 4),
        (["list", "--state", "Sleeping"], "does not know these transaction states: Sleeping", 1),
        (["list", "--transactional-id-pattern", "("], "INVALID_REGULAR_EXPRESSION", 1),
        (["abort", "--transactional-id", "nobody"], "TRANSACTIONAL_ID_NOT_FOUND", 4),
        (["force-terminate", "--transactional-id", "nobody"], "TRANSACTIONAL_ID_NOT_FOUND", 4),
        (["find-hanging", "--broker-id", "7", "--topic", "TOPIC", "--partition", "0"], "there is no partition", 4),
    ],
)
def test_an_impossible_action_is_explained_and_has_its_exit_status(
    bootstrap: str, words: list[str], complaint: str, status: int
) -> None:
    topic = create_topic(bootstrap, "there") if "TOPIC" in words else ""
    done = transactions(*(topic if word == "TOPIC" else word for word in words), "-b", bootstrap)
    assert done.returncode == status, done.stderr
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broker_that_is_not_there_is_named() -> None:
    done = transactions("list", "-b", "127.0.0.1:1")
    assert done.returncode == 3
    assert "no broker can be reached at 127.0.0.1:1: Connection refused" in done.stderr


def test_an_incomplete_position_is_refused_before_any_request() -> None:
    for words in (
        ["--topic", "t"],
        ["--topic", "t", "--partition", "0"],
        [],
        ["--transactional-id", "x", "--topic", "t"],
    ):
        done = transactions("abort", *words, "-b", "127.0.0.1:1")
        assert done.returncode == 2, words
        assert "--transactional-id" in done.stderr
