"""Bugs of real clients: under the state that provokes one, an application sees it with the old release, and not with
the release that mends it. `make old-clients`
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from odradek.testing.sync import Odradek
from tests.judge_history.installing import install, interpreter
from tests.old_clients import states
from tests.old_clients.running import Setting, seen_by

PROGRAMS = Path(__file__).parent / "workloads"


@dataclass(frozen=True, slots=True)
class Client:
    package: str
    program: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One bug.

    bug         where the client's project, or its user, tells of it
    sees        begins what the application sees with the old release; `instead` is all that it sees with the mended one
    state       before the application starts; `meanwhile` happens while it runs
    python      whose wheels the releases have, where that is not this one
    """

    bug: str
    client: Client
    old: str
    mended: str
    application: str
    state: Setting
    sees: str
    instead: str
    meanwhile: Setting | None = None
    nodes: int | None = None
    python: str | None = None


LIBRDKAFKA = Client("confluent-kafka", "librdkafka.py")
AIOKAFKA = Client("aiokafka", "aiokafka_.py")
KAFKA_PYTHON = Client("kafka-python", "kafka_python_.py")
KAFKAJS = Client("kafkajs", "kafkajs.js")
FRANZ_GO = Client("github.com/twmb/franz-go", "franz_go.go")
SARAMA = Client("github.com/IBM/sarama", "sarama.go")

ROWS = (
    Row(
        "fede1024/rust-rdkafka#349", LIBRDKAFKA, "1.6.0", "1.6.1", "empty_transaction", states.orders,
        "raised KafkaError{FATAL,code=INVALID_TXN_STATE", "committed", python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#3265", LIBRDKAFKA, "1.6.0", "1.6.1", "read_in_a_group", states.unstable_offsets,
        "dies of SIGABRT", "read a, b", states.offsets_become_stable, python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#3020", LIBRDKAFKA, "1.5.0", "1.6.0", "read_two", states.compressed_aborted_batch,
        "read aborted, aborted", "read a, b", python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#3971", LIBRDKAFKA, "1.9.2", "2.0.2", "commit_without_answer", states.lost_commit,
        "raised KafkaError{code=_TIMED_OUT", "committed", python="3.8",
    ),
    Row(
        "aio-libs/aiokafka#1134", AIOKAFKA, "0.12.0", "0.13.0", "two_transactions", states.second_batch_held,
        "hangs", "committed", states.coordinator_ends, nodes=3,
    ),
    Row(
        "aio-libs/aiokafka#1115", AIOKAFKA, "0.12.0", "0.13.0", "send", states.storage_error,
        "raised KafkaStorageError", "sent",
    ),
    Row(
        "dpkp/kafka-python#2499", KAFKA_PYTHON, "2.0.5", "2.0.6", "read_all", states.committed_transaction,
        "read b'a', b'\\x00\\x00", "read b'a', b'b'",
    ),
    Row(
        "tulios/kafkajs#1388", KAFKAJS, "2.0.2", "2.1.0", "emptyTransaction", states.orders,
        "raised The producer attempted a transactional operation in an invalid state", "committed",
    ),
    Row(
        "twmb/franz-go#1348, 42", FRANZ_GO, "1.21.3", "1.21.4", "readTwo", states.aborted_list_reversed,
        "read aborted", "read a, b",
    ),
    Row(
        "twmb/franz-go#1348, 39", FRANZ_GO, "1.21.3", "1.21.4", "copyOne", states.unknown_end,
        "committed: true", "committed: false",
    ),
    Row(
        "twmb/franz-go#1348, 40", FRANZ_GO, "1.21.3", "1.21.4", "oneTransaction", states.dead_producer,
        "raised producer ID has a fatal, unrecoverable error", "committed", states.dead_producer_is_ended,
    ),
    Row(
        "IBM/sarama#2939", SARAMA, "1.43.2", "1.43.3", "send", states.storage_error,
        "raised kafka server: Disk error", "sent",
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def odradek() -> Iterator[Odradek]:
    with Odradek.start() as started:
        yield started


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bug)
def test_the_old_release_fails_and_the_mended_one_passes(row: Row, odradek: Odradek) -> None:
    python = interpreter(row.python)
    if python is None:
        pytest.skip(f"needs a Python {row.python}")
    assert not row.instead.startswith(row.sees)
    assert run(row, row.old, python, odradek).startswith(row.sees)
    assert run(row, row.mended, python, odradek) == row.instead


def run(row: Row, version: str, python: str, odradek: Odradek) -> str:
    release = install(row.client.package, version, PROGRAMS / row.client.program, row.client.needs, python)
    with odradek.cluster(nodes=row.nodes) as kafka:
        row.state(kafka)
        seen = seen_by(release, row.application, kafka, row.meanwhile)
        print(f"{row.client.package} {version}: {seen}")
        return seen
