"""Tests that the broker preserves and lists groups of the newer protocols in a directory written by Kafka, and that
clients can fetch their offsets."""

import pytest

from odradek.broker.groups.common.group import CoordinatorRecord
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from odradek.protocol.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from odradek.protocol.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from odradek.protocol.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from odradek.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from odradek.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from odradek.protocol.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from odradek.protocol.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup
from odradek.protocol.messages.share_group_metadata_key import ShareGroupMetadataKey
from odradek.protocol.messages.share_group_metadata_value import ShareGroupMetadataValue
from odradek.protocol.struct import Message
from tests.support.group_scene import GROUP, Scene


def recorded(key: Message, value: Message | None) -> CoordinatorRecord:
    return CoordinatorRecord(key, value)


def group_epoch(epoch: int) -> CoordinatorRecord:
    return recorded(ConsumerGroupMetadataKey(group_id=GROUP), ConsumerGroupMetadataValue(epoch=epoch))


def target_epoch(epoch: int) -> CoordinatorRecord:
    return recorded(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=GROUP),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
    )


def member(member_id: str, *topics: str) -> CoordinatorRecord:
    return recorded(
        ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id=member_id),
        ConsumerGroupMemberMetadataValue(subscribed_topic_names=list(topics), classic_member_metadata=None),
    )


def tombstone_of(member_id: str) -> CoordinatorRecord:
    return recorded(ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id=member_id), None)


def assigned(member_id: str, epoch: int, state: int = 0) -> CoordinatorRecord:
    return recorded(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id=member_id),
        ConsumerGroupCurrentMemberAssignmentValue(member_epoch=epoch, state=state),
    )


EMPTY = [group_epoch(3), target_epoch(3)]
WITH_MEMBER = [group_epoch(3), member("m", "t"), target_epoch(3), assigned("m", 3)]


@pytest.mark.parametrize(
    ("records", "state"),
    [
        (EMPTY, "Empty"),
        (WITH_MEMBER, "Stable"),
        ([*WITH_MEMBER, group_epoch(4)], "Assigning"),
        ([*WITH_MEMBER, group_epoch(4), target_epoch(4)], "Reconciling"),
        ([*WITH_MEMBER, assigned("m", 3, state=1)], "Reconciling"),
        ([*WITH_MEMBER, tombstone_of("m")], "Empty"),
        # Compaction can leave the records in this order.
        ([assigned("m", 3), group_epoch(3), target_epoch(3), member("m", "t")], "Stable"),
    ],
)
def test_the_state_of_a_modern_group_follows_from_its_records(records: list[CoordinatorRecord], state: str) -> None:
    assert Scene(records=records).groups() == {GROUP: state}


def test_a_consumer_group_is_listed_with_its_type_and_not_described_as_a_classic_group() -> None:
    scene = Scene(records=EMPTY)
    (listed,) = scene.core.list_groups([], ["consumer"])
    assert (listed.group_type, listed.protocol_type) == ("consumer", "consumer")
    assert scene.describe().error_message == f"Group {GROUP} is not a classic group."


def test_offsets_of_a_consumer_group_are_loaded_before_or_after_its_other_records() -> None:
    scene = Scene(records=EMPTY)
    assert scene.commit(7) is ErrorCode.NONE
    offset = scene.log.pop()
    scene.log.insert(0, offset)
    scene.restart()
    assert scene.fetch_all() == {("t", 0): 7}
    assert [listed.group_type for listed in scene.core.list_groups([], [])] == ["consumer"]


def test_only_members_of_a_consumer_group_commit_and_fetch_with_a_member_id() -> None:
    scene = Scene(records=WITH_MEMBER)
    assert scene.commit(7) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.commit(7, member_id="m", generation=3) is ErrorCode.NONE
    assert scene.commit(8, member_id="m", generation=2) is ErrorCode.STALE_MEMBER_EPOCH
    assert scene.commit(8, member_id="m", generation=3, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert scene.fetch_all() == {("t", 0): 7}
    for member, code in {("who", 3): "UNKNOWN_MEMBER_ID", ("m", 2): "STALE_MEMBER_EPOCH"}.items():
        request = OffsetFetchRequestGroup(group_id=GROUP, member_id=member[0], member_epoch=member[1], topics=None)
        with pytest.raises(KafkaError, match=code):
            scene.core.fetch_offsets(request, require_stable=False)


def test_offsets_of_subscribed_topics_are_neither_deleted_nor_expired() -> None:
    scene = Scene(records=WITH_MEMBER)
    scene.commit(7, member_id="m", generation=3)
    scene.commit(7, member_id="m", generation=3, topic="former")
    assert scene.delete_offset("t") is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    scene.now_ms += scene.config.offsets_retention_ms
    scene.expire()
    assert scene.fetch_all() == {("t", 0): 7}


def test_an_empty_consumer_group_is_deleted_with_all_its_records() -> None:
    scene = Scene(records=EMPTY)
    scene.commit(7)
    assert scene.delete_group() is ErrorCode.NONE
    scene.restart()
    assert scene.groups() == {}
    assert scene.fetch_all() == {}


def test_a_consumer_group_with_members_is_not_deleted() -> None:
    assert Scene(records=WITH_MEMBER).delete_group() is ErrorCode.NON_EMPTY_GROUP


def test_an_empty_consumer_group_becomes_a_classic_group_and_keeps_its_offsets() -> None:
    scene = Scene(records=EMPTY)
    scene.commit(7)
    reply = scene.join()
    scene.advance(0)
    scene.settle([reply.answer])
    for _ in ("now", "after a restart"):
        assert [listed.group_type for listed in scene.core.list_groups([], [])] == ["classic"]
        assert scene.fetch_all() == {("t", 0): 7}
        scene.restart()


def test_a_share_group_is_listed_and_has_no_committed_offsets() -> None:
    scene = Scene(records=[recorded(ShareGroupMetadataKey(group_id=GROUP), ShareGroupMetadataValue(epoch=1))])
    (listed,) = scene.core.list_groups([], [])
    assert (listed.group_type, listed.protocol_type, listed.group_state) == ("share", "share", "Empty")
    assert scene.commit(7) is ErrorCode.GROUP_ID_NOT_FOUND
    assert scene.fetch() == -1
    assert scene.join().code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.delete_offset() is ErrorCode.GROUP_ID_NOT_FOUND
