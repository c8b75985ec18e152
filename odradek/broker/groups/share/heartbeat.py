"""Handles ShareGroupHeartbeat requests, which members send to join a group, to stay in it and to leave it. Source:
docs/spec/share-groups.md#s2-1.

A heartbeat is handled in these steps: identify the member, advance the group's epoch if needed, compute a new target if
one is due, assign partitions to the member, and determine which partitions still need share state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from odradek.broker.groups.common.outcome import Outcome
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.broker.groups.share.assignor import NAME
from odradek.broker.groups.share.group import ShareGroup
from odradek.broker.groups.share.records import JOIN_EPOCH, LEAVE_EPOCH, ShareMember, assignment_record, member_record
from odradek.broker.groups.share.state import StateRequest, begin_state
from odradek.broker.groups.share.turn import ShareTurn
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages import share_group_describe_response as described
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from odradek.protocol.messages.share_group_heartbeat_response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """A valid ShareGroupHeartbeat request and its sender."""

    request: ShareGroupHeartbeatRequest
    client_id: str
    client_host: str


class ShareHeartbeatResult(NamedTuple):
    """The result of a heartbeat. `state` is a request that must be sent to the share coordinator once the records of
    the decision have been written."""

    response: ShareGroupHeartbeatResponse
    state: StateRequest | None = None


def check_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Raises INVALID_REQUEST if the request is invalid for every group."""

    def refuse(what: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REQUEST, what)

    if not request.group_id.strip():
        raise refuse("GroupId can't be empty.")
    if not request.member_id.strip():
        raise refuse("MemberId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise refuse("RackId can't be empty.")
    if request.member_epoch < LEAVE_EPOCH:
        raise refuse(f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -1.")
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        raise refuse("SubscribedTopicNames must be set in first request.")


def heartbeat(registry: GroupRegistry, beat: ShareHeartbeat, now_ms: int) -> Outcome[ShareHeartbeatResult]:
    request = beat.request
    group_id, member_id, epoch = request.group_id, request.member_id, request.member_epoch
    group = registry.groups.get(group_id)
    if group is None and epoch == JOIN_EPOCH:
        group, is_new = ShareGroup(group_id), True
        group.epoch += registry.first_epoch()
    else:
        group, is_new = share_group(registry, group_id), False
    member = group.members.get(member_id)
    if member is None:
        if epoch != JOIN_EPOCH:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")
        if len(group.members) >= registry.config.share.max_size:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, "The share group has reached its maximum capacity.")
        member = ShareMember(member_id)
    turn = ShareTurn(registry, group, now_ms, is_new=is_new)
    if epoch == LEAVE_EPOCH:
        turn.remove([member])
        return turn.outcome(
            ShareHeartbeatResult(ShareGroupHeartbeatResponse(member_id=member_id, member_epoch=LEAVE_EPOCH))
        )
    if epoch != JOIN_EPOCH and epoch not in (member.epoch, member.previous_epoch):
        what = f"The share group member has epoch {member.epoch}, not {epoch}; it must rejoin."
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, what)
    return _answer_member(turn, beat, member)


def share_group(registry: GroupRegistry, group_id: str) -> ShareGroup:
    """Returns the share group with this id. Raises GROUP_ID_NOT_FOUND if the group does not exist or has another
    type."""
    group = registry.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
    return group


def _answer_member(turn: ShareTurn, beat: ShareHeartbeat, before: ShareMember) -> Outcome[ShareHeartbeatResult]:
    request, group_id = beat.request, turn.group.group_id
    wanting = replace(
        before,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        topics=before.topics if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names),
    )
    if wanting != before or before.member_id not in turn.group.members:
        turn.write(member_record(group_id, wanting))
    if wanting.topics != before.topics:
        turn.bump_epoch()
    elif not turn.is_settled:
        turn.follow_topics()
    if not turn.is_settled:
        turn.follow_group_epoch()
    member = _brought_up(turn, wanting)
    state = None
    if not turn.is_settled:
        state = begin_state(turn)
        turn.settle()
    turn.begin_session(member)
    response = ShareGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=turn.cluster.group_setting(group_id, "share.heartbeat.interval.ms"),
    )
    is_full = request.member_epoch == JOIN_EPOCH or request.subscribed_topic_names is not None
    if is_full or member.assigned != before.assigned:
        response.assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in member.assigned.items()
            ]
        )
    return turn.outcome(ShareHeartbeatResult(response, state))


def _brought_up(turn: ShareTurn, member: ShareMember) -> ShareMember:
    """Gives the member its complete target assignment immediately, except for topics that do not exist or that the
    member does not subscribe to."""
    group = turn.group
    ids = {topic.topic_id for name in member.topics if (topic := turn.cluster.topic(name)) is not None}
    target = {each: indexes for each, indexes in group.target_of(member.member_id).items() if each in ids}
    previous = member.epoch if member.epoch != group.assignment_epoch else member.previous_epoch
    brought_up = replace(member, epoch=group.assignment_epoch, previous_epoch=previous, assigned=target)
    if brought_up != member:
        turn.write(assignment_record(group.group_id, brought_up))
    return brought_up


def describe_share_group(registry: GroupRegistry, group_id: str) -> described.DescribedGroup:
    """Describes a share group with its members' current assignments, not their targets. Raises GROUP_ID_NOT_FOUND if
    the group does not exist or has another type."""
    group = share_group(registry, group_id)
    return described.DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=NAME,
        members=[
            described.Member(
                member_id=member.member_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.topics),
                assignment=described.Assignment(
                    topic_partitions=[
                        described.TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(indexes))
                        for topic_id, indexes in member.assigned.items()
                        if (topic := registry.cluster.topic_of_id(topic_id)) is not None
                    ]
                ),
            )
            for member in group.members.values()
        ],
    )
