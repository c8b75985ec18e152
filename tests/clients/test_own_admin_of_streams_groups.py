"""Tests that Odradek's admin client lists, describes and deletes streams groups (KIP-1071)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.client import ClientError, NewTopic, StreamsTask, TopicPartition
from odradek.client.sync import Admin
from odradek.protocol.errors import ErrorCode
from tests.clients.speakers import wait_for
from tests.clients.streams_members import NO_DELAY, StreamsMember
from tests.support.broker_process import new_broker
from tests.support.wire import Wire


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with new_broker(Path(tmp_path_factory.mktemp("broker")) / "data", NO_DELAY) as broker:
        yield broker.bootstrap


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap, retry_backoff_ms=20) as admin:
        yield admin


def test_a_streams_group_is_listed_described_and_deleted(admin: Admin, bootstrap: str) -> None:
    admin.create_topics([NewTopic("lines", 2)])
    with Wire(bootstrap) as wire:
        member = StreamsMember(wire, "counter", "m1", process="instance-1")
        member.join()  # The coordinator now creates the repartition and changelog topics.
        wait_for("all tasks", lambda: member.beat() == {"0": [0, 1], "1": [0, 1]})
        found = admin.describe_streams_group("counter")
        member.leave()
    assert (found.group_id, found.state, found.assignor, found.topology_epoch) == ("counter", "Stable", "sticky", 0)
    assert found.epoch == found.assignment_epoch
    reader, counter = found.subtopologies
    assert (reader.source_topics, reader.repartition_sink_topics) == (("lines",), ("counter-by-word-repartition",))
    assert [(each.name, each.partitions) for each in counter.changelog_topics] == [("counter-counts-changelog", 2)]
    assert counter.read_topics == ("counter-by-word-repartition",)
    (described,) = found.members
    assert (described.member_id, described.process_id, described.user_endpoint) == ("m1", "instance-1", None)
    assert [str(each) for each in described.assignment.active] == ["0_0", "0_1", "1_0", "1_1"]
    assert described.assignment == described.target_assignment
    assert described.assignment.standby == described.assignment.warmup == ()
    assert list(found.partitions_of([StreamsTask("0", 1), StreamsTask("1", 0)])) == [
        TopicPartition("lines", 1),
        TopicPartition("counter-by-word-repartition", 0),
    ]
    (listed,) = admin.list_groups(types=["streams"])
    assert (listed.group_id, listed.type, listed.protocol_type, listed.state) == (
        "counter",
        "streams",
        "streams",
        "Empty",
    )
    admin.delete_groups(["counter"])
    assert admin.list_groups(types=["streams"]) == []


def test_a_group_of_another_type_is_no_streams_group(admin: Admin) -> None:
    admin.create_topics([NewTopic("read-otherwise", 1)])
    admin.alter_group_offsets("classic", {TopicPartition("read-otherwise", 0): 0})
    for name in ("classic", "no-such-group"):
        with pytest.raises(ClientError) as refused:
            admin.describe_streams_group(name)
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
