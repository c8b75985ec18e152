"""Tests how consumer groups commit offsets, how groups are listed and deleted, and when offsets expire
(docs/spec/consumer-groups.md#s15-5)."""

import pytest

from odradek.broker.api.error_translations import translate
from odradek.broker.groups.common.group import Committer
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup
from tests.support.consumer_scene import ConsumerScene, HeartbeatResult
from tests.support.group_scene import GROUP

E = ErrorCode
OK = E.NONE.value


def settled() -> ConsumerScene:
    """Sets up scenario 63. A is at epoch 3 and has owned partitions 0 to 2 since epoch 2. C has owned the other
    partitions since epoch 3."""
    scene = ConsumerScene()
    scene.member("A", "T6")
    scene.member("C", "T6")
    scene.settle("A", "C")
    assert (scene.state, scene.held("A")) == (("Stable", 3, 3), "T6 012")
    return scene


def commit(
    scene: ConsumerScene, member: str, epoch: int, *partitions: int, topic: str = "T6", version: int | None = 9
) -> ErrorCode:
    """Commits offsets and returns the error code.

    version  version of OffsetCommit; None commits in a transaction with TxnOffsetCommit
    """
    topic_partitions = [(topic, partition) for partition in partitions or (0,)]
    try:
        scene.group_of().check_offset_commit(Committer(member, None, epoch, version, topic_partitions))
    except KafkaError as error:
        return error.code if version is not None else translate(ApiKey.TXN_OFFSET_COMMIT, error.code)
    return E.NONE


def fetch(scene: ConsumerScene, member: str | None, epoch: int) -> ErrorCode:
    request = OffsetFetchRequestGroup(group_id=GROUP, member_id=member, member_epoch=epoch, topics=None)
    try:
        scene.core.fetch_offsets(request, require_stable=False)
    except KafkaError as error:
        return error.code
    return E.NONE


@pytest.mark.parametrize("version", range(2, 9))
def test_scenario_063_before_version_9_a_member_cannot_say_its_epoch(version: int) -> None:
    assert commit(settled(), "A", 3, version=version) is E.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", [9, 10])
def test_scenario_063_a_member_commits_at_its_epoch(version: int) -> None:
    assert commit(settled(), "A", 3, version=version) is E.NONE


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(2, "NONE"), *((epoch, "STALE_MEMBER_EPOCH") for epoch in (1, 4, 0, -1, -2))],
)
def test_scenario_064_an_older_epoch_can_commit_partitions_assigned_at_that_epoch(epoch: int, code: str) -> None:
    assert commit(settled(), "A", epoch).name == code


@pytest.mark.parametrize("version", [5, 8, 9])
def test_scenario_065_nobody_else_commits_while_there_are_members(version: int) -> None:
    assert commit(settled(), "X", 3, version=version) is E.UNKNOWN_MEMBER_ID
    assert commit(settled(), "", -1, version=version) is E.UNKNOWN_MEMBER_ID


def test_scenario_066_at_its_epoch_a_member_commits_whatever_partition() -> None:
    scene = settled()
    assert commit(scene, "A", 3, 5) is E.NONE
    assert commit(scene, "A", 3, topic="T3") is E.NONE


def revoked() -> ConsumerScene:
    """Sets up scenario 68. A has revoked partition 2 and is at epoch 4."""
    scene = settled()
    scene.member("D", "T6")
    scene.beat("A")
    scene.beat("A", owned={"T6": "01"})
    assert scene.epochs["A"] == 4
    return scene


def test_scenario_067_a_member_can_commit_partitions_that_it_has_to_revoke() -> None:
    scene = settled()
    scene.member("D", "T6")
    assert scene.beat("A") == HeartbeatResult(OK, 3, "T6 01")
    assert commit(scene, "A", 3, 2) is E.NONE


def test_scenario_068_a_revoked_partition_makes_the_whole_commit_stale() -> None:
    scene = revoked()
    assert commit(scene, "A", 3, 0) is E.NONE
    assert commit(scene, "A", 3, 2) is E.STALE_MEMBER_EPOCH
    assert commit(scene, "A", 3, 0, 2) is E.STALE_MEMBER_EPOCH


def test_scenario_069_an_epoch_before_the_partition_was_assigned_is_stale() -> None:
    scene = revoked()
    scene.settle("A", "C", "D")
    assert 2 in next(iter(scene.group_of().members["D"].assigned.values()))
    assert commit(scene, "D", 3, 2) is E.STALE_MEMBER_EPOCH


def test_scenario_070_a_fetch_names_the_current_epoch_or_no_member() -> None:
    scene = settled()
    assert fetch(scene, "A", 3) is E.NONE
    assert fetch(scene, "A", 2) is E.STALE_MEMBER_EPOCH
    assert fetch(scene, "A", -1) is E.STALE_MEMBER_EPOCH
    assert fetch(scene, "ZZ", 1) is E.UNKNOWN_MEMBER_ID
    assert fetch(scene, "", -1) is E.UNKNOWN_MEMBER_ID
    assert fetch(scene, None, -1) is E.NONE


def test_scenario_071_an_absent_static_member_commits_and_fetches_at_epoch_minus_two() -> None:
    scene = ConsumerScene()
    scene.member("S", "T6", instance="is")
    scene.beat("S", -2, instance="is")
    assert commit(scene, "S", -2) is E.NONE
    assert commit(scene, "S", 2) is E.STALE_MEMBER_EPOCH
    assert fetch(scene, "S", -2) is E.NONE
    assert fetch(scene, "S", 2) is E.STALE_MEMBER_EPOCH


def test_scenario_072_a_commit_without_an_epoch_to_an_empty_group_is_accepted() -> None:
    scene = ConsumerScene()
    scene.member("A", "T6")
    scene.beat("A", -1)
    for version in (2, 8, 9):
        assert commit(scene, "", -1, version=version) is E.NONE
    assert commit(scene, "A", -1) is E.NONE
    assert commit(scene, "A", 3) is E.UNKNOWN_MEMBER_ID


def test_scenario_073_in_a_transaction_the_same_rules_have_another_error_code() -> None:
    scene = settled()
    assert commit(scene, "A", 3, version=None) is E.NONE
    assert commit(scene, "A", 2, version=None) is E.NONE
    for epoch in (4, -1, 0):
        assert commit(scene, "A", epoch, version=None) is E.ILLEGAL_GENERATION
    assert commit(scene, "ZZ", 3, version=None) is E.UNKNOWN_MEMBER_ID
    assert commit(scene, "", -1, version=None) is E.NONE
    assert commit(scene, "", 3, version=None) is E.UNKNOWN_MEMBER_ID


def test_scenario_074_in_a_transaction_an_older_epoch_can_commit_assigned_partitions() -> None:
    scene = revoked()
    assert commit(scene, "A", 3, 0, version=None) is E.NONE
    assert commit(scene, "A", 3, 2, version=None) is E.ILLEGAL_GENERATION


def test_scenario_075_groups_are_listed_by_state_and_type() -> None:
    scene = settled()
    scene.member("D", "T6")

    def listed(states: list[str], types: list[str]) -> list[str]:
        return [group.group_id for group in scene.core.list_groups(states, types)]

    assert listed(["reconciling"], []) == [GROUP]
    assert listed([], ["Consumer"]) == [GROUP]
    assert listed(["nonsense"], []) == []
    assert listed([], ["foo"]) == []


def test_scenario_076_as_a_classic_group_it_does_not_exist() -> None:
    scene = settled()
    assert (scene.describe(version=5).error_code, scene.describe(version=5).group_state) == (OK, "Dead")
    newer = scene.describe(version=6)
    assert (newer.error_code, newer.group_state) == (E.GROUP_ID_NOT_FOUND.value, "Dead")
    assert newer.error_message == f"Group {GROUP} is not a classic group."


def test_scenario_077_groups_with_members_and_subscribed_offsets_are_not_deleted() -> None:
    scene = settled()
    scene.commit(1, member_id="A", generation=3, topic="T6")
    scene.commit(1, member_id="A", generation=3, topic="T3")
    assert scene.delete_group() is E.NON_EMPTY_GROUP
    assert scene.delete_offset("T6") is E.GROUP_SUBSCRIBED_TO_TOPIC
    assert scene.delete_offset("T3") is E.NONE
    assert scene.fetch_all() == {("T6", 0): 1}


def test_scenario_078_expiry_removes_offsets_of_unsubscribed_topics() -> None:
    scene = settled()
    scene.commit(1, member_id="A", generation=3, topic="T6")
    scene.commit(1, member_id="A", generation=3, topic="T3")
    scene.now_ms += scene.config.offsets_retention_ms
    scene.expire()
    assert scene.fetch_all() == {("T6", 0): 1}
    scene.beat("A", -1)
    scene.beat("C", -1)
    scene.expire()
    assert scene.groups() == {}, "its last offset was old enough"


def test_scenario_078_an_empty_group_without_offsets_goes_at_once() -> None:
    scene = ConsumerScene()
    scene.member("A", "T6")
    scene.beat("A", -1)
    since = len(scene.log)
    scene.expire()
    assert scene.groups() == {}
    assert scene.keys_written(since) == [-6, -4, -3]
    scene.restart()
    assert scene.groups() == {}


def test_scenario_080_a_group_has_its_own_heartbeat_interval() -> None:
    scene = settled()
    scene.cluster.settings[GROUP, "consumer.heartbeat.interval.ms"] = 777
    scene.beat("A")
    assert scene.last is not None
    assert scene.last.heartbeat_interval_ms == 777


@pytest.mark.parametrize(
    ("epoch", "partition", "before", "since_version_6"),
    [
        (4, 0, E.ILLEGAL_GENERATION, E.STALE_MEMBER_EPOCH),  # T3: the member epoch is too high
        (2, 5, E.ILLEGAL_GENERATION, E.STALE_MEMBER_EPOCH),  # T4: C owns the partition now
        (2, 0, E.NONE, E.NONE),  # T5: A has owned the partition since epoch 2
    ],
)
def test_a_transactional_commit_at_another_member_epoch_is_refused(
    epoch: int, partition: int, before: ErrorCode, since_version_6: ErrorCode
) -> None:
    """T3 to T5: TxnOffsetCommit 6 has its own error code for a wrong member epoch (docs/spec/kafka-4.4.md#s5-2)."""

    def error_of(version: int) -> ErrorCode:
        committer = Committer("A", None, epoch, None, [("T6", partition)])
        try:
            settled().group_of().check_offset_commit(committer)
        except KafkaError as error:
            return translate(ApiKey.TXN_OFFSET_COMMIT, error.code, version)
        return E.NONE

    assert [error_of(version) for version in (3, 4, 5)] == [before] * 3
    assert error_of(6) is since_version_6
