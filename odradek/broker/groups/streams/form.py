"""Checks whether a StreamsGroupHeartbeat is well formed. The checks have the same order as in Kafka. Source:
docs/spec/streams-groups.md#s2-2, rows 7 to 14."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.broker.groups.common.members import JOIN_EPOCH, TEMPORARY_LEAVE_EPOCH, UNCHANGED_MS, is_blank
from odradek.broker.groups.streams.limits import check_size
from odradek.broker.groups.streams.tasks import TaskRoles, reported_tasks
from odradek.broker.groups.streams.topology import check_changelogs
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.kafka_rules import KafkaRules
from odradek.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest

FORM: Sequence[tuple[Callable[[StreamsGroupHeartbeatRequest], bool], str]] = (
    # (condition under which a request is invalid, Kafka's message)
    (lambda request: is_blank(request.member_id), "MemberId can't be empty."),
    (lambda request: is_blank(request.group_id), "GroupId can't be empty."),
    (lambda request: is_blank(request.instance_id), "InstanceId can't be empty."),
    (lambda request: is_blank(request.rack_id), "RackId can't be empty."),
)
JOINING: Sequence[tuple[Callable[[StreamsGroupHeartbeatRequest], bool], str]] = (
    (
        lambda request: request.rebalance_timeout_ms == UNCHANGED_MS,
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    (lambda request: request.active_tasks != [], "ActiveTasks must be empty when (re-)joining."),
    (lambda request: request.standby_tasks != [], "StandbyTasks must be empty when (re-)joining."),
    (lambda request: request.warmup_tasks != [], "WarmupTasks must be empty when (re-)joining."),
    (lambda request: request.topology is None, "Topology must be non-null when (re-)joining."),
)
NOT_YET_IN_4_3: Sequence[tuple[Callable[[StreamsGroupHeartbeatRequest], bool], str]] = (
    (lambda request: request.instance_id is not None, "Static membership is not yet supported."),
    (
        lambda request: request.task_offsets is not None or request.task_end_offsets is not None,
        "TaskOffsets are not supported yet.",
    ),
)


def check_heartbeat(request: StreamsGroupHeartbeatRequest, rules: KafkaRules) -> TaskRoles | None:
    """Returns the tasks that the member reports, or None if the request contains none of the three lists. Raises
    INVALID_REQUEST if the request is not well formed, or STREAMS_INVALID_TOPOLOGY if its topology is invalid."""
    epoch = request.member_epoch
    for is_wrong, reason in (*FORM, *JOINING) if epoch == JOIN_EPOCH else FORM:
        if is_wrong(request):
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    if epoch == JOIN_EPOCH:
        assert request.topology is not None
        check_size(request.topology)
        check_changelogs(request.topology)
    if epoch == TEMPORARY_LEAVE_EPOCH and request.instance_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    if epoch < TEMPORARY_LEAVE_EPOCH:
        what = f"MemberEpoch is {epoch}, but must be greater than or equal to {TEMPORARY_LEAVE_EPOCH}."
        raise KafkaError(ErrorCode.INVALID_REQUEST, what)
    owned = reported_tasks(request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if epoch != JOIN_EPOCH and request.topology is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology can only be provided when (re-)joining.")
    if rules < KafkaRules.KAFKA_4_4:
        for is_wrong, reason in NOT_YET_IN_4_3:
            if is_wrong(request):
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    return owned
