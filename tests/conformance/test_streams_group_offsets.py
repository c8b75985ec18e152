"""Tests the offsets of streams groups, and other APIs' effects on these groups: docs/spec/streams-groups.md#s7, #s8,
#s13-6."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
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
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from odradek.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.conformance.streams_scene import (
    ALL,
    PAUSE_S,
    Member,
    Scene,
    revoke_tasks,
    subtopology,
    topology,
    with_two_members,
)
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

NONE, STALE, UNKNOWN = ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID
MISSING = ErrorCode.GROUP_ID_NOT_FOUND
ALL_OPERATIONS = 3400


def commit(
    scene: Scene, member: str, epoch: int, partitions: Sequence[int] = (0,), *, topic: str = "i4", version: int = 9
) -> list[ErrorCode]:
    """Commits offset 7 for each partition and returns the partitions' error codes."""
    request = OffsetCommitRequest(
        group_id=scene.group,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata="m")
                    for index in partitions
                ],
            )
        ],
    )
    (answer,) = scene.talk.quietly(request, version).topics
    return [ErrorCode(each.error_code) for each in answer.partitions]


def fetch(scene: Scene, member: str | None, epoch: int, *, stable: bool = False) -> tuple[ErrorCode, int | ErrorCode]:
    """Returns the group's error code, and the committed offset or error code of partition 0 of i4."""
    topics = [OffsetFetchRequestTopics(name="i4", partition_indexes=[0])]
    group = OffsetFetchRequestGroup(group_id=scene.group, member_id=member, member_epoch=epoch, topics=topics)
    (answer,) = scene.talk.quietly(OffsetFetchRequest(groups=[group], require_stable=stable), 9).groups
    if answer.error_code:
        return ErrorCode(answer.error_code), -1
    (found,) = answer.topics[0].partitions
    return NONE, ErrorCode(found.error_code) if found.error_code else int(found.committed_offset)


class Transaction:
    """An open transaction that contains offsets of the scene's group."""

    def __init__(self, scene: Scene, name: str) -> None:
        self._scene, self._id = scene, scene.named(name)
        init_producer_id = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=60_000)
        find_coordinator = FindCoordinatorRequest(key=self._id, key_type=1)
        while scene.talk.quietly(find_coordinator, 3).error_code:  # The broker is creating the coordinator's topic.
            time.sleep(PAUSE_S)
        while (answer := scene.talk.quietly(init_producer_id, 4)).error_code:  # The coordinator is still loading.
            time.sleep(PAUSE_S)
        self._identity = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
        begun = AddOffsetsToTxnRequest(transactional_id=self._id, group_id=scene.group, **self._identity)
        answer = scene.talk.quietly(begun, 3)
        assert answer.error_code == 0, answer

    def commit(
        self, member: str, epoch: int, partitions: Sequence[int] = (0,), *, topic: str = "i4", topic_id: bytes = b""
    ) -> list[ErrorCode]:
        """Commits offset 9 for each partition. Uses version 6 if `topic_id` is given, and version 4 otherwise."""
        parts = [TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=9) for index in partitions]
        named: dict[str, Any] = {"topic_id": topic_id} if topic_id else {"name": topic}
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=self._scene.group,
            generation_id_or_member_epoch=epoch,
            member_id=member,
            topics=[TxnOffsetCommitRequestTopic(partitions=parts, **named)],
            **self._identity,
        )
        (answer,) = self._scene.talk.quietly(request, 6 if topic_id else 4).topics
        return [ErrorCode(each.error_code) for each in answer.partitions]

    def end(self) -> None:
        ends = EndTxnRequest(transactional_id=self._id, committed=True, **self._identity)
        answer = self._scene.talk.quietly(ends, 3)
        assert answer.error_code == 0, answer


def revoked(scene: Scene) -> tuple[Member, Member]:
    """Returns members a and c. Member a has given up tasks 2 and 3 and is at epoch 3; c has not received them."""
    a, c = scene.member("a"), scene.member("c")
    a.join()
    revoke_tasks(scene, a, c)
    assert a.beat({"0": [0, 1]}).epoch_and_tasks == (3, None)
    return a, c


def test_scenario_081_commits_require_version_9(scene: Scene) -> None:
    scene.member("a").join()
    assert [commit(scene, "a", 2, version=version) for version in (9, 8, 2)] == [
        [NONE],
        [ErrorCode.UNSUPPORTED_VERSION],
        [ErrorCode.UNSUPPORTED_VERSION],
    ]


def test_scenario_082_commits_of_other_epochs_and_members_are_refused(scene: Scene) -> None:
    scene.member("a").join()
    assert [commit(scene, "a", epoch) for epoch in (3, 1, -1, -2)] == [[STALE]] * 4
    assert [commit(scene, member, epoch) for member, epoch in (("q", 2), ("", -1))] == [[UNKNOWN]] * 2


def test_scenario_083_topics_outside_the_topology_can_be_committed(scene: Scene) -> None:
    scene.member("a").join()
    assert commit(scene, "a", 2, topic="i3") == [NONE]
    assert commit(scene, "a", 2, topic="nowhere") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_scenario_084_tasks_that_are_being_revoked_can_be_committed(scene: Scene) -> None:
    a, c = scene.member("a"), scene.member("c")
    a.join()
    revoke_tasks(scene, a, c)
    assert commit(scene, "a", 2, (0, 3)) == [NONE, NONE]


def test_scenario_085_an_older_epoch_is_stale_for_newly_assigned_tasks(scene: Scene) -> None:
    revoked(scene)
    assert commit(scene, "a", 2, (0,)) == [NONE]
    assert commit(scene, "a", 2, (3,)) == [STALE]
    assert commit(scene, "a", 2, (0, 3)) == [STALE, STALE]
    assert commit(scene, "a", 2, topic="i3") == [STALE]


def test_scenario_086_a_commit_with_an_epoch_before_the_assignment_is_stale(scene: Scene) -> None:
    revoked(scene)
    assert commit(scene, "a", 1) == [STALE]


def test_scenario_087_offsets_are_fetched_at_the_member_epoch_or_without_a_member(scene: Scene) -> None:
    a = scene.member("a")
    a.join()
    commit(scene, "a", 2)
    assert fetch(scene, "a", 2) == (NONE, 7)
    assert fetch(scene, "a", 1) == (STALE, -1)
    assert fetch(scene, None, -1) == (NONE, 7)
    assert fetch(scene, "q", 2) == (UNKNOWN, -1)
    code, _ = fetch(scene, None, 5)
    assert code is (ErrorCode.UNKNOWN_SERVER_ERROR if scene.is_kafka else UNKNOWN)


def test_scenarios_088_and_089_offsets_are_committed_in_a_transaction(scene: Scene) -> None:
    revoked(scene)
    topic_id = scene.topic_id("i4")
    transaction = Transaction(scene, "t")
    assert transaction.commit("a", 4) == [ErrorCode.ILLEGAL_GENERATION]
    assert transaction.commit("a", 4, topic_id=topic_id) == [STALE]
    assert transaction.commit("q", 3) == [UNKNOWN]
    assert transaction.commit("", 3) == [UNKNOWN]
    assert transaction.commit("a", 2, (0, 1)) == [NONE, NONE]
    assert transaction.commit("a", 2, (0,), topic_id=topic_id) == [NONE]
    assert transaction.commit("a", 2, (3,)) == [ErrorCode.ILLEGAL_GENERATION]
    assert transaction.commit("a", 3) == [NONE]
    assert transaction.commit("", -1) == [NONE]
    assert fetch(scene, "a", 3, stable=True) == (NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    transaction.end()
    while (found := fetch(scene, "a", 3, stable=True)) == (NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT):
        time.sleep(PAUSE_S)  # The broker is writing the marker.
    assert found == (NONE, 9)


def delete_offset(scene: Scene, topic: str) -> ErrorCode:
    request_topic = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    answer = scene.talk.quietly(OffsetDeleteRequest(group_id=scene.group, topics=[request_topic]), 0)
    assert answer.error_code == 0, answer
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def test_scenario_090_offsets_are_deleted(scene: Scene) -> None:
    a = scene.member("a")
    a.join()
    commit(scene, "a", 2)
    commit(scene, "a", 2, topic="i3")
    assert delete_offset(scene, "i4") is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete_offset(scene, "i3") is NONE
    assert fetch(scene, "a", 2) == (NONE, 7)
    a.leave()
    assert delete_offset(scene, "i4") is NONE
    assert fetch(scene, None, -1) == (NONE, -1)


def test_scenario_091_a_streams_group_is_no_classic_group(scene: Scene) -> None:
    scene.member("a").join()
    request = DescribeGroupsRequest(groups=[scene.group], include_authorized_operations=True)
    (before,) = scene.talk.quietly(request, 5).groups
    assert (before.error_code, before.group_state, before.authorized_operations) == (0, "Dead", ALL_OPERATIONS)
    (since,) = scene.talk.quietly(request, 6).groups
    assert (ErrorCode(since.error_code), since.error_message) == (
        MISSING,
        f"Group {scene.group} is not a classic group.",
    )


def test_scenario_092_groups_are_deleted(scene: Scene) -> None:
    a = scene.member("a")
    a.join()
    commit(scene, "a", 2)
    assert scene.delete() is ErrorCode.NON_EMPTY_GROUP
    a.leave()
    request = DeleteGroupsRequest(groups_names=[scene.group, "nowhere", ""])
    codes = {each.group_id: ErrorCode(each.error_code) for each in scene.talk.quietly(request, 3).results}
    assert codes == {scene.group: NONE, "nowhere": MISSING, "": MISSING}
    assert scene.described().error_code == MISSING.value
    assert a.join().epoch_and_tasks == (2, ALL)
    assert fetch(scene, "a", 2) == (NONE, -1)


def classic_join(scene: Scene, version: int) -> ErrorCode:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0")]
    request = JoinGroupRequest(
        group_id=scene.group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=protocols,
    )
    return ErrorCode(scene.talk.quietly(request, version).error_code)


def group_type(scene: Scene) -> tuple[str, str, str] | None:
    """Returns the group's protocol type, group type and state from ListGroups, or None if the group is not listed."""
    found = scene.talk.quietly(ListGroupsRequest(), 5).groups
    for each in found:
        if each.group_id == scene.group:
            return each.protocol_type, each.group_type, each.group_state
    return None


def test_scenario_093_an_empty_group_becomes_a_classic_one(scene: Scene) -> None:
    a = scene.member("a")
    a.join()
    commit(scene, "a", 2)
    assert classic_join(scene, 3) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert classic_join(scene, 9) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    a.leave()
    assert group_type(scene) == ("streams", "streams", "Empty")
    assert classic_join(scene, 3) is NONE
    joined = group_type(scene)
    assert joined is not None
    assert joined[:2] == ("consumer", "classic")
    assert fetch(scene, None, -1) == (NONE, 7)
    assert a.join().refused == (MISSING, f"Group {scene.group} is not a streams group.")


def test_scenario_093_a_classic_member_that_has_no_id_yet_makes_the_group_a_classic_one(scene: Scene) -> None:
    a = scene.member("a")
    a.join()
    a.leave()
    assert classic_join(scene, 9) is ErrorCode.MEMBER_ID_REQUIRED
    assert group_type(scene) == ("", "classic", "Empty")
    assert scene.described().error_code == MISSING.value
    assert a.join().epoch_and_tasks == (2, ALL)
    assert group_type(scene) == ("streams", "streams", "Stable")


def test_scenario_094_a_member_does_not_leave_by_the_classic_request(scene: Scene) -> None:
    a = scene.member("a")
    a.join()
    request = LeaveGroupRequest(group_id=scene.group, members=[MemberIdentity(member_id="a")])
    answer = scene.talk.quietly(request, 5)
    assert [ErrorCode(each.error_code) for each in answer.members] == [UNKNOWN]
    assert a.beat().epoch_and_tasks == (2, None)


def consumer_heartbeat(scene: Scene, member: str = "m", epoch: int = 0, group: str = "") -> ErrorCode:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group or scene.group,
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["i4"],
        topic_partitions=[],
    )
    return ErrorCode(scene.talk.quietly(request, 1).error_code)


def share_heartbeat(scene: Scene, member: str = "m", epoch: int = 0) -> ErrorCode:
    request = ShareGroupHeartbeatRequest(
        group_id=scene.group, member_id=member, member_epoch=epoch, subscribed_topic_names=["i4"]
    )
    return ErrorCode(scene.talk.quietly(request, 1).error_code)


def test_scenario_095_members_of_other_types_do_not_join(scene: Scene) -> None:
    a = scene.member("a")
    a.join()
    assert (consumer_heartbeat(scene), share_heartbeat(scene)) == (MISSING, MISSING)
    a.leave()
    assert (consumer_heartbeat(scene), share_heartbeat(scene)) == (MISSING, MISSING)
    assert a.join().code is NONE


def test_scenario_096_a_classic_group_without_members_becomes_a_streams_group(scene: Scene) -> None:
    assert commit(scene, "", -1) == [NONE]  # creates a classic group with offsets
    a = scene.member("a")
    assert a.join().epoch_and_tasks == (2, ALL)
    assert group_type(scene) == ("streams", "streams", "Stable")
    assert fetch(scene, "a", 2) == (NONE, 7)


def test_scenario_096_nobody_can_join_a_classic_group_that_has_a_member(scene: Scene) -> None:
    assert classic_join(scene, 3) is NONE
    assert scene.member("a").join().refused == (MISSING, f"Group {scene.group} is not a streams group.")


@pytest.mark.parametrize("kind", ["consumer", "share"])
@pytest.mark.parametrize("is_empty", [False, True], ids=["with a member", "empty"])
def test_scenario_097_groups_of_other_types_refuse_streams_members(scene: Scene, kind: str, is_empty: bool) -> None:
    beat = consumer_heartbeat if kind == "consumer" else share_heartbeat
    while beat(scene) is not NONE:
        time.sleep(PAUSE_S)  # The broker is creating the coordinator of share state.
    if is_empty:
        beat(scene, epoch=-1)
    assert scene.member("a").join().refused == (MISSING, f"Group {scene.group} is not a streams group.")


def listed(scene: Scene, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> bool:
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    return scene.group in [each.group_id for each in scene.talk.quietly(request, 5).groups]


def test_scenario_098_a_group_that_waits_for_topics_is_not_ready(scene: Scene) -> None:
    scene.member("a").join(topology(subtopology("0", [scene.named("nowhere")])))
    assert group_type(scene) == ("streams", "streams", "NotReady")
    assert listed(scene, states=["not_ready"])
    assert listed(scene, states=["NOT_READY"])
    assert listed(scene, types=["Streams"])
    assert not listed(scene, types=["classic"])
    assert not listed(scene, states=["stable"])
    # In Kafka, filtering by its own state name `NotReady` finds no group.
    assert listed(scene, states=["NotReady"]) is not scene.is_kafka


def test_scenario_099_groups_are_described(scene: Scene) -> None:
    scene.member("a").join()
    request = StreamsGroupDescribeRequest(
        group_ids=[scene.group, "nope", scene.group, ""], include_authorized_operations=True
    )
    answer = scene.talk.quietly(request, 1).groups
    found = {(each.group_id, ErrorCode(each.error_code), each.authorized_operations) for each in answer}
    unknown = -(2**31)
    assert found == {
        (scene.group, NONE, ALL_OPERATIONS),
        ("nope", MISSING, unknown),
        ("", ErrorCode.INVALID_GROUP_ID, unknown),
    }
    assert len(answer) == 4
    described = next(each for each in answer if each.group_id == scene.group)
    (member,) = described.members
    assert described.assignor_name == "sticky"
    assert described.topology_description is None
    assert (member.client_id, member.client_host, member.is_classic) == ("streams", "/127.0.0.1", False)
    assert scene.talk.quietly(StreamsGroupDescribeRequest(group_ids=[]), 1).groups == []


def test_a_member_may_commit_offsets_before_it_has_its_tasks(scene: Scene) -> None:
    _, c = revoked(scene)
    assert commit(scene, "c", 3, (2,)) == [NONE]
    assert c.beat().epoch_and_tasks == (3, {"0": [2, 3]})


def test_offsets_of_a_group_that_waits_for_topics_can_be_committed(scene: Scene) -> None:
    scene.member("a").join(topology(subtopology("0", [scene.named("nowhere")])))
    assert commit(scene, "a", 2) == [NONE]


def test_an_administrator_commits_for_an_empty_group(scene: Scene) -> None:
    a, c = with_two_members(scene)
    assert commit(scene, "", -1) == [UNKNOWN]
    a.leave()
    c.leave()
    assert commit(scene, "", -1) == [NONE]
    assert commit(scene, "whoever", -1) == [NONE]
    assert fetch(scene, None, -1) == (NONE, 7)
