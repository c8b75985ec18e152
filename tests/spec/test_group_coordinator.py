"""Tests that the group coordinator works on real partitions. The tests cover a group's shard, loading, the life of the
offsets topic, and crashes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.coordinators.group_coordinator import CoordinatorSettings
from odradek.broker.coordinators.shards import java_hash
from odradek.broker.groups.common.outcome import (
    ConsumerConfig,
    GroupConfig,
    MigrationPolicy,
    ShareConfig,
    StreamsConfig,
)
from odradek.broker.runtime.loop_watch import LoopWatch
from odradek.broker.runtime.slices import SLICE_S
from odradek.broker.runtime.waiting import Deferred
from odradek.protocol.compression import Compression
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.topic_partition import GROUP_OFFSETS
from tests.support.broker_scene import answer_of
from tests.support.fake_cluster import FakeCluster
from tests.support.fake_disk import Fault, ProcessCrashed
from tests.support.group_coordinator_scene import SETTINGS, Scene, code_of_commit
from tests.support.turns import outcome_and_turns

# --- The partition of a group.


@pytest.mark.parametrize(
    ("group_id", "number"),
    [
        ("", 0),
        ("a", 97),
        ("classic", 853620882),
        ("polygenelubricants", 0),  # The hash of this id is -2³¹, whose absolute value does not fit into an int32.
        ("ä😀", 1992007),  # This id has three UTF-16 code units.
    ],
)
def test_a_group_id_is_hashed_as_java_does(group_id: str, number: int) -> None:
    assert java_hash(group_id) == number


async def test_without_the_offsets_topic_the_broker_is_not_the_coordinator() -> None:
    scene = Scene()
    assert code_of_commit(scene.commit(1)) is ErrorCode.NOT_COORDINATOR
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        scene.ask(HeartbeatRequest(group_id="g"), 4)
    assert (await scene.ask(ListGroupsRequest(), 4)).groups == []


async def test_an_empty_partition_is_served_as_soon_as_the_topic_is_there() -> None:
    scene = Scene()
    scene.scene.topic(GROUP_OFFSETS, 3)
    scene.groups.offsets_topic_created(3)
    assert code_of_commit(scene.commit(1)) is ErrorCode.NONE
    assert [group.group_id for group in (await scene.ask(ListGroupsRequest(), 4)).groups] == ["g"]


async def test_an_empty_partition_gets_a_shard_only_on_its_first_request() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    assert list(scene.groups.shards) == []
    assert scene.groups.shards.is_complete
    assert scene.groups.shards.is_loaded
    scene.commit(1, group="g")
    assert [index for index, _ in scene.groups.shards.items()] == [scene.groups.partition_for("g")]
    scene.groups.stop()
    assert code_of_commit(scene.commit(1, group="h")) is ErrorCode.NOT_COORDINATOR


async def test_another_coordinator_loads_an_empty_partition_that_nobody_has_asked_for() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    scene.groups.shards.reload(scene.groups.partition_for("g"))
    assert code_of_commit(scene.commit(1, group="g")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await scene.loaded()
    assert code_of_commit(scene.commit(1, group="g")) is ErrorCode.NONE


async def test_a_loading_partition_answers_load_in_progress_except_to_heartbeats() -> None:
    before = Scene()
    await before.make_offsets_topic()
    before.commit(1)
    scene = before.restarting()
    assert code_of_commit(scene.commit(2)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert scene.ask(HeartbeatRequest(group_id="g", member_id="m"), 4).error_code == 0
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await scene.ask(ListGroupsRequest(), 4)
    await scene.loaded()
    assert code_of_commit(scene.commit(2)) is ErrorCode.NONE


async def test_clients_are_served_while_groups_are_listed() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    groups = ("orders", "billing", "stock")
    assert {scene.groups.partition_for(each) for each in groups} == {0, 1, 2}
    for each in groups:
        scene.commit(1, group=each)
    # Each step uses a complete slice.
    scene.scene.broker.watch = LoopWatch(scene.scene.timers, count(0.0, SLICE_S * 1.5).__next__)
    answer, turns = outcome_and_turns(scene.ask(ListGroupsRequest(), 4))
    assert {group.group_id for group in answer.groups} == set(groups)
    assert turns == 3 + 1  # one turn for each partition of `__consumer_offsets`, and one for the response


# --- Restarts.


async def test_offsets_and_members_are_there_after_a_kill() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    joining = scene.join(3)
    scene.scene.timers.advance(0)
    joined = answer_of(joining)
    assignment = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")]
    scene.ask(SyncGroupRequest(group_id="g", member_id=joined.member_id, generation_id=1, assignments=assignment), 3)
    scene.commit(5, group="other")
    after = await scene.restarted()
    assert after.ask(HeartbeatRequest(group_id="g", member_id=joined.member_id, generation_id=1), 3).error_code == 0
    assert after.committed("other") == {("t", 0): 5}


@pytest.mark.parametrize("call", range(1, 7))
async def test_whatever_the_call_to_the_disk_that_a_kill_comes_before_an_answered_commit_is_there(call: int) -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    answered = -1
    scene.disk.crash_before(call, half_write=True)
    try:
        for offset in range(8):
            if code_of_commit(scene.commit(offset)) is ErrorCode.NONE:
                answered = offset
    except ProcessCrashed:
        pass
    after = await scene.restarted()
    assert after.committed().get(("t", 0), -1) >= answered
    assert code_of_commit(after.commit(100)) is ErrorCode.NONE


async def test_a_commit_that_the_disk_refuses_is_not_answered_as_done_and_leaves_no_trace() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    scene.commit(1)
    scene.disk.fail_from(1, Fault.ENOSPC)
    assert code_of_commit(scene.commit(2)) is ErrorCode.NOT_COORDINATOR
    scene.disk.heal()
    assert scene.committed() == {("t", 0): 1}
    assert (await scene.restarted()).committed() == {("t", 0): 1}


async def test_with_flush_messages_1_a_commit_is_answered_after_the_fdatasync() -> None:
    scene = Scene()
    await scene.make_offsets_topic(flush_messages=1)
    answer = scene.commit(1)
    assert isinstance(answer, Deferred)
    assert not answer.is_done
    scene.scene.settle()
    assert code_of_commit(answer) is ErrorCode.NONE


async def test_offsets_of_a_topic_that_is_deleted_go_with_it() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    scene.commit(1)
    topic = scene.scene.image.topics["t"]
    scene.scene.delete_topic("t")
    scene.groups.topic_deleted("t", topic.topic_id)
    assert scene.committed() == {}


async def test_a_kill_between_a_topics_deletion_and_that_of_its_offsets_leaves_nothing_to_its_namesake() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    scene.commit(1)
    scene.scene.delete_topic("t")
    scene.scene.topic("t", 2)
    after = await scene.restarted()
    assert after.committed() == {}


async def test_when_the_offsets_topic_is_deleted_whoever_waits_is_told_to_look_elsewhere() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    joining = scene.join(3)
    scene.groups.offsets_topic_deleted()
    assert answer_of(joining).error_code == ErrorCode.NOT_COORDINATOR.value
    assert code_of_commit(scene.commit(1)) is ErrorCode.NOT_COORDINATOR


async def test_old_offsets_are_looked_for_at_the_interval_that_is_set() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    scene.commit(1)
    scene.scene.timers.advance(SETTINGS.groups.offsets_retention_ms)
    assert scene.committed() == {}


async def test_partitions_added_to_the_offsets_topic_move_no_group() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    before = scene.groups.partition_for("g")
    scene.commit(1)
    scene.groups.offsets_topic_created(3)
    assert scene.groups.partition_for("g") == before
    assert scene.committed() == {("t", 0): 1}


# --- Differences between versions of a response.


async def test_a_missing_protocol_name_is_empty_before_version_7_and_null_from_then_on() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    assert scene.join(6, "who").protocol_name == ""
    assert scene.join(7, "who").protocol_name is None


async def test_a_member_that_waits_is_answered_in_its_own_version() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    waiting = scene.join(3)
    scene.groups.stop()
    assert answer_of(waiting).protocol_name == ""


async def test_a_client_without_an_id_is_one_with_an_empty_id() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    assert scene.join(4, client_id=None).member_id == "-00000000-0000-0000-0000-000000000001"


async def test_before_version_3_the_error_of_the_leaving_member_is_at_the_top_level() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    scene.join(4)
    answer = answer_of(scene.ask(LeaveGroupRequest(group_id="g", member_id="who"), 2))
    assert (answer.error_code, answer.members) == (ErrorCode.UNKNOWN_MEMBER_ID.value, [])


async def test_from_version_5_on_a_sync_has_to_name_its_protocol() -> None:
    scene = Scene()
    with pytest.raises(KafkaError, match="INCONSISTENT_GROUP_PROTOCOL"):
        scene.ask(SyncGroupRequest(group_id="g", protocol_type="consumer"), 5)


async def test_a_commit_response_has_every_partition_whether_broker_or_group_refuses_it() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    topics = [
        OffsetCommitRequestTopic(
            name="t", partitions=[OffsetCommitRequestPartition(partition_index=index) for index in (0, 7, 1)]
        ),
        OffsetCommitRequestTopic(name="nobody", partitions=[OffsetCommitRequestPartition(partition_index=0)]),
    ]
    answer = answer_of(scene.ask(OffsetCommitRequest(group_id="g", topics=topics), 9))
    codes = {
        (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
    }
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value
    assert codes == {("t", 0): 0, ("t", 1): 0, ("t", 7): unknown, ("nobody", 0): unknown}


async def test_topic_ids_stand_for_names_from_version_10_on() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    topic_id = scene.scene.image.topics["t"].topic_id
    assert code_of_commit(scene.commit(4, version=10, topic="", topic_id=topic_id)) is ErrorCode.NONE
    assert code_of_commit(scene.commit(4, version=10, topic="", topic_id=b"x" * 16)) is ErrorCode.UNKNOWN_TOPIC_ID
    group = OffsetFetchRequestGroup(
        group_id="g",
        topics=[
            OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0]),
            OffsetFetchRequestTopics(topic_id=b"x" * 16, partition_indexes=[0]),
        ],
    )
    (found,) = answer_of(scene.ask(OffsetFetchRequest(groups=[group]), 10)).groups
    ours, unknown = found.topics
    assert (ours.topic_id, ours.partitions[0].committed_offset) == (topic_id, 4)
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID.value
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    (found,) = answer_of(scene.ask(everything, 10)).groups
    assert [topic.topic_id for topic in found.topics] == [topic_id]


@pytest.mark.parametrize(("version", "where"), [(1, "partitions"), (2, "top"), (7, "top"), (8, "group")])
async def test_an_error_of_the_group_is_at_the_level_that_the_version_of_offset_fetch_requires(
    version: int, where: str
) -> None:
    scene = Scene()
    code = ErrorCode.NOT_COORDINATOR.value
    if version >= 8:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
        answer = answer_of(scene.ask(request, version))
        assert (where, answer.groups[0].error_code) == ("group", code)
        return
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
    answer = answer_of(scene.ask(request, version))
    if where == "top":
        assert answer.error_code == code
    else:
        assert answer.topics[0].partitions[0].error_code == code


async def test_several_groups_are_described_and_deleted_each_with_its_own_code() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    scene.commit(1, group="one")
    described = answer_of(
        scene.ask(DescribeGroupsRequest(groups=["one", "none"], include_authorized_operations=True), 6)
    )
    assert [group.group_state for group in described.groups] == ["Empty", "Dead"]
    assert described.groups[0].authorized_operations == 3400
    deleted = answer_of(scene.ask(DeleteGroupsRequest(groups_names=["one", "one", "none"]), 2))
    assert [result.error_code for result in deleted.results] == [0, ErrorCode.GROUP_ID_NOT_FOUND.value]


class SearchedCluster(FakeCluster):
    """A cluster whose searches finish when the test calls `found` with the group id."""

    def when_found(self, notify: Callable[[str], None]) -> None:
        self.found = notify


async def test_a_search_that_ends_after_the_deletion_of_the_offsets_topic_is_forgotten() -> None:
    cluster = SearchedCluster()
    scene = Scene(cluster=cluster)
    await scene.make_offsets_topic()
    cluster.found("g")
    assert cluster.forgotten == []
    scene.groups.offsets_topic_deleted()
    cluster.found("g")
    assert cluster.forgotten == ["g"]


async def test_an_offset_delete_answers_for_every_partition() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    scene.commit(1)
    topics = [
        OffsetDeleteRequestTopic(
            name="t", partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)]
        )
    ]
    answer = answer_of(scene.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0))
    codes = {each.partition_index: each.error_code for each in answer.topics[0].partitions}
    assert codes == {0: 0, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value}
    assert scene.committed() == {}


class ComparedIndex(int):
    """A partition index that counts its comparisons."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        ComparedIndex.comparisons += 1
        return int(self) == other

    __hash__ = int.__hash__


async def test_an_offset_delete_does_not_compare_its_partitions_with_one_another() -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    scene.commit(1)
    indexes = [ComparedIndex(index) for index in [0] * 100 + [9] * 100]
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
    request = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=partitions)])
    assert len(answer_of(scene.ask(request, 0)).topics[0].partitions) == len(indexes)
    assert ComparedIndex.comparisons < 20 * len(indexes)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(0, 0)], [("t", [(0, 0), (0, 0)])]),
        ([(0,), (0,)], [("t", [(0, 0)]), ("t", [(0, 0)])]),
        ([(8, 0), (9, 0)], [("t", [(8, 3), (9, 3), (0, 0), (0, 0)])]),
    ],
)
async def test_an_offset_delete_answers_each_partition_entry_and_merges_topics_if_it_is_refused(
    entries: list[tuple[int, ...]], expected: list[tuple[str, list[tuple[int, int]]]]
) -> None:
    scene = Scene()
    await scene.make_offsets_topic()
    scene.commit(1)
    topics = [
        OffsetDeleteRequestTopic(
            name="t", partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        )
        for indexes in entries
    ]
    answer = answer_of(scene.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0))
    responses = [
        (topic.name, [(each.partition_index, each.error_code) for each in topic.partitions]) for topic in answer.topics
    ]
    assert responses == expected
    assert scene.committed() == {}


def test_settings_come_from_the_brokers_configuration() -> None:
    config: Any = SimpleNamespace(
        group_min_session_timeout_ms=1,
        group_max_session_timeout_ms=2,
        group_initial_rebalance_delay_ms=3,
        group_max_size=4,
        offset_metadata_max_bytes=5,
        offsets_retention_minutes=6,
        offsets_topic_num_partitions=7,
        offsets_topic_replication_factor=1,
        offsets_topic_segment_bytes=8,
        offsets_topic_compression_codec=3,
        offsets_retention_check_interval_ms=9,
        group_consumer_assignors=("range",),
        group_consumer_max_size=10,
        group_consumer_migration_policy="UPGRADE",
        group_consumer_regex_refresh_interval_ms=11,
        group_share_max_size=12,
        group_share_initialize_retry_interval_ms=13,
        group_streams_max_size=14,
        group_streams_topology_description_plugin_class="InMemoryTopologyDescriptionPlugin",
    )
    settings = CoordinatorSettings.of(config)
    assert settings.groups == GroupConfig(
        1,
        2,
        3,
        4,
        5,
        6 * 60_000,
        ConsumerConfig(("range",), 10, MigrationPolicy.UPGRADE, 11),
        ShareConfig(max_size=12, initialize_retry_interval_ms=13),
        StreamsConfig(max_size=14, keeps_descriptions=True),
    )
    assert (settings.topic.partition_count, settings.compression) == (7, Compression.LZ4)
