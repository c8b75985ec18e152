"""Tests the heartbeats of a consumer group member (KIP-848), and its reactions to the responses."""

import pytest

from odradek.client.consuming.consumer_member import ConsumerMembership, PartitionsByTopicId
from odradek.client.consuming.handover import Interest
from odradek.client.consuming.heartbeats import JOIN_EPOCH, HeartbeatStep
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

TOPIC = bytes(15) + b"\1"
BOTH: PartitionsByTopicId = {TOPIC: frozenset({0, 1})}


def member(interest: Interest | None = None, instance_id: str | None = None) -> ConsumerMembership:
    return ConsumerMembership(
        "group",
        "me",
        Interest(frozenset({"t"})) if interest is None else interest,
        rebalance_timeout_ms=1000,
        instance_id=instance_id,
        server_assignor="range",
    )


def reply(
    epoch: int = 0, *partitions: int, error: ErrorCode = ErrorCode.NONE, assigns: bool = True
) -> ConsumerGroupHeartbeatResponse:
    topics = [TopicPartitions(topic_id=TOPIC, partitions=list(partitions))] if partitions else []
    return ConsumerGroupHeartbeatResponse(
        error_code=error.value,
        member_epoch=epoch,
        heartbeat_interval_ms=500,
        assignment=Assignment(topic_partitions=topics) if assigns else None,
    )


def joined(interest: Interest | None = None) -> ConsumerMembership:
    """Returns a member at epoch 2 that owns both partitions and has reported this to the coordinator."""
    found = member(interest)
    found.handle_answer(found.current_state(), reply(2, 0, 1))
    found.set_owned(BOTH)
    found.handle_answer(found.current_state(), reply(2, assigns=False))
    return found


def reported(membership: ConsumerMembership) -> dict[str, object]:
    """Returns the next heartbeat's optional fields that are not null."""
    request = membership.request()
    always = ("group_id", "member_id", "member_epoch", "instance_id")
    fields = {name: getattr(request, name) for name in request.__slots__ if name not in always}
    if fields["topic_partitions"] is not None:
        fields["topic_partitions"] = {each.topic_id: each.partitions for each in fields["topic_partitions"]}
    return {name: value for name, value in fields.items() if value is not None and value != -1}


def test_the_first_heartbeat_has_all_fields_and_owns_no_partitions() -> None:
    assert member().request().member_epoch == JOIN_EPOCH
    assert reported(member()) == {
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["t"],
        "server_assignor": "range",
        "topic_partitions": {},
    }


def test_a_heartbeat_without_changes_omits_all_fields() -> None:
    assert reported(joined()) == {}
    assert joined().request().member_epoch == 2
    assert not joined().has_changes


def test_a_member_reports_the_partitions_it_took_over_once() -> None:
    found = member()
    assert found.handle_answer(found.current_state(), reply(2, 0, 1)) is HeartbeatStep.GO_ON
    assert (found.epoch, found.target, found.owned) == (2, BOTH, {})
    found.set_owned(BOTH)
    assert found.has_changes
    assert reported(found) == {"topic_partitions": {TOPIC: [0, 1]}}
    found.handle_answer(found.current_state(), reply(2, assigns=False))
    assert reported(found) == {}


def test_a_target_that_is_taken_over_in_part_stays_to_be_taken_over() -> None:
    found = member()
    found.handle_answer(found.current_state(), reply(2, 0, 1))
    found.set_owned({})
    assert found.target == BOTH


def test_a_change_during_a_heartbeat_is_sent_in_the_next_one() -> None:
    found = joined()
    current_state = found.current_state()
    found.set_owned({})
    found.handle_answer(current_state, reply(3, assigns=False))
    assert reported(found) == {"topic_partitions": {}}


NAMED, MATCHING = Interest(frozenset("a")), Interest(regex="r")


@pytest.mark.parametrize(
    ("before", "after", "names", "regex"),
    [
        (NAMED, Interest(frozenset("b")), ["b"], None),
        (NAMED, Interest(frozenset("a"), "r"), ["a"], "r"),
        (NAMED, MATCHING, [], "r"),
        (MATCHING, NAMED, ["a"], ""),
        (MATCHING, Interest(), [], ""),
    ],
)
def test_a_changed_subscription_also_clears_the_previous_one(
    before: Interest, after: Interest, names: list[str], regex: str | None
) -> None:
    found = joined(before)
    found.interest = after
    assert found.has_changes
    request = found.request()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (names, regex)


def test_after_a_lost_heartbeat_all_fields_are_sent_again_with_the_owned_partitions() -> None:
    found = joined()
    found.forget_reported_state()
    assert reported(found) == {
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["t"],
        "server_assignor": "range",
        "topic_partitions": {TOPIC: [0, 1]},
    }


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_an_expelled_member_loses_its_partitions_and_joins_again(code: ErrorCode) -> None:
    found = joined()
    incarnation = found.incarnation
    assert found.handle_answer(found.current_state(), reply(error=code)) is HeartbeatStep.JOIN_ANEW
    assert (found.is_lost, found.owned, found.target, found.epoch) == (True, {}, None, JOIN_EPOCH)
    assert found.incarnation == incarnation + 1
    assert reported(found) == reported(member())


def test_a_group_of_another_type_refuses_a_member_that_joins() -> None:
    found = member()
    found.request()
    assert (
        found.handle_answer(found.current_state(), reply(error=ErrorCode.GROUP_ID_NOT_FOUND)) is HeartbeatStep.GIVE_UP
    )


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, HeartbeatStep.REPEAT),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, HeartbeatStep.FIND_COORDINATOR),
        (ErrorCode.NOT_COORDINATOR, HeartbeatStep.FIND_COORDINATOR),
    ],
)
def test_a_coordinator_that_is_not_ready_changes_nothing(code: ErrorCode, step: HeartbeatStep) -> None:
    found = joined()
    assert found.handle_answer(found.current_state(), reply(error=code)) is step
    assert (found.is_lost, found.owned, found.epoch) == (False, BOTH, 2)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.FENCED_INSTANCE_ID,
    ],
)
def test_a_fatal_heartbeat_error_goes_to_the_application(code: ErrorCode) -> None:
    found = joined()
    assert found.handle_answer(found.current_state(), reply(error=code)) is HeartbeatStep.GIVE_UP
    assert found.is_lost


def test_a_static_member_leaves_temporarily_and_a_dynamic_member_permanently() -> None:
    assert member().leave_request().member_epoch == -1
    assert member(instance_id="i").leave_request().member_epoch == -2
