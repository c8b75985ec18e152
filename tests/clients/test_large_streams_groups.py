"""Tests a running broker with streams groups (KIP-1071) that have very many topics and tasks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.client import NewTopic
from odradek.client.sync import Admin
from odradek.protocol.messages.streams_group_heartbeat_request import Subtopology
from tests.clients.speakers import wait_for
from tests.clients.streams_members import NO_DELAY, StreamsMember
from tests.support.broker_process import new_broker
from tests.support.wire import Wire

SUBTOPOLOGIES = 400  # With this many subtopologies, checking the topics takes more than one slice.
PARTITIONS = 3  # With this many partitions, the assignment runs in slices between requests.


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with new_broker(Path(tmp_path_factory.mktemp("broker")) / "data", NO_DELAY) as broker:
        with Admin(bootstrap_servers=broker.bootstrap, retry_backoff_ms=20) as admin:
            admin.create_topics([NewTopic("lines", PARTITIONS)])
        yield broker.bootstrap


def reading(topic: str) -> list[Subtopology]:
    return [Subtopology(subtopology_id=str(number), source_topics=[topic]) for number in range(SUBTOPOLOGIES)]


def test_two_members_share_1200_tasks(bootstrap: str) -> None:
    with Wire(bootstrap) as wire:
        members = [StreamsMember(wire, "large", name, topology=reading("lines"), process=name) for name in "ab"]
        for member in members:
            member.join()

        def counts() -> list[int]:
            return [sum(len(partitions) for partitions in member.beat().values()) for member in members]

        wait_for("half of the tasks for each", lambda: counts() == [600, 600])
        first, second = (
            {(name, partition) for name, partitions in member.tasks.items() for partition in partitions}
            for member in members
        )
        assert not first & second


def test_an_invalid_topic_among_very_many_refuses_the_member(bootstrap: str) -> None:
    topology = [*reading("lines"), Subtopology(subtopology_id="wrong", source_topics=["a b"])]
    with Wire(bootstrap) as wire:
        member = StreamsMember(wire, "refused", "a", topology=topology)
        member.join()
        assert (member.epoch, member.tasks) == (0, {})
