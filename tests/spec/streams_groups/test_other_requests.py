"""Tests streams groups' committed offsets, and how streams groups are listed, deleted and converted
(docs/spec/streams-groups.md#s7, #s8, #s13-6)."""

import pytest

from odradek.broker.facts.groups import group_facts
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
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
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup
from tests.support.group_scene import GROUP, offsets_of
from tests.support.streams_scene import StreamsHeartbeatResult, StreamsScene, refused, subtopology, topology

E = ErrorCode
OK = E.NONE.value


def commit(scene: StreamsScene, member: str, epoch: int, *partitions: int, topic: str = "i4", version: int = 9) -> int:
    request = OffsetCommitRequest(
        group_id=GROUP,
        member_id=member,
        generation_id_or_member_epoch=epoch,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=each, committed_offset=7) for each in partitions
                ],
            )
        ],
    )
    try:
        scene.turn(lambda core: core.commit_offsets(request, version=version, now_ms=scene.now_ms))
    except KafkaError as error:
        return error.code.value
    return OK


def scene_with_revocation() -> StreamsScene:
    """Returns a group at epoch 2 in which member a owns tasks 0 and 1 and must revoke 2 and 3."""
    scene = StreamsScene()
    scene.member("a")
    scene.member("c")
    scene.beat("a")
    return scene


def test_scenario_081_commits_at_the_member_epoch_in_versions_that_know_it() -> None:
    scene = scene_with_revocation()
    assert [commit(scene, "a", 2, 0, version=version) for version in (9, 10, 8, 2)] == [OK, OK, 35, 35]


def test_scenario_082_commits_at_other_epochs_are_refused() -> None:
    scene = scene_with_revocation()
    assert [commit(scene, "a", epoch, 0) for epoch in (3, 1, -1, -2)] == [E.STALE_MEMBER_EPOCH.value] * 4
    assert commit(scene, "x", 2, 0) == commit(scene, "", -1, 0) == E.UNKNOWN_MEMBER_ID.value


def test_scenario_085_an_older_epoch_is_accepted_for_tasks_that_the_member_has_kept() -> None:
    scene = scene_with_revocation()
    assert commit(scene, "a", 2, 0, 3) == OK
    scene.beat("a", owned="0:01")
    assert commit(scene, "a", 2, 0) == OK
    assert commit(scene, "a", 2, 3) == E.STALE_MEMBER_EPOCH.value
    assert commit(scene, "a", 2, 0, 3) == E.STALE_MEMBER_EPOCH.value
    assert commit(scene, "a", 2, 0, topic="other") == E.STALE_MEMBER_EPOCH.value
    assert commit(scene, "a", 1, 0) == E.STALE_MEMBER_EPOCH.value


def test_scenario_087_offsets_are_fetched_at_the_member_epoch() -> None:
    scene = scene_with_revocation()

    def fetch(member: str | None, epoch: int) -> int:
        request = OffsetFetchRequestGroup(group_id=GROUP, member_id=member, member_epoch=epoch, topics=None)
        try:
            scene.core.fetch_offsets(request, require_stable=False)
        except KafkaError as error:
            return error.code.value
        return OK

    assert [fetch("a", 2), fetch("a", 1), fetch(None, -1), fetch("x", 2)] == [OK, 113, OK, 25]


def test_scenario_090_offsets_of_source_topics_are_kept_while_there_are_members() -> None:
    scene = StreamsScene()
    scene.member("a")
    commit(scene, "a", 2, 0)
    commit(scene, "a", 2, 0, topic="other")

    def delete(topic: str) -> int:
        request = OffsetDeleteRequest(
            group_id=GROUP,
            topics=[OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
        )
        answer = scene.turn(lambda core: core.delete_offsets(request))
        assert answer is not None
        return answer.topics[0].partitions[0].error_code

    assert delete("i4") == E.GROUP_SUBSCRIBED_TO_TOPIC.value
    assert delete("other") == OK
    scene.beat("a", -1)
    assert delete("i4") == OK
    assert offsets_of(scene.core, GROUP) == {}


def test_scenario_098_lists_by_state_and_type() -> None:
    scene = StreamsScene(topics={"other": 1})
    scene.member("a")
    (listed,) = scene.core.list_groups([], [])
    assert (listed.protocol_type, listed.group_type, listed.group_state) == ("streams", "streams", "NotReady")
    assert len(scene.core.list_groups(["Not_Ready"], ["STREAMS"])) == 1
    assert len(scene.core.list_groups(["NotReady"], [])) == 1
    assert scene.core.list_groups(["stable"], []) == []


def test_scenario_091_a_streams_group_is_no_classic_group() -> None:
    scene = StreamsScene()
    scene.member("a")
    assert scene.core.describe_group(GROUP, version=5).group_state == "Dead"
    described = scene.core.describe_group(GROUP, version=6)
    assert (described.error_code, described.error_message) == (69, "Group billing is not a classic group.")
    left = scene.turn(
        lambda core: core.leave_group(
            LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="a")]), scene.now_ms
        )
    )
    assert left is not None
    assert left.members[0].error_code == E.UNKNOWN_MEMBER_ID.value
    with pytest.raises(KafkaError, match="is not a consumer group"):
        scene.core.describe_consumer_group(GROUP)
    with pytest.raises(KafkaError, match="is not a share group"):
        scene.core.describe_share_group(GROUP)


def test_scenario_092_a_group_without_members_is_deleted_with_its_offsets() -> None:
    scene = StreamsScene()
    scene.member("a")
    commit(scene, "a", 2, 0)
    assert scene.delete_group() == E.NON_EMPTY_GROUP
    scene.beat("a", -1)
    since = len(scene.log)
    assert scene.delete_group() == E.NONE
    assert scene.keys_written(since) == [-1, -20, -17, -23]
    assert scene.core.list_groups([], []) == []


def test_scenario_093_an_empty_group_becomes_a_classic_group() -> None:
    scene = StreamsScene()
    scene.member("a")
    commit(scene, "a", 2, 0)
    assert scene.join().code is E.INCONSISTENT_GROUP_PROTOCOL
    scene.beat("a", -1)
    since = len(scene.log)
    scene.join(version=3)
    assert scene.keys_written(since)[:4] == [-20, -17, -23, 2]
    (listed,) = scene.core.list_groups([], [])
    assert listed.group_type == "classic"
    assert offsets_of(scene.core, GROUP) == {("i4", 0): 7}


def test_scenario_096_an_empty_classic_group_becomes_a_streams_group() -> None:
    scene = StreamsScene()
    commit(scene, "", -1, 0)
    assert scene.member("a") == StreamsHeartbeatResult(OK, 2, "0:0123")
    assert offsets_of(scene.core, GROUP) == {("i4", 0): 7}
    scene.restart()
    assert scene.state == ("Stable", 2, 2)


def test_scenario_096_a_classic_group_with_members_stays() -> None:
    scene = StreamsScene()
    scene.join(version=3)
    assert scene.member("a") == refused(E.GROUP_ID_NOT_FOUND)
    assert scene.last_error == "Group billing is not a streams group."


def test_the_page_and_control_show_the_tasks_of_a_group() -> None:
    scene = StreamsScene(standby=1, reads=topology(subtopology("0", ["i4"], ["log"])), topics={"i4": 4, "log": 4})
    scene.member("a", instance="ia")
    scene.member("c")
    scene.beat("a", instance="ia")
    (listed,) = scene.core.list_groups([], [])
    facts = group_facts(listed, scene.core)
    assert (facts.type, facts.state, facts.epoch, facts.assignor) == ("streams", "Reconciling", 3, "sticky")
    (member, _) = facts.members
    assert (member.id, member.epoch, member.instance) == ("a", 2, "ia")
    assert member.partitions == ["0_0", "0_1", "0_2 (standby)", "0_3 (standby)"]
