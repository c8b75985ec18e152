"""Rules 848, about members of consumer groups (KIP-848), which are identified by group and member id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest
from odradek.testing.judge.exchanges import AnswerStatus, Exchange, knows_response
from odradek.testing.judge.rule import Family, M, ProtocolRule, S, undecided
from odradek.testing.judge.rules.groups import GroupMembers, is_early
from odradek.testing.judge.rules.member_commits import CommitRules, check_commit, is_answered_stale
from odradek.testing.judge.scene import Scene

E = ErrorCode
JOIN_EPOCH, LEAVE_EPOCH, TEMPORARY_LEAVE_EPOCH = 0, -1, -2
LOST: Final = frozenset({E.FENCED_MEMBER_EPOCH.value, E.UNKNOWN_MEMBER_ID.value})
FINAL: Final = frozenset(
    code.value
    for code in (E.UNRELEASED_INSTANCE_ID, E.UNSUPPORTED_ASSIGNOR, E.INVALID_REQUEST, E.GROUP_AUTHORIZATION_FAILED)
)
FETCHED: Final = "two drivers in a group: a Fetch does not show which member sent it"
HOLD: Final = "a driver that holds an answer back, and reports what the application sees"

# fmt: off
RULES = (
    ProtocolRule("848.1", M, "A member joins with epoch 0 and with all fields; a negative epoch is -1 or -2",
        "a heartbeat that joins, or one with a negative epoch"),
    ProtocolRule("848.2", M, "In version 1 the client generates the member id, and keeps that id after a fencing",
        "a heartbeat v1"),
    ProtocolRule("848.3", S, "A heartbeat leaves out the fields that have not changed",
        "a heartbeat after one that was answered without error"),
    ProtocolRule("848.4", S,
        "The client keeps the heartbeat interval of the response, unless a heartbeat reports a change",
        "a heartbeat after one that was answered without error"),
    ProtocolRule("848.5", M, "After FENCED_MEMBER_EPOCH or UNKNOWN_MEMBER_ID the next heartbeat has epoch 0",
        "a heartbeat after FENCED_MEMBER_EPOCH or UNKNOWN_MEMBER_ID"),
    undecided("848.6", M,
        "The client commits revoked partitions, reports the revocation, and stops fetching from them", FETCHED),
    ProtocolRule("848.7", M, "Heartbeats and OffsetCommit v9+ have the epoch of the last response",
        "a heartbeat or a commit after an answer"),
    ProtocolRule("848.8", M, "After STALE_MEMBER_EPOCH the next commit has the current epoch",
        "a commit after a commit that failed with STALE_MEMBER_EPOCH"),
    ProtocolRule("848.9", M, "After a member has left, it sends nothing but a new join",
        "a heartbeat with which a member leaves"),
    ProtocolRule("848.10", M,
        "UNRELEASED_INSTANCE_ID, UNSUPPORTED_ASSIGNOR, INVALID_REQUEST and GROUP_AUTHORIZATION_FAILED end the member",
        "an answer with one of the errors that end the member"),
    ProtocolRule("848.11", M,
        "A response that arrives after the member has left has no effect: the member joins with epoch 0",
        "a heartbeat of a member that has left, after a late answer to an earlier heartbeat"),
    undecided("848.12", M,
        "If an assigned topic id is not in the metadata yet, the client fetches from that topic later", HOLD),
    ProtocolRule("848.13", S, "The client sends no OffsetCommit while it holds no epoch",
        "an OffsetCommit v9+ of a member of a consumer group"),
)
# fmt: on
COMMITS: Final = CommitRules("848.13", "848.9", "848.8", "848.7")


@dataclass(slots=True)
class ConsumerMember:
    """A member of a consumer group. `last_response` is the last response without an error, and `epoch` is the epoch in
    it, or -1 if there is no such response."""

    epoch: int = -1
    last_response: Exchange | None = None
    last_heartbeat: Exchange | None = None
    interval_us: int = 0
    topic_names: list[str] | None = None
    regex: str | None = None
    fencing: Exchange | None = None
    departure: Exchange | None = None
    fatal_response: Exchange | None = None
    stale_commit: Exchange | None = None
    late_heartbeat: Exchange | None = None  # a heartbeat answered after the member had left
    is_assigned: bool = False  # whether the last response contained an assignment that the member must acknowledge


def on_heartbeat(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    if exchange.version >= 1:
        scene.decide("848.2", bool(request.member_id), exchange, "no member id in v1")
    if not request.member_id:
        return
    scene.join(exchange.connection, "member", request.group_id, request.member_id)
    member, epoch = scene.state(ConsumerMember, request.group_id, request.member_id), request.member_epoch
    if epoch <= 0:
        _check_join_or_leave(exchange, request, scene)
    if member.fatal_response is not None and epoch >= 0 and knows_response(exchange, member.fatal_response):
        scene.record_broken(
            "848.10", exchange, "the member continues after an error that must end it", member.fatal_response
        )
    elif member.fencing is not None and (epoch <= 0 or knows_response(exchange, member.fencing)):
        scene.decide(
            "848.5", epoch <= 0, exchange, f"the member sends epoch {epoch} after it was fenced", member.fencing
        )
        member.fencing = None
    elif member.departure is not None and epoch > 0 and exchange.earliest_us > member.departure.received_us:
        scene.record_broken(
            "848.9", exchange, f"the member sends a heartbeat with epoch {epoch} after it has left", member.departure
        )
    elif epoch > 0 and member.last_response is not None and member.last_heartbeat is not None:
        _check_next_heartbeat(exchange, request, member, member.last_response, member.last_heartbeat, scene)
    if (
        member.late_heartbeat is not None
        and epoch >= 0
        and (epoch == JOIN_EPOCH or knows_response(exchange, member.late_heartbeat))
    ):
        scene.decide(
            "848.11",
            epoch == JOIN_EPOCH,
            exchange,
            f"the request has epoch {epoch} of a membership that has ended",
            member.late_heartbeat,
        )
        member.late_heartbeat = None
    if epoch < 0:
        last_heartbeat = member.last_heartbeat
        if (
            last_heartbeat is not None
            and last_heartbeat.status is AnswerStatus.ANSWERED
            and last_heartbeat.answered_us > exchange.earliest_us
        ):
            member.late_heartbeat = last_heartbeat
        member.departure, member.epoch = exchange, -1
        scene.record_kept("848.9", exchange)
        scene.state(GroupMembers, request.group_id).members.discard(request.member_id)
    elif epoch == JOIN_EPOCH:
        member.departure = None
    member.last_heartbeat = exchange
    member.topic_names = request.subscribed_topic_names or member.topic_names
    member.regex = request.subscribed_topic_regex or member.regex


def _check_join_or_leave(exchange: Exchange, request: ConsumerGroupHeartbeatRequest, scene: Scene) -> None:
    if request.member_epoch < 0:
        is_known = request.member_epoch in (LEAVE_EPOCH, TEMPORARY_LEAVE_EPOCH)
        scene.decide("848.1", is_known, exchange, f"epoch {request.member_epoch}")
        return
    missing = [
        name
        for name, is_there in (
            ("RebalanceTimeoutMs", request.rebalance_timeout_ms != -1),
            ("TopicPartitions", request.topic_partitions is not None),
            (
                "a subscription",
                request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
            ),
        )
        if not is_there
    ]
    scene.decide("848.1", not missing, exchange, f"the member joins without {' and '.join(missing)}")


def _check_next_heartbeat(
    exchange: Exchange,
    request: ConsumerGroupHeartbeatRequest,
    member: ConsumerMember,
    last_response: Exchange,
    last_heartbeat: Exchange,
    scene: Scene,
) -> None:
    if not knows_response(exchange, last_response) or last_response is not last_heartbeat:
        return
    epoch = request.member_epoch
    scene.decide(
        "848.7",
        epoch == member.epoch,
        exchange,
        f"the request has epoch {epoch}, but the last answer had {member.epoch}",
        last_response,
    )
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    is_full = request.rebalance_timeout_ms != -1 and request.topic_partitions is not None
    is_again = (names is not None and names == member.topic_names) or (regex is not None and regex == member.regex)
    if not is_full:
        scene.decide(
            "848.3",
            not is_again,
            exchange,
            "the member sends its subscription again, although it has not changed",
            last_response,
        )
    reports = names is not None or regex is not None or request.topic_partitions is not None
    passed_us = exchange.received_us - last_heartbeat.earliest_us
    if reports or member.is_assigned:
        scene.record_kept("848.4", exchange)
    # A member whose commit was rejected after its last heartbeat may send the next heartbeat early to learn its new
    # epoch.
    elif member.interval_us and not (
        member.stale_commit is not None and member.stale_commit.answered_us > last_heartbeat.received_us
    ):
        why = (
            f"the member sends a heartbeat without a change after {passed_us // 1000} ms, although the interval is"
            f" {member.interval_us // 1000} ms"
        )
        scene.decide("848.4", not is_early(passed_us, member.interval_us), exchange, why, last_heartbeat)


def on_heartbeat_response(exchange: Exchange, scene: Scene) -> None:
    request, answer = exchange.request, exchange.answer
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    if not isinstance(answer, ConsumerGroupHeartbeatResponse):
        scene.state(ConsumerMember, request.group_id, request.member_id).last_response = None
        return
    name = request.member_id or answer.member_id or ""
    member = scene.state(ConsumerMember, request.group_id, name)
    if member.departure is not None and exchange.number < member.departure.number:
        member.late_heartbeat = exchange
        return
    if answer.error_code == 0 and request.member_epoch >= 0:
        scene.join(exchange.connection, "member", request.group_id, name)
        scene.state(GroupMembers, request.group_id).members.add(name)
        member.epoch, member.last_response, member.interval_us = (
            answer.member_epoch,
            exchange,
            answer.heartbeat_interval_ms * 1000,
        )
        member.is_assigned, member.last_heartbeat = answer.assignment is not None, member.last_heartbeat or exchange
        return
    member.last_response = None
    if answer.error_code in LOST:
        member.fencing, member.epoch = exchange, -1
    elif answer.error_code in FINAL:
        member.fatal_response = exchange
        scene.record_kept("848.10", exchange)


def on_offset_commit(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, OffsetCommitRequest)
    check_commit(exchange, scene, scene.state(ConsumerMember, request.group_id, request.member_id), COMMITS)


def on_offset_commit_response(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, OffsetCommitRequest)
    if exchange.status is AnswerStatus.ANSWERED and is_answered_stale(exchange):
        scene.state(ConsumerMember, request.group_id, request.member_id).stale_commit = exchange


FAMILY = Family(
    RULES,
    on_request={ApiKey.CONSUMER_GROUP_HEARTBEAT: (on_heartbeat,), ApiKey.OFFSET_COMMIT: (on_offset_commit,)},
    on_response={
        ApiKey.CONSUMER_GROUP_HEARTBEAT: (on_heartbeat_response,),
        ApiKey.OFFSET_COMMIT: (on_offset_commit_response,),
    },
)
