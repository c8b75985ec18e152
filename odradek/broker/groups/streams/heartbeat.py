"""Handles StreamsGroupHeartbeat requests, which members send to join a group, to stay in it and to leave it. Source:
docs/spec/streams-groups.md#s2.

A heartbeat is handled in these steps: identify the member, apply the changes that it reports, compare the topology with
the existing topics, advance the group's epoch if needed, compute a new target if one is due, move the member towards
its target, and determine which internal topics must be created.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from odradek.broker.groups.classic.group import ClassicGroup
from odradek.broker.groups.common.group import TimerKind
from odradek.broker.groups.common.members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    TEMPORARY_LEAVE_EPOCH,
    UNCHANGED_MS,
    is_away,
)
from odradek.broker.groups.common.outcome import Outcome
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.broker.groups.streams.configured_topology import ConfiguredTopology, missing_topics_status
from odradek.broker.groups.streams.descriptions import asks_for_description
from odradek.broker.groups.streams.endpoints import endpoint_partitions, follow_endpoints
from odradek.broker.groups.streams.group import ReportedOffset, StreamsGroup
from odradek.broker.groups.streams.member import Endpoint, StreamsMember
from odradek.broker.groups.streams.records import assignment_record, member_record, target_record, topology_record
from odradek.broker.groups.streams.status import Status, StatusCode
from odradek.broker.groups.streams.tasks import HeldTasks, TaskRoles, Tasks, is_within
from odradek.broker.groups.streams.topology import TopicInfo, is_stale, joining_topology
from odradek.broker.groups.streams.turn import StreamsTurn
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.kafka_rules import KafkaRules
from odradek.protocol.messages import streams_group_heartbeat_response as answer
from odradek.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest, TaskOffset
from odradek.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse

FIRST_VERSION_WITH_DESCRIPTIONS = 1  # the first heartbeat version that supports topology descriptions
# The first heartbeat version that supports MISSING_CLIENT_TAGS. Clients with an earlier version terminate when they
# receive this status.
FIRST_VERSION_WITH_MISSING_TAGS = 1


class StreamsHeartbeat(NamedTuple):
    """A valid StreamsGroupHeartbeat request and its sender.

    owned       the tasks that the member reports, or None if the request does not contain them
    may_create  returns whether the sender may CREATE a topic
    """

    request: StreamsGroupHeartbeatRequest
    version: int
    owned: TaskRoles | None
    client_id: str
    client_host: str
    may_create: Callable[[str], bool]


class StreamsHeartbeatResult(NamedTuple):
    """The result of a heartbeat. `topics` are the internal topics that must be created once the records of the decision
    have been written."""

    response: StreamsGroupHeartbeatResponse
    topics: Sequence[TopicInfo] = ()


def heartbeat(registry: GroupRegistry, beat: StreamsHeartbeat, now_ms: int) -> Outcome[StreamsHeartbeatResult]:
    match beat.request.member_epoch:
        case 0:
            return _join(registry, beat, now_ms)
        case -1:
            return _leave(registry, beat, now_ms)
        case -2:
            return _leave_for_a_while(registry, beat, now_ms)
        case _:
            return _continue_membership(registry, beat, now_ms)


def streams_group(registry: GroupRegistry, group_id: str, missing: str) -> StreamsGroup:
    """Returns the streams group with this id. Raises GROUP_ID_NOT_FOUND if the group does not exist or has another
    type. `missing` is the error message for a group that does not exist."""
    group = registry.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, missing)
    if not isinstance(group, StreamsGroup):
        raise not_a_streams_group(group_id)
    return group


def not_a_streams_group(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")


def _join(registry: GroupRegistry, beat: StreamsHeartbeat, now_ms: int) -> Outcome[StreamsHeartbeatResult]:
    group_id = beat.request.group_id
    match registry.groups.get(group_id):
        case StreamsGroup() as group:
            turn = StreamsTurn(registry, group, now_ms)
        case None:
            turn = _new_group(registry, group_id, now_ms)
        case ClassicGroup() as classic if not classic.members:
            turn = _new_group(registry, group_id, now_ms)
            turn.records += classic.tombstones()  # appended directly, because `write` would apply them to the new group
            for key in classic.running_timers():
                turn.disarm(key.kind, key.member_id)
        case _:
            raise not_a_streams_group(group_id)
    delay_ms = 0 if turn.group.members else turn.setting("initial.rebalance.delay.ms")
    member = _joining_member(turn, beat.request)
    if delay_ms > 0 and not turn.group.memory.is_delayed:
        turn.set_memory(replace(turn.group.memory, is_delayed=True))
        turn.arm(TimerKind.INITIAL_DELAY, delay_ms)
    return _answer_member(turn, beat, member)


def _new_group(registry: GroupRegistry, group_id: str, now_ms: int) -> StreamsTurn:
    group = StreamsGroup(group_id)
    group.epoch += registry.first_epoch()
    return StreamsTurn(registry, group, now_ms, is_new=True)


def _joining_member(turn: StreamsTurn, request: StreamsGroupHeartbeatRequest) -> StreamsMember:
    """Returns the joining member: an existing member, a replacement for a static member, or a new member that has only
    an id. If the instance id is unused, it is not set in the returned member yet.

    Source: docs/spec/streams-groups.md#s2-3
    """
    group, member_id, instance_id = turn.group, request.member_id, request.instance_id
    holder_id = None if instance_id is None else group.static_members.get(instance_id)
    holder = None if holder_id is None else group.members[holder_id]
    if holder is None or not is_away(holder):
        group.check_room(member_id, turn.config.max_size)
    if holder is None:
        return group.members.get(member_id) or StreamsMember(member_id)
    if not is_away(holder):
        assert instance_id is not None
        raise group.not_released(member_id, instance_id, holder.member_id)
    return _replace_static_member(turn, holder, member_id)


def _replace_static_member(turn: StreamsTurn, holder: StreamsMember, member_id: str) -> StreamsMember:
    """Replaces a static member with a member that has a different member id. The new member takes over the target and
    the tasks. Its epoch is 0, so that it receives the tasks again. Source: docs/spec/streams-groups.md#s2-5, S3"""
    group_id, target = turn.group.group_id, turn.group.target_of(holder.member_id)
    member = replace(holder, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    turn.remove_member(holder)
    turn.write(
        member_record(group_id, member),
        target_record(group_id, member_id, target),
        assignment_record(group_id, member),
    )
    return member


def _continue_membership(
    registry: GroupRegistry, beat: StreamsHeartbeat, now_ms: int
) -> Outcome[StreamsHeartbeatResult]:
    request, owned = beat.request, beat.owned
    group = streams_group(registry, request.group_id, f"Streams group {request.group_id} not found.")
    member = group.require_member(request.member_id, request.instance_id)
    group.check_epoch(
        member,
        request.member_epoch,
        owns_only_assigned=(
            request.member_epoch < member.epoch
            and owned is not None
            and is_within(owned.active, member.assigned.active)
            and is_within(owned.standby, member.assigned.standby)
            and is_within(owned.warmup, member.assigned.warmup)
        ),
    )
    return _answer_member(StreamsTurn(registry, group, now_ms), beat, member)


def _answer_member(turn: StreamsTurn, beat: StreamsHeartbeat, before: StreamsMember) -> Outcome[StreamsHeartbeatResult]:
    request, is_new_group = beat.request, turn.group.topology is None
    updated = _apply_request(before, beat)
    if request.topology is not None:
        topology = joining_topology(request.topology, turn.group.topology)
        updated = replace(updated, topology_epoch=topology.epoch)
    is_new = updated.member_id not in turn.group.members
    is_changed = updated is not before and updated != before
    if is_new or is_changed:
        turn.write(member_record(turn.group.group_id, updated))
    if request.topology is not None and is_new_group:
        turn.write(topology_record(turn.group.group_id, topology))
    if not is_new_group:
        _remember_reports(turn, request)
    _remember_shutdown(turn, request)
    configured = turn.follow_inputs(
        member_changed=is_new or (is_changed and _needs_a_target(before, updated, request.instance_id))
    )
    if beat.owned is not None:
        configured.check_owned(beat.owned)
    delay = turn.follow_group_epoch(configured, updated.member_id if is_new else None)
    member = turn.reconcile(updated, beat.owned)
    turn.begin_session(member)
    has_other_tasks = member.assigned is not before.assigned and member.assigned.roles != before.assigned.roles
    if is_new_group:
        # As in Kafka, the first heartbeat of a group does not advance the endpoint epoch, but the response contains the
        # member's own endpoint.
        tells_endpoints = member.user_endpoint is not None or request.endpoint_information_epoch != 0
    else:
        follow_endpoints(turn, before, member, has_other_tasks=has_other_tasks)
        tells_endpoints = request.endpoint_information_epoch != turn.group.memory.endpoint_epoch
    topics, missing = _topics_to_create(turn, configured, beat.may_create)
    response = _response(turn, member)
    if tells_endpoints:
        response.partitions_by_user_endpoint = endpoint_partitions(turn, member)
    # If the member reports tasks other than those assigned to it, the response that assigned them may have been lost,
    # so the assigned tasks are resent. Kafka does not resend them.
    reports_others = beat.owned is not None and beat.owned != member.assigned.roles
    if request.member_epoch == JOIN_EPOCH or has_other_tasks or reports_others:
        roles = member.assigned.roles
        response.active_tasks = _task_ids(roles.active)
        response.standby_tasks = _task_ids(roles.standby)
        response.warmup_tasks = _task_ids(roles.warmup)
    response.status = _statuses(turn, beat, member, delay, missing)
    if beat.version >= FIRST_VERSION_WITH_DESCRIPTIONS:
        response.topology_description_required = asks_for_description(turn, member)
    return turn.outcome(StreamsHeartbeatResult(response, topics))


def _apply_request(member: StreamsMember, beat: StreamsHeartbeat) -> StreamsMember:
    """Returns the member after updating the fields that the request contains. Fields that the request omits (null, -1)
    are unchanged."""
    request = beat.request
    if _is_empty(request) and (beat.client_id, beat.client_host) == (member.client_id, member.client_host):
        return member  # the common case
    endpoint = member.user_endpoint if request.member_epoch != JOIN_EPOCH else None
    if request.user_endpoint is not None:
        endpoint = Endpoint(request.user_endpoint.host, request.user_endpoint.port)
    tags = member.client_tags
    if request.client_tags is not None:
        tags = {each.key: each.value for each in request.client_tags}
        if len(tags) < len(request.client_tags):  # Kafka responds with UNKNOWN_SERVER_ERROR in this case
            raise KafkaError(ErrorCode.INVALID_REQUEST, "ClientTags must not contain duplicate keys.")
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms
            if request.rebalance_timeout_ms == UNCHANGED_MS
            else request.rebalance_timeout_ms
        ),
        process_id=member.process_id if request.process_id is None else request.process_id,
        user_endpoint=endpoint,
        client_tags=tags,
    )


def _is_empty(request: StreamsGroupHeartbeatRequest) -> bool:
    return (
        request.member_epoch != JOIN_EPOCH
        and request.rebalance_timeout_ms == UNCHANGED_MS
        and request.instance_id is None
        and request.rack_id is None
        and request.process_id is None
        and request.user_endpoint is None
        and request.client_tags is None
    )


def _needs_a_target(before: StreamsMember, member: StreamsMember, instance_id: str | None) -> bool:
    """Returns whether the group needs a new target because the member's fields have changed.

    If the request contains an instance id, fewer fields matter. As in Kafka, a static member that omits its instance id
    is treated like a dynamic member.
    """
    if instance_id is None:
        return member != before
    return (member.rack_id, member.client_tags, member.process_id, member.topology_epoch) != (
        before.rack_id,
        before.client_tags,
        before.process_id,
        before.topology_epoch,
    )


def _remember_reports(turn: StreamsTurn, request: StreamsGroupHeartbeatRequest) -> None:
    """Stores the task offsets that the member reports. As in Kafka, the caller ignores the offsets in the heartbeat
    that creates the group."""
    memory, member_id = turn.group.memory, request.member_id
    if request.task_offsets is not None:
        offsets = {**memory.task_offsets, member_id: _reported(request.task_offsets)}
        turn.set_memory(replace(memory, task_offsets=offsets))
    memory = turn.group.memory
    if request.task_end_offsets is not None:
        offsets = {**memory.task_end_offsets, member_id: _reported(request.task_end_offsets)}
        turn.set_memory(replace(memory, task_end_offsets=offsets))


def _remember_shutdown(turn: StreamsTurn, request: StreamsGroupHeartbeatRequest) -> None:
    if request.shutdown_application and turn.group.memory.shutdown_by is None:
        turn.set_memory(replace(turn.group.memory, shutdown_by=request.member_id))


def _reported(offsets: Sequence[TaskOffset]) -> tuple[ReportedOffset, ...]:
    return tuple(ReportedOffset(each.subtopology_id, each.partition, each.offset) for each in offsets)


def _topics_to_create(
    turn: StreamsTurn, configured: ConfiguredTopology, may_create: Callable[[str], bool]
) -> tuple[Sequence[TopicInfo], Status | None]:
    """Returns the internal topics to create now, and the status that reports problems with topics.

    No new attempt to create a topic is made while an attempt is in progress, nor for a while after an attempt has
    failed. Source: docs/spec/streams-groups.md#s4
    """
    if not configured.missing:
        return (), configured.status
    memory = turn.group.memory
    names = [topic.name for topic in configured.missing]
    failures = {
        name: memory.failed[name].reason
        for name in names
        if name in memory.failed and turn.now_ms < memory.failed[name].until_ms
    }
    forbidden = [name for name in names if not may_create(name)]
    topics: list[TopicInfo] = []
    if not forbidden:
        topics = [
            topic
            for topic in configured.missing
            if topic.name not in memory.being_created and topic.name not in failures
        ]
    if topics:
        being_created = memory.being_created.union(topic.name for topic in topics)
        turn.set_memory(replace(memory, being_created=being_created))
    return topics, missing_topics_status(names, forbidden, failures)


def _statuses(
    turn: StreamsTurn, beat: StreamsHeartbeat, member: StreamsMember, delay: Status | None, missing: Status | None
) -> list[answer.Status] | None:
    """Returns the status entries of a heartbeat response, in the same order as in Kafka.

    Source: docs/spec/streams-groups.md#s1-2, W2
    """
    group = turn.group
    assert group.topology is not None
    found: list[Status] = []
    if is_stale(member.topology_epoch, group.topology):
        what = f"The member's topology epoch {member.topology_epoch} is behind"
        what = f"{what} the group's topology epoch {group.topology.epoch}."
        found.append(Status(StatusCode.STALE_TOPOLOGY, what))
    found += [each for each in (delay, missing) if each is not None]
    if group.memory.shutdown_by is not None:
        what = f"Streams group member {group.memory.shutdown_by} encountered a fatal error and requested a shutdown"
        found.append(Status(StatusCode.SHUTDOWN_APPLICATION, f"{what} for the entire application."))
    if beat.version >= FIRST_VERSION_WITH_MISSING_TAGS:
        absent = [tag for tag in turn.requested_tags() if tag not in member.client_tags]
        if absent:
            what = f"Missing required client tags for rack-aware standby assignment: [{', '.join(absent)}]."
            what = f"{what} Configure them via 'client.tag.<tagKey>' in your Streams config."
            found.append(Status(StatusCode.MISSING_CLIENT_TAGS, what))
    return [answer.Status(status_code=each.code.value, status_detail=each.detail) for each in found]


def _response(turn: StreamsTurn, member: StreamsMember) -> StreamsGroupHeartbeatResponse:
    group = turn.group
    response = StreamsGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=turn.setting("heartbeat.interval.ms"),
        endpoint_information_epoch=group.memory.endpoint_epoch,
    )
    if turn.registry.config.rules >= KafkaRules.KAFKA_4_4:
        response.task_offset_interval_ms = turn.setting("task.offset.interval.ms")
        response.acceptable_recovery_lag = turn.setting("acceptable.recovery.lag")
    return response


def _task_ids(tasks: Tasks) -> list[answer.TaskIds]:
    return [answer.TaskIds(subtopology_id=each, partitions=sorted(tasks[each])) for each in sorted(tasks)]


# Leaving the group. The rules are in docs/spec/streams-groups.md#s2-3 and #s2-5.


def _leave(registry: GroupRegistry, beat: StreamsHeartbeat, now_ms: int) -> Outcome[StreamsHeartbeatResult]:
    request = beat.request
    group = streams_group(registry, request.group_id, f"Group {request.group_id} not found.")
    member = group.require_member(request.member_id, request.instance_id)
    turn = StreamsTurn(registry, group, now_ms)
    _remember_shutdown(turn, request)
    turn.remove([member])
    return turn.outcome(
        StreamsHeartbeatResult(StreamsGroupHeartbeatResponse(member_id=member.member_id, member_epoch=LEAVE_EPOCH))
    )


def _leave_for_a_while(registry: GroupRegistry, beat: StreamsHeartbeat, now_ms: int) -> Outcome[StreamsHeartbeatResult]:
    """Handles the heartbeat of a static member that leaves temporarily.

    The member keeps its tasks until its session expires, but tasks that it had to give up become free immediately.
    Source: docs/spec/streams-groups.md#s2-5, S1 and S2
    """
    request = beat.request
    group = streams_group(registry, request.group_id, f"Group {request.group_id} not found.")
    member = group.require_member(request.member_id, request.instance_id)
    turn = StreamsTurn(registry, group, now_ms)
    _remember_shutdown(turn, request)
    assigned = member.assigned
    active = {each: dict.fromkeys(partitions, 0) for each, partitions in assigned.active.items()}
    away = replace(member, epoch=TEMPORARY_LEAVE_EPOCH, assigned=replace(assigned, active=active), revoking=HeldTasks())
    turn.write(assignment_record(group.group_id, away))
    turn.disarm(TimerKind.REVOCATION, member.member_id)
    return turn.outcome(
        StreamsHeartbeatResult(
            StreamsGroupHeartbeatResponse(member_id=member.member_id, member_epoch=TEMPORARY_LEAVE_EPOCH)
        )
    )
