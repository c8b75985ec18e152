"""The checks of a heartbeat that need no group. Source: docs/spec/consumer-groups.md#s2-1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.broker.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest

MEMBER_ID_BY_CLIENT_SINCE = 1
UNCHANGED_MS = -1

Check = tuple[Callable[[ConsumerGroupHeartbeatRequest, int], bool], str]

SHAPE: Sequence[Check] = (
    # what is wrong, by request and version; how Kafka puts it
    (
        lambda request, version: (
            is_blank(request.member_id)
            and (
                version >= MEMBER_ID_BY_CLIENT_SINCE or request.member_epoch > 0 or request.member_epoch == LEAVE_EPOCH
            )
        ),
        "MemberId can't be empty.",
    ),
    (lambda request, _: is_blank(request.group_id), "GroupId can't be empty."),
    (lambda request, _: is_blank(request.instance_id), "InstanceId can't be empty."),
    (lambda request, _: is_blank(request.rack_id), "RackId can't be empty."),
    (
        lambda request, _: request.member_epoch == JOIN_EPOCH and request.rebalance_timeout_ms == UNCHANGED_MS,
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    (
        lambda request, _: request.member_epoch == JOIN_EPOCH and request.topic_partitions != [],
        "TopicPartitions must be empty when (re-)joining.",
    ),
    (
        lambda request, _: (
            request.member_epoch == JOIN_EPOCH
            and request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None
        ),
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    (
        lambda request, _: request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH and request.instance_id is None,
        "InstanceId can't be null.",
    ),
    (lambda request, _: request.member_epoch < LEAVE_FOR_A_WHILE_EPOCH, "MemberEpoch is invalid."),
)


def is_blank(text: str | None) -> bool:
    return text is not None and not text.strip()


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Raises KafkaError INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    for is_wrong, reason in SHAPE:
        if is_wrong(request, version):
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        supported = ", ".join(assignors)
        what = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {supported}."
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, what)
