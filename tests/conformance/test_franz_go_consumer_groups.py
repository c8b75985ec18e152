"""Tests franz-go's consumers in KIP-848 groups and in classic groups. The first run fetches the client from the Go
module proxy."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.list_groups_response import ListGroupsResponse
from tests.clients.admin import create_topic
from tests.clients.speakers import SPEAKERS, Message
from tests.support.broker_process import Broker, new_broker
from tests.support.wire import Wire

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="needs Go")

SOURCES = Path(__file__).parent / "go"
PARTITIONS = 6
SETTINGS: dict[str, object] = {
    "offsets.topic.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 100,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("go") / "consumers"
    done = subprocess.run(["go", "build", "-o", str(built), "."], cwd=SOURCES, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return built


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_members_come_and_go(broker: Broker, program: Path, protocol: str) -> None:
    topic = create_topic(broker.bootstrap, protocol, PARTITIONS)
    messages = [Message(b"%d" % index, partition=index) for index in range(PARTITIONS)]
    SPEAKERS["confluent-kafka"].produce(broker.bootstrap, topic, messages)
    group = f"{topic}-g"
    ran = subprocess.run(
        [program, broker.bootstrap, topic, group, protocol], capture_output=True, text=True, timeout=120
    )
    assert ran.stdout.splitlines() == [
        "alone: 6",
        "records: 6",
        "committed",
        "two: 3+3",
        "alone again: 6",
        "read again: 0",
    ], ran.stderr
    with Wire(broker.bootstrap) as wire:  # franz-go could have fallen back to the classic protocol without an error.
        listed = wire.ask(ListGroupsRequest(), 5, ListGroupsResponse).groups
    assert [each.group_type for each in listed if each.group_id == group] == [protocol]
