"""Tests share groups at the group coordinator with encoded requests (docs/spec/share-groups.md#s2, #s7-2)."""

from typing import Any

import pytest

from odradek.broker.runtime.slices import run_to_end
from odradek.broker.shares.leader.dead_letter_queues import DeadLetterCounts
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest
from odradek.protocol.topic_partition import GROUP_OFFSETS
from tests.support.share_broker import GROUP, ShareBroker
from tests.support.share_member import Member

ACCEPT, RELEASE = 1, 2
NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND


@pytest.fixture
def broker() -> ShareBroker:
    broker = ShareBroker()
    broker.topic(GROUP_OFFSETS, 3)
    broker.set_group(share_auto_offset_reset="earliest")
    return broker


def code(response: Any) -> ErrorCode:
    return ErrorCode(response.error_code)


def assigned(response: Any) -> dict[bytes, list[int]] | None:
    if response.assignment is None:
        return None
    return {each.topic_id: each.partitions for each in response.assignment.topic_partitions}


def settled(broker: ShareBroker, *members: Member, topics: list[str]) -> list[dict[bytes, list[int]]]:
    """Makes all members join and reach a stable assignment. Returns each member's assignment."""
    for member in members:
        member.heartbeat(0, topics)
    for _ in range(3):
        broker.sleep(1_000)
        for member in members:
            member.heartbeat()
    return [assigned(member.heartbeat(topics=topics)) or {} for member in members]


def alter(member: Member, topic: str, *offsets: int, group_id: str = GROUP) -> Any:
    partitions = [
        AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
        for index, offset in enumerate(offsets)
    ]
    topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)]
    return member.ask(AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics), 0)


def delete_offsets(member: Member, *topics: str, group_id: str = GROUP) -> Any:
    request_topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    return member.ask(DeleteShareGroupOffsetsRequest(group_id=group_id, topics=request_topics), 0)


def positions(member: Member, *topics: str, group_id: str = GROUP) -> list[tuple[str, int, int, int, ErrorCode]]:
    """Returns (topic, partition, start offset, lag, error code) for partition 0 of each of `topics`, or for all
    partitions if `topics` is empty."""
    request_topics = [DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0]) for name in topics]
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=request_topics or None)]
    )
    (group,) = member.ask(request, 1).groups
    assert group.error_code == 0
    return [
        (topic.topic_name, each.partition_index, each.start_offset, each.lag, ErrorCode(each.error_code))
        for topic in group.topics
        for each in topic.partitions
    ]


# --- Membership.


def test_scenario_021_the_first_heartbeat_creates_the_group_and_assigns_nothing(broker: ShareBroker) -> None:
    broker.topic("T")
    response = broker.member("A").heartbeat(0, ["T"])
    assert (code(response), response.member_id, response.member_epoch) == (NONE, "A", 2)
    assert response.heartbeat_interval_ms == 5_000
    assert assigned(response) == {}


def test_scenario_022_partitions_are_assigned_once_their_state_is_there(broker: ShareBroker) -> None:
    topic = broker.topic("T").topic_id
    a = broker.member("A")
    a.heartbeat(0, ["T"])
    broker.sleep(30)
    response = a.heartbeat()
    assert (response.member_epoch, assigned(response)) == (2, None)
    broker.sleep(970)
    response = a.heartbeat()
    assert (response.member_epoch, assigned(response)) == (3, {topic: [0]})


def test_scenario_023_an_unchanged_assignment_is_not_sent_again(broker: ShareBroker) -> None:
    broker.topic("T")
    a = broker.member("A")
    settled(broker, a, topics=["T"])
    assert assigned(a.heartbeat()) is None
    assert assigned(a.heartbeat(topics=["T"])) is not None


def test_scenario_024_a_partition_is_shared_by_all_members(broker: ShareBroker) -> None:
    topic = broker.topic("T").topic_id
    members = [broker.member(name) for name in "ABC"]
    assert settled(broker, *members, topics=["T"]) == [{topic: [0]}] * 3


def test_scenario_025_partitions_are_shared_out_evenly(broker: ShareBroker) -> None:
    topic = broker.topic("T", 4).topic_id
    got = settled(broker, broker.member("A"), broker.member("B"), topics=["T"])
    assert [len(each[topic]) for each in got] == [2, 2]
    assert sorted(got[0][topic] + got[1][topic]) == [0, 1, 2, 3]


def test_scenario_026_an_epoch_that_is_neither_the_current_nor_the_previous_one_is_fenced(broker: ShareBroker) -> None:
    broker.topic("T")
    a = broker.member("A")
    settled(broker, a, topics=["T"])
    epoch = a.member_epoch
    assert code(a.heartbeat(epoch - 1)) is NONE
    for wrong in (epoch - 2 or 99, epoch + 1):
        assert code(a.heartbeat(wrong)) is ErrorCode.FENCED_MEMBER_EPOCH


def test_scenario_027_unknown_members_and_groups_are_refused(broker: ShareBroker) -> None:
    assert code(broker.member("A").heartbeat(3)) is NOT_FOUND
    broker.topic("T")
    broker.member("A").heartbeat(0, ["T"])
    response = broker.member("B").heartbeat(3)
    assert (code(response), response.member_id, response.member_epoch) == (ErrorCode.UNKNOWN_MEMBER_ID, None, 0)


def test_scenario_028_a_full_group_refuses_new_members(broker: ShareBroker) -> None:
    broker.topic("T")
    for number in range(200):
        assert code(broker.member(f"m{number}").heartbeat(0, ["T"])) is NONE
    assert code(broker.member("one more").heartbeat(0, ["T"])) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert code(broker.member("m0").heartbeat(0, ["T"])) is NONE


def test_scenario_029_a_share_member_cannot_join_a_consumer_group(broker: ShareBroker) -> None:
    broker.set_level("group.version", 1)
    a = broker.member("A")
    joining = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="A" * 22,
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["T"],
        topic_partitions=[],
    )
    assert code(a.ask(joining, 1)) is NONE
    for epoch, topics in ((0, ["T"]), (3, None), (-1, None)):
        assert code(a.heartbeat(epoch, topics)) is NOT_FOUND
    assert code(alter(a, "T", 0)) is NOT_FOUND
    assert code(delete_offsets(a, "T")) is NOT_FOUND


def test_a_consumer_cannot_join_a_share_group(broker: ShareBroker) -> None:
    broker.set_level("group.version", 1)
    broker.topic("T")
    a = broker.member("A")
    a.heartbeat(0, ["T"])
    joining = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="B" * 22, rebalance_timeout_ms=1000, subscribed_topic_names=["T"], topic_partitions=[]
    )
    assert code(a.ask(joining, 1)) is NOT_FOUND


def test_scenario_030_a_member_that_leaves_the_group_keeps_its_records(broker: ShareBroker) -> None:
    topic = broker.shared_topic("T", 10)
    a, b = broker.member("A"), broker.member("B")
    a.heartbeat(0, ["T"])
    a.acquire(topic)
    response = a.heartbeat(-1)
    assert (code(response), response.member_epoch, response.assignment) == (NONE, -1, None)
    assert b.acquire(topic) == []
    a.disconnect()
    assert b.acquire() == [(0, 9, 2)]


def test_scenario_031_a_topic_that_grows_is_assigned_after_its_state_is_there(broker: ShareBroker) -> None:
    topic = broker.topic("T")
    a = broker.member("A")
    settled(broker, a, topics=["T"])
    for _ in range(2):  # These heartbeats do not change the assignment.
        assert assigned(a.heartbeat()) is None
    epoch = a.member_epoch
    from odradek.protocol.messages.partition_record import PartitionRecord

    broker.image.replay(
        PartitionRecord(partition_id=1, topic_id=topic.topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0)
    )
    run_to_end(broker.partitions.opening_topic(broker.image.topics["T"]))
    got = None
    for _ in range(3):
        broker.sleep(1_000)
        got = assigned(a.heartbeat()) or got
    assert got == {topic.topic_id: [0, 1]}
    assert a.member_epoch > epoch


def test_scenario_036_the_feature_can_be_turned_off_and_on_again(broker: ShareBroker) -> None:
    broker.topic("T")
    a = broker.member("A")
    settled(broker, a, topics=["T"])
    broker.set_level("share.version", 0)
    assert code(a.heartbeat()) is ErrorCode.UNSUPPORTED_VERSION
    (group,) = a.ask(ShareGroupDescribeRequest(group_ids=[GROUP]), 1).groups
    assert code(group) is ErrorCode.UNSUPPORTED_VERSION
    assert code(alter(a, "T", 0)) is ErrorCode.UNSUPPORTED_VERSION
    broker.set_level("share.version", 1)
    assert code(a.heartbeat()) is NONE


@pytest.mark.parametrize(
    ("member_id", "epoch", "topics", "rack_id"),
    [
        ("", 0, ["T"], None),
        (" ", 0, ["T"], None),
        ("x" * 37, 0, ["T"], None),
        ("A", 0, ["T"], " "),
        ("A", -2, ["T"], None),
        ("A", 0, None, None),
        ("A", 0, [], None),
    ],
)
def test_a_heartbeat_with_invalid_fields_is_refused(
    broker: ShareBroker, member_id: str, epoch: int, topics: list[str] | None, rack_id: str | None
) -> None:
    assert code(broker.member(member_id).heartbeat(epoch, topics, rack_id=rack_id)) is INVALID


def test_a_group_id_must_not_be_blank(broker: ShareBroker) -> None:
    assert code(broker.member("A", group_id=" ").heartbeat(0, ["T"])) is INVALID


def test_a_heartbeat_requires_read_on_the_group_and_describe_on_its_topics(broker: ShareBroker) -> None:
    broker.topic("T")
    broker.deny(Operation.DESCRIBE, ResourceType.TOPIC, "T")
    assert code(broker.member("A").heartbeat(0, ["T"])) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    broker.deny(Operation.READ, ResourceType.GROUP, GROUP)
    assert code(broker.member("A").heartbeat(0, ["T"])) is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_member_may_leave_with_an_empty_subscription_as_java_does(broker: ShareBroker) -> None:
    broker.topic("T")
    a = broker.member("A")
    a.heartbeat(0, ["T"])
    assert a.heartbeat(-1, []).member_epoch == -1


def test_an_empty_subscription_empties_the_assignment(broker: ShareBroker) -> None:
    broker.topic("T")
    a = broker.member("A")
    settled(broker, a, topics=["T"])
    assert assigned(a.heartbeat(topics=[])) == {}


def test_a_silent_member_is_removed(broker: ShareBroker) -> None:
    broker.topic("T")
    a = broker.member("A")
    a.heartbeat(0, ["T"])
    broker.sleep(45_000)
    assert code(a.heartbeat()) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_deleted_topic_leaves_the_assignment_at_once(broker: ShareBroker) -> None:
    broker.topic("T")
    a = broker.member("A")
    settled(broker, a, topics=["T"])
    broker.delete_topic("T")
    assert assigned(a.heartbeat()) == {}


def test_a_failed_initialisation_of_state_is_repeated(broker: ShareBroker) -> None:
    topic = broker.topic("T").topic_id
    refusals = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    broker.persister.initialize_refusals = refusals
    a = broker.member("A")
    a.heartbeat(0, ["T"])
    assert refusals == []
    broker.sleep(1_000)
    a.heartbeat()
    broker.sleep(1_000)
    assert assigned(a.heartbeat()) == {topic: [0]}


def test_a_restart_finds_members_epochs_and_state(broker: ShareBroker) -> None:
    topic = broker.topic("T").topic_id
    a = broker.member("A")
    settled(broker, a, topics=["T"])
    broker.restart_groups()
    response = a.heartbeat(topics=["T"])
    assert (code(response), assigned(response)) == (NONE, {topic: [0]})
    broker.sleep(45_000)
    assert code(a.heartbeat()) is ErrorCode.UNKNOWN_MEMBER_ID


# --- Descriptions for administrators.


def test_a_share_group_is_described(broker: ShareBroker) -> None:
    topic = broker.topic("T").topic_id
    a = broker.member("A")
    settled(broker, a, topics=["T"])
    (group, missing, empty) = a.ask(ShareGroupDescribeRequest(group_ids=[GROUP, "none", ""]), 1).groups
    assert empty.error_code == ErrorCode.INVALID_GROUP_ID.value
    assert (group.group_state, group.assignor_name, group.authorized_operations) == ("Stable", "simple", -(2**31))
    (member,) = group.members
    (of_topic,) = member.assignment.topic_partitions
    assert (member.member_id, member.client_host, member.subscribed_topic_names) == ("A", "/127.0.0.1", ["T"])
    assert (of_topic.topic_id, of_topic.topic_name, of_topic.partitions) == (topic, "T", [0])
    assert (code(missing), missing.error_message, missing.group_state) == (NOT_FOUND, "Group none not found.", "")
    broker.deny(Operation.DESCRIBE, ResourceType.TOPIC, "T")
    (group,) = a.ask(ShareGroupDescribeRequest(group_ids=[GROUP]), 1).groups
    assert code(group) is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_share_group_is_listed(broker: ShareBroker) -> None:
    broker.topic("T")
    a = broker.member("A")
    a.heartbeat(0, ["T"])
    (listed,) = a.ask(ListGroupsRequest(types_filter=["SHARE"]), 5).groups
    assert (listed.group_id, listed.group_type, listed.protocol_type, listed.group_state) == (
        GROUP,
        "share",
        "share",
        "Stable",
    )
    a.heartbeat(-1)
    (listed,) = a.ask(ListGroupsRequest(states_filter=["empty"]), 5).groups
    assert listed.group_id == GROUP


def test_a_share_group_is_deleted_with_its_state(broker: ShareBroker) -> None:
    topic = broker.topic("T").topic_id
    a = broker.member("A")
    settled(broker, a, topics=["T"])
    deleting = DeleteGroupsRequest(groups_names=[GROUP])
    assert code(a.ask(deleting, 2).results[0]) is ErrorCode.NON_EMPTY_GROUP
    broker.dead_letters.counts.update({GROUP: DeadLetterCounts(1), "other": DeadLetterCounts(2)})
    a.heartbeat(-1)
    assert broker.stored(topic).state_epoch > 0
    assert code(a.ask(deleting, 2).results[0]) is NONE
    assert broker.stored(topic).state_epoch == 0
    assert broker.dead_letters.counts == {"other": DeadLetterCounts(2)}
    assert code(a.heartbeat(3)) is NOT_FOUND
    broker.restart_groups()
    assert code(a.heartbeat(3)) is NOT_FOUND


# --- Offsets.


def test_scenario_032_offsets_of_a_group_with_members_stay(broker: ShareBroker) -> None:
    broker.topic("T")
    a = broker.member("A")
    settled(broker, a, topics=["T"])
    altered = alter(a, "T", 7)
    assert (code(altered), altered.responses) == (ErrorCode.NON_EMPTY_GROUP, [])
    assert code(delete_offsets(a, "T")) is ErrorCode.NON_EMPTY_GROUP


def test_scenario_033_a_member_begins_where_the_offset_was_set(broker: ShareBroker) -> None:
    topic = broker.topic("T").topic_id
    broker.produce("T", 10)
    a = broker.member("A")
    settled(broker, a, topics=["T"])
    a.heartbeat(-1)
    altered = alter(a, "T", 7)
    assert [each.error_code for each in altered.responses[0].partitions] == [0]
    assert positions(a) == [("T", 0, 7, 3, NONE)]
    settled(broker, a, topics=["T"])
    assert a.acquire(topic) == [(7, 9, 1)]


def test_an_alter_creates_the_group(broker: ShareBroker) -> None:
    broker.topic("T")
    a = broker.member("A")
    assert code(alter(a, "T", -680)) is NONE
    (group,) = a.ask(ShareGroupDescribeRequest(group_ids=[GROUP]), 1).groups
    assert (group.group_epoch, group.assignment_epoch, group.group_state) == (1, 1, "Empty")


def test_altering_offsets_of_missing_topics_and_partitions_is_refused(broker: ShareBroker) -> None:
    broker.topic("T")
    a = broker.member("A")
    altered = alter(a, "T", 1, 2)
    codes = [ErrorCode(each.error_code) for each in altered.responses[0].partitions]
    assert codes == [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    (of_topic,) = alter(a, "U", 1).responses
    assert ErrorCode(of_topic.partitions[0].error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(alter(a, "T", 1, group_id="")) is ErrorCode.INVALID_GROUP_ID


def test_scenario_034_the_lag_excludes_acknowledged_records(broker: ShareBroker) -> None:
    topic = broker.topic("T").topic_id
    broker.produce("T", 10)
    a = broker.member("A")
    alter(a, "T", 0)
    a.acquire(topic)
    a.ack({topic: [(0, 4, ACCEPT)]})
    assert positions(a, "T") == [("T", 0, 0, 5, NONE)]


def test_a_partition_whose_log_cannot_be_used_has_an_error_and_the_others_have_their_lag(broker: ShareBroker) -> None:
    for name in "TU":
        broker.topic(name)
        broker.produce(name, 10)
    a = broker.member("A")
    alter(a, "T", 1)
    alter(a, "U", 2)
    for _ in broker.partitions.deleting_topic(broker.image.topics["T"]):
        pass
    assert positions(a, "T", "U") == [("T", 0, 0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER), ("U", 0, 2, 8, NONE)]


def test_scenario_035_a_group_that_has_never_fetched_has_no_offsets(broker: ShareBroker) -> None:
    broker.topic("T")
    a = broker.member("A")
    settled(broker, a, topics=["T"])
    assert positions(a) == [("T", 0, -1, -1, NONE)]
    assert positions(a, "T", group_id="none") == [("T", 0, -1, -1, NONE)]
    assert positions(a, group_id="none") == []


def test_deleted_offsets_are_initialised_again(broker: ShareBroker) -> None:
    topic = broker.topic("T").topic_id
    a = broker.member("A")
    settled(broker, a, topics=["T"])
    a.heartbeat(-1)
    deleted = delete_offsets(a, "T", "U")
    assert [(each.topic_name, ErrorCode(each.error_code)) for each in deleted.responses] == [
        ("T", NONE),
        ("U", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert deleted.responses[0].topic_id == topic
    assert positions(a) == []
    assert code(delete_offsets(a, "T", group_id="none")) is NOT_FOUND
    assert settled(broker, a, topics=["T"]) == [{topic: [0]}]


def test_requests_for_offsets_require_permissions(broker: ShareBroker) -> None:
    broker.topic("T")
    a = broker.member("A")
    alter(a, "T", 0)
    broker.deny(Operation.READ, ResourceType.TOPIC, "T")
    broker.deny(Operation.DESCRIBE, ResourceType.TOPIC, "T")
    altered = alter(a, "T", 1)
    assert ErrorCode(altered.responses[0].partitions[0].error_code) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert ErrorCode(delete_offsets(a, "T").responses[0].error_code) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert positions(a, "T") == [("T", 0, -1, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    assert positions(a) == []


def test_every_api_of_share_groups_is_answered(broker: ShareBroker) -> None:
    from odradek.broker.api.served import SERVED
    from odradek.broker.handlers.by_api_key import handler_of

    for api_key in ApiKey:
        if "SHARE" in api_key.name and api_key in SERVED:
            assert callable(handler_of(api_key))


def test_a_member_keeps_records_that_it_acquires_before_the_group_learns_of_the_state(broker: ShareBroker) -> None:
    """Checks that a member keeps the records that it acquires as soon as the share state exists. The group learns of
    this state only after it has been written to disk."""
    topic = bytes(broker.topic("T").topic_id)
    broker.produce("T", 10)
    held = broker.persister.held_begins = []
    a = broker.member("A")
    assert assigned(a.heartbeat(0, ["T"])) == {}
    assert len(held) == 1
    assert (a.acquire(topic) or a.acquire(topic)) == [(0, 9, 1)]
    for answer in held:
        answer()
    broker.settle()
    assert a.ack_code(topic, (0, 9, ACCEPT)) is NONE
