"""848: members of consumer groups (KIP-848), by group and member id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest
from odradek.testing.judge.exchanges import AnswerFate, Exchange, knows
from odradek.testing.judge.rule import Family, M, ProtocolRule, S, undecided
from odradek.testing.judge.rules.groups import GroupMembers, is_early
from odradek.testing.judge.rules.member_commits import CommitRules, check_commit, is_answered_stale
from odradek.testing.judge.scene import Scene

E = ErrorCode
JOINS, LEAVES, LEAVES_FOR_A_WHILE = 0, -1, -2
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
        "a heartbeat after one of these errors"),
    undecided("848.6", M,
        "The client commits revoked partitions, reports the revocation, and stops fetching from them", FETCHED),
    ProtocolRule("848.7", M, "Heartbeats and OffsetCommit v9+ have the epoch of the last response",
        "a heartbeat or a commit after an answer"),
    ProtocolRule("848.8", M, "After STALE_MEMBER_EPOCH the next commit has the current epoch",
        "a commit after a commit that was answered STALE_MEMBER_EPOCH"),
    ProtocolRule("848.9", M, "After a member has left, it sends nothing but a new join",
        "a heartbeat with which a member leaves"),
    ProtocolRule("848.10", M,
        "UNRELEASED_INSTANCE_ID, UNSUPPORTED_ASSIGNOR, INVALID_REQUEST and GROUP_AUTHORIZATION_FAILED end the member",
        "an answer with one of these errors"),
    ProtocolRule("848.11", M,
        "A response that arrives after the member has left has no effect: the member joins with epoch 0",
        "a heartbeat of a member that has left, after a late answer to an earlier heartbeat"),
    undecided("848.12", M,
        "If metadata does not know an assigned topic id yet, the client fetches from that topic later", HOLD),
    ProtocolRule("848.13", S, "The client sends no OffsetCommit while it holds no epoch",
        "an OffsetCommit v9+ of a member of a consumer group"),
)
# fmt: on
COMMITS: Final = CommitRules("848.13", "848.9", "848.8", "848.7")


@dataclass(slots=True)
class ConsumerMember:
    """A member of a consumer group. `epoch` comes from the last response without error, `by`; it is -1 if the member
    has none."""

    epoch: int = -1
    by: Exchange | None = None
    before: Exchange | None = None  # the member's last heartbeat
    interval_us: int = 0
    names: list[str] | None = None
    regex: str | None = None
    lost: Exchange | None = None
    left: Exchange | None = None
    final: Exchange | None = None
    stale: Exchange | None = None
    late: Exchange | None = None  # answered after the member had left
    is_assigned: bool = False  # the last response contained an assignment, which the member has to acknowledge


def beats(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    if exchange.version >= 1:
        scene.decide("848.2", bool(request.member_id), exchange, "no member id in v1")
    if not request.member_id:
        return
    scene.join(exchange.connection, "member", request.group_id, request.member_id)
    member, epoch = scene.at(ConsumerMember, request.group_id, request.member_id), request.member_epoch
    if epoch <= 0:
        _joins_or_leaves(exchange, request, scene)
    if member.final is not None and epoch >= 0 and knows(exchange, member.final):
        scene.broken("848.10", exchange, "the member continues after an error that ends it", member.final)
    elif member.lost is not None and (epoch <= 0 or knows(exchange, member.lost)):
        scene.decide("848.5", epoch <= 0, exchange, f"epoch {epoch} after the member was fenced", member.lost)
        member.lost = None
    elif member.left is not None and epoch > 0 and exchange.earliest_us > member.left.received_us:
        scene.broken("848.9", exchange, f"a heartbeat with epoch {epoch} after the member has left", member.left)
    elif epoch > 0 and member.by is not None and member.before is not None:
        _goes_on(exchange, request, member, member.by, member.before, scene)
    if member.late is not None and epoch >= 0 and (epoch == JOINS or knows(exchange, member.late)):
        scene.decide("848.11", epoch == JOINS, exchange, f"epoch {epoch} of a membership that has ended", member.late)
        member.late = None
    if epoch < 0:
        before = member.before
        if before is not None and before.fate is AnswerFate.ANSWERED and before.answered_us > exchange.earliest_us:
            member.late = before
        member.left, member.epoch = exchange, -1
        scene.kept("848.9", exchange)
        scene.at(GroupMembers, request.group_id).members.discard(request.member_id)
    elif epoch == JOINS:
        member.left = None
    member.before = exchange
    member.names = request.subscribed_topic_names or member.names
    member.regex = request.subscribed_topic_regex or member.regex


def _joins_or_leaves(exchange: Exchange, request: ConsumerGroupHeartbeatRequest, scene: Scene) -> None:
    if request.member_epoch < 0:
        is_known = request.member_epoch in (LEAVES, LEAVES_FOR_A_WHILE)
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


def _goes_on(
    exchange: Exchange,
    request: ConsumerGroupHeartbeatRequest,
    member: ConsumerMember,
    by: Exchange,
    before: Exchange,
    scene: Scene,
) -> None:
    if not knows(exchange, by) or by is not before:
        return
    epoch = request.member_epoch
    scene.decide("848.7", epoch == member.epoch, exchange, f"epoch {epoch}, but the last answer had {member.epoch}", by)
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    is_full = request.rebalance_timeout_ms != -1 and request.topic_partitions is not None
    is_again = (names is not None and names == member.names) or (regex is not None and regex == member.regex)
    if not is_full:
        scene.decide("848.3", not is_again, exchange, "the subscription is sent again, but has not changed", by)
    reports = names is not None or regex is not None or request.topic_partitions is not None
    passed_us = exchange.received_us - before.received_us
    if reports or member.is_assigned:
        scene.kept("848.4", exchange)
    # A member whose commit was refused since its last heartbeat may send one early, to learn its new epoch.
    elif member.interval_us and not (member.stale is not None and member.stale.answered_us > before.received_us):
        why = f"a heartbeat without news after {passed_us // 1000} ms; the interval is {member.interval_us // 1000} ms"
        scene.decide("848.4", not is_early(passed_us, member.interval_us), exchange, why, before)


def answered(exchange: Exchange, scene: Scene) -> None:
    request, answer = exchange.request, exchange.answer
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    if not isinstance(answer, ConsumerGroupHeartbeatResponse):
        scene.at(ConsumerMember, request.group_id, request.member_id).by = None
        return
    name = request.member_id or answer.member_id or ""
    member = scene.at(ConsumerMember, request.group_id, name)
    if member.left is not None and exchange.number < member.left.number:
        member.late = exchange
        return
    if answer.error_code == 0 and request.member_epoch >= 0:
        scene.join(exchange.connection, "member", request.group_id, name)
        scene.at(GroupMembers, request.group_id).members.add(name)
        member.epoch, member.by, member.interval_us = answer.member_epoch, exchange, answer.heartbeat_interval_ms * 1000
        member.is_assigned, member.before = answer.assignment is not None, member.before or exchange
        return
    member.by = None
    if answer.error_code in LOST:
        member.lost, member.epoch = exchange, -1
    elif answer.error_code in FINAL:
        member.final = exchange
        scene.kept("848.10", exchange)


def commits(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, OffsetCommitRequest)
    check_commit(exchange, scene, scene.at(ConsumerMember, request.group_id, request.member_id), COMMITS)


def commit_answered(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, OffsetCommitRequest)
    if exchange.fate is AnswerFate.ANSWERED and is_answered_stale(exchange):
        scene.at(ConsumerMember, request.group_id, request.member_id).stale = exchange


FAMILY = Family(
    RULES,
    sent={ApiKey.CONSUMER_GROUP_HEARTBEAT: (beats,), ApiKey.OFFSET_COMMIT: (commits,)},
    answered={ApiKey.CONSUMER_GROUP_HEARTBEAT: (answered,), ApiKey.OFFSET_COMMIT: (commit_answered,)},
)
