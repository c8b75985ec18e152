"""Tests that a classic group's offsets can be committed, fetched and deleted, and that only members may commit while
the group has members."""

import pytest

from odradek.broker.groups.common.outcome import GroupConfig
from odradek.broker.groups.core import GroupCore
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.fake_cluster import FakeCluster
from tests.support.group_scene import GROUP, TOPIC_ID, Scene, subscription

OTHER_TOPIC_ID = bytes(range(1, 17))


# --- Commits.


def test_a_commit_without_a_member_creates_a_group_without_a_protocol() -> None:
    scene = Scene()
    assert scene.commit(42) is ErrorCode.NONE
    assert scene.fetch() == 42
    described = scene.describe()
    assert (described.group_state, described.protocol_type, described.members) == ("Empty", "", [])


def test_a_member_commits_with_its_generation() -> None:
    scene = Scene()
    (member,) = scene.come("a")
    assert scene.commit(7, member_id=member, generation=1) is ErrorCode.NONE
    assert scene.fetch() == 7


def test_commits_by_non_members_of_a_group_with_members_are_refused() -> None:
    scene = Scene()
    (member,) = scene.come("a")
    assert scene.commit(7) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.commit(7, member_id="nobody", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.commit(7, member_id=member, generation=2) is ErrorCode.ILLEGAL_GENERATION
    assert scene.commit(7, member_id=member) is ErrorCode.ILLEGAL_GENERATION
    assert scene.commit(7, member_id=member, generation=1, instance="i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.fetch() == -1


def test_an_emptied_group_accepts_commits_without_a_member_but_not_from_former_members() -> None:
    scene = Scene()
    (member,) = scene.come("a")
    scene.leave(member)
    assert scene.commit(7, member_id=member, generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.commit(7) is ErrorCode.NONE


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_commit_with_a_generation_of_a_missing_group_is_refused(version: int, code: ErrorCode) -> None:
    scene = Scene()
    assert scene.commit(7, member_id="x", generation=3, version=version) is code
    assert scene.groups() == {}


def test_members_may_still_commit_while_the_others_join() -> None:
    scene = Scene()
    leader, follower = scene.come("a", "b")
    scene.join(leader)
    assert scene.commit(7, member_id=follower, generation=1) is ErrorCode.NONE


def test_commits_are_refused_while_the_assignment_is_awaited() -> None:
    scene = Scene()
    reply = scene.join(client="a")
    scene.advance(0)
    member = reply.answer.member_id
    assert scene.commit(7, member_id=member, generation=1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.commit(7, member_id=member, generation=2) is ErrorCode.ILLEGAL_GENERATION


def test_offset_metadata_may_have_the_configured_length_in_utf_16_units() -> None:
    scene = Scene(GroupConfig(offset_metadata_max_bytes=4))
    assert scene.commit(1, metadata="ääää") is ErrorCode.NONE
    assert scene.commit(2, metadata="ääääa") is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert scene.commit(3, metadata="😀😀") is ErrorCode.NONE
    assert scene.commit(4, metadata="😀😀a") is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert scene.fetch() == 3


def test_offset_metadata_that_is_too_long_fails_only_its_own_partition() -> None:
    core = GroupCore(GroupConfig(offset_metadata_max_bytes=4), FakeCluster())
    partitions = [
        OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="too long"),
        OffsetCommitRequestPartition(partition_index=1, committed_offset=1, committed_metadata=None),
    ]
    request = OffsetCommitRequest(
        group_id=GROUP, topics=[OffsetCommitRequestTopic(name="t", topic_id=TOPIC_ID, partitions=partitions)]
    )
    outcome = core.commit_offsets(request, version=9, now_ms=0)
    assert outcome.response is not None
    assert [each.error_code for each in outcome.response.topics[0].partitions] == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE.value,
        ErrorCode.NONE.value,
    ]
    assert len(outcome.records) == 1


def test_a_commit_that_cannot_be_recorded_has_not_happened() -> None:
    scene = Scene()
    scene.commit(1)
    scene.writes_fail = True
    assert scene.commit(2) is ErrorCode.NOT_COORDINATOR
    assert scene.fetch() == 1


def test_offsets_survive_a_restart() -> None:
    scene = Scene()
    scene.commit(1)
    scene.commit(5, partition=1, metadata="note")
    scene.commit(2)
    scene.restart()
    assert scene.fetch_all() == {("t", 0): 2, ("t", 1): 5}


# --- Fetches.


def test_a_missing_group_has_no_offsets() -> None:
    scene = Scene()
    assert scene.fetch(group="nowhere") == -1
    assert scene.fetch_all(group="nowhere") == {}


def test_partitions_without_an_offset_answer_minus_one() -> None:
    scene = Scene()
    scene.commit(3)
    assert scene.fetch(partition=9) == -1
    assert scene.fetch("other") == -1


def test_a_recreated_topic_does_not_get_offsets_of_its_namesake() -> None:
    scene = Scene()
    scene.commit(3, topic_id=TOPIC_ID)
    assert scene.fetch(topic_id=OTHER_TOPIC_ID) == -1
    assert scene.fetch(topic_id=TOPIC_ID) == 3
    assert scene.fetch() == 3  # This request contains only the topic's name, not its id.


def test_an_offset_committed_without_a_topic_id_belongs_to_the_current_topic_of_that_name() -> None:
    scene = Scene()
    scene.commit(3, topic_id=bytes(16))
    assert scene.fetch(topic_id=OTHER_TOPIC_ID) == 3


# --- Deletions.


def test_a_deleted_offset_stays_deleted_after_a_restart() -> None:
    scene = Scene()
    scene.commit(3)
    scene.commit(4, partition=1)
    assert scene.delete_offset() is ErrorCode.NONE
    scene.restart()
    assert scene.fetch_all() == {("t", 1): 4}


def test_deleting_an_offset_that_is_not_there_succeeds_and_writes_nothing() -> None:
    scene = Scene()
    scene.commit(3)
    written = len(scene.log)
    assert scene.delete_offset(partition=9) is ErrorCode.NONE
    assert len(scene.log) == written


def test_offsets_of_subscribed_topics_cannot_be_deleted() -> None:
    scene = Scene()
    (member,) = scene.come("a", protocols={"range": subscription("t")})
    scene.commit(3, member_id=member, generation=1)
    scene.commit(3, member_id=member, generation=1, topic="former")
    assert scene.delete_offset("t") is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert scene.delete_offset("former") is ErrorCode.NONE
    scene.leave(member)
    assert scene.delete_offset("t") is ErrorCode.NONE


def test_a_subscription_that_cannot_be_read_may_be_to_anything() -> None:
    scene = Scene()
    scene.come("a", protocols={"range": b"\0"})
    assert scene.delete_offset("anything") is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_a_group_of_another_protocol_keeps_its_offsets_while_it_has_members() -> None:
    scene = Scene()
    scene.come("a", protocol_type="connect", protocols={"default": b""})
    assert scene.delete_offset() is ErrorCode.NON_EMPTY_GROUP


def test_deleting_an_offset_of_a_missing_group_is_refused() -> None:
    assert Scene().delete_offset(group="nowhere") is ErrorCode.GROUP_ID_NOT_FOUND


# --- Deleted topics.


def test_no_group_keeps_offsets_of_a_deleted_topic() -> None:
    scene = Scene()
    scene.commit(3, group="one")
    scene.commit(4, group="two", topic_id=bytes(16))
    scene.commit(5, group="two", topic="u", topic_id=OTHER_TOPIC_ID)
    scene.turn(lambda core: core.forget_topic("t", TOPIC_ID))
    scene.restart()
    assert scene.fetch_all(group="one") == {}
    assert scene.fetch_all(group="two") == {("u", 0): 5}


def test_offsets_of_a_topic_with_the_name_of_a_deleted_one_stay() -> None:
    scene = Scene()
    scene.commit(3, topic_id=OTHER_TOPIC_ID)
    scene.turn(lambda core: core.forget_topic("t", TOPIC_ID))
    assert scene.fetch() == 3


def test_a_refusal_of_the_whole_request_is_raised() -> None:
    scene = Scene()
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=1, member_id="x")
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
        scene.core.commit_offsets(request, version=9, now_ms=0)
