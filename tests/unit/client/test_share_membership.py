"""Tests the heartbeats of a share group member (docs/spec/share-groups.md#s2, #s6-1)."""

from __future__ import annotations

import pytest

from odradek.client.consuming.heartbeats import HeartbeatStep
from odradek.client.sharing.share_member import FIRST_INTERVAL_MS, MAX_EARLY_HEARTBEATS, ShareMembership
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.share_group_heartbeat_response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.protocol.topic_partition import TopicIdPartition

TOPIC = bytes(15) + b"\1"
INTERVAL_MS = 5_000


def member() -> ShareMembership:
    return ShareMembership("g", "m", frozenset({"t", "s"}), rack_id="r")


def reply(
    epoch: int = 2, *partitions: int, code: ErrorCode = ErrorCode.NONE, is_same: bool = False
) -> ShareGroupHeartbeatResponse:
    assigned = [TopicPartitions(topic_id=TOPIC, partitions=list(partitions))] if partitions else []
    return ShareGroupHeartbeatResponse(
        error_code=code.value,
        member_epoch=epoch,
        heartbeat_interval_ms=INTERVAL_MS,
        assignment=None if is_same or code is not ErrorCode.NONE else Assignment(topic_partitions=assigned),
    )


def heard(found: ShareMembership, answer: ShareGroupHeartbeatResponse) -> HeartbeatStep:
    return found.handle_answer(found.current_state(), answer)


def joined() -> ShareMembership:
    found = member()
    assert heard(found, reply(2)) is HeartbeatStep.GO_ON
    assert heard(found, reply(3, 0, 1)) is HeartbeatStep.GO_ON
    return found


def test_a_member_joins_with_epoch_0_its_topics_and_its_rack() -> None:
    request = member().request()
    assert (request.member_epoch, request.member_id) == (0, "m")
    assert (request.subscribed_topic_names, request.rack_id) == (["s", "t"], "r")


def test_a_joined_member_sends_only_its_epoch() -> None:
    request = joined().request()
    assert (request.member_epoch, request.subscribed_topic_names, request.rack_id) == (3, None, None)


def test_an_assignment_replaces_the_one_before_and_null_leaves_it() -> None:
    found = joined()
    assert found.assigned == {TopicIdPartition(TOPIC, 0), TopicIdPartition(TOPIC, 1)}
    heard(found, reply(3, is_same=True))
    assert len(found.assigned) == 2
    heard(found, reply(4))
    assert found.assigned == frozenset()


def test_a_limited_number_of_early_heartbeats_is_sent_before_the_first_assignment() -> None:
    found = member()
    heard(found, reply(2))
    assert found.heartbeat_interval_ms == FIRST_INTERVAL_MS
    for _ in range(MAX_EARLY_HEARTBEATS):
        heard(found, reply(2, is_same=True))
    assert found.heartbeat_interval_ms == INTERVAL_MS
    assert joined().heartbeat_interval_ms == INTERVAL_MS


def test_changed_topics_are_sent_with_the_next_heartbeat() -> None:
    found = joined()
    assert not found.has_changes
    found.topics = frozenset({"u"})
    assert found.has_changes
    assert found.request().subscribed_topic_names == ["u"]
    heard(found, reply(4, 0))
    assert not found.has_changes


def test_after_a_lost_answer_all_fields_are_sent_again_with_the_same_epoch() -> None:
    found = joined()
    found.forget_reported_state()
    request = found.request()
    assert (request.member_epoch, request.subscribed_topic_names) == (3, ["s", "t"])


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_an_expelled_member_joins_anew_under_the_same_id(code: ErrorCode) -> None:
    found = joined()
    assert heard(found, reply(code=code)) is HeartbeatStep.JOIN_ANEW
    assert found.assigned == frozenset()
    request = found.request()
    assert (request.member_epoch, request.member_id, request.subscribed_topic_names) == (0, "m", ["s", "t"])


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, HeartbeatStep.REPEAT),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, HeartbeatStep.FIND_COORDINATOR),
        (ErrorCode.NOT_COORDINATOR, HeartbeatStep.FIND_COORDINATOR),
    ],
)
def test_after_a_transient_error_all_fields_are_sent_and_the_assignment_stays(
    code: ErrorCode, step: HeartbeatStep
) -> None:
    found = joined()
    assert heard(found, reply(code=code)) is step
    assert len(found.assigned) == 2
    assert found.request().subscribed_topic_names == ["s", "t"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_ID_NOT_FOUND,  # the group is of another type
    ],
)
def test_a_member_that_the_group_does_not_take_gives_up(code: ErrorCode) -> None:
    assert heard(member(), reply(code=code)) is HeartbeatStep.GIVE_UP


def test_a_member_leaves_with_an_empty_list_of_topics_like_the_java_consumer() -> None:
    request = joined().leave_request()
    assert (request.member_epoch, request.subscribed_topic_names) == (-1, [])
