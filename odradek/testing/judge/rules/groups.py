"""Rules GRP, about members of classic groups, which are identified by group and member id."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.join_group_request import JoinGroupRequest
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest
from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.testing.judge.exchanges import AnswerStatus, Exchange, knows_response
from odradek.testing.judge.rule import Family, M, ProtocolRule, S, undecided
from odradek.testing.judge.scene import Scene

E = ErrorCode
REBALANCE: Final = E.REBALANCE_IN_PROGRESS.value
UNKNOWN: Final = E.UNKNOWN_MEMBER_ID.value
ILLEGAL: Final = E.ILLEGAL_GENERATION.value
FENCED: Final = E.FENCED_INSTANCE_ID.value
ID_REQUIRED: Final = E.MEMBER_ID_REQUIRED.value
RETRIABLE: Final = frozenset({REBALANCE, E.COORDINATOR_LOAD_IN_PROGRESS.value})
MAX_COMMITS: Final = 10
MAX_UNCLAIMED_IDS: Final = 100
MAX_REASON_LENGTH: Final = 255
EARLY: Final = 0.8  # a heartbeat sent before this fraction of its interval has passed is early
NOISE_US: Final = 100_000
NEEDS_APPLICATION_VIEW: Final = "a driver: only the application sees whether the client waited or gave up"
ASSIGNMENT: Final = "two drivers in a group: a Fetch does not show which member sent it"

# fmt: off
RULES = (
    ProtocolRule("GRP.1", M, "After MEMBER_ID_REQUIRED the member joins with the id from the response",
        "an answer with MEMBER_ID_REQUIRED"),
    ProtocolRule("GRP.2", M, "An active member sends heartbeats often enough to keep its session",
        "a second request of a member after it has joined"),
    undecided("GRP.3", S,
        "A member that has not polled for max.poll.interval.ms leaves the group", "a driver that stops polling"),
    ProtocolRule("GRP.4", M,
        "After REBALANCE_IN_PROGRESS a member sends JoinGroup with the same id within the rebalance timeout",
        "a JoinGroup after a heartbeat was answered with REBALANCE_IN_PROGRESS, or the end of the rebalance timeout"),
    ProtocolRule("GRP.5", M, "After UNKNOWN_MEMBER_ID a member forgets its id and joins with an empty id",
        "a JoinGroup after UNKNOWN_MEMBER_ID"),
    ProtocolRule("GRP.6", M,
        "FENCED_INSTANCE_ID is final: the member does not continue", "an answer with FENCED_INSTANCE_ID"),
    undecided("GRP.7", M, "A static member does not leave the group when it closes",
        "a driver: KIP-1092 lets the application request it"),
    ProtocolRule("GRP.10", M, "A commit has the generation of the member",
        "an OffsetCommit of a member that has joined"),
    ProtocolRule("GRP.11", S, "A member sends at most ten commits between JoinGroup and SyncGroup",
        "an OffsetCommit during a rebalance"),
    undecided("GRP.12", M, "The client waits while the coordinator is loading", NEEDS_APPLICATION_VIEW),
    undecided("GRP.13", M, "The client retries a commit after a coordinator error", NEEDS_APPLICATION_VIEW),
    ProtocolRule("GRP.14", S, "A member has at most one JoinGroup or SyncGroup in flight", "a JoinGroup or SyncGroup"),
    ProtocolRule("GRP.15", S, "A reason has at most 255 characters", "a JoinGroup or LeaveGroup with a reason"),
    undecided("GRP.16", M, "The client does not fetch from a partition after its revocation", ASSIGNMENT),
    ProtocolRule("GRP.17", S, "The client does not discard the coordinator because of a retriable heartbeat error",
        "a request on the same connection after a retriable heartbeat error"),
    undecided("GRP.18", M, "If the number of partitions changes, the group's leader joins again",
        "a driver that adds partitions: a setting of the client determines how soon it reads metadata again"),
    ProtocolRule("GRP.19", S, "The client sends no heartbeat if it is not a member",
        "a Heartbeat, or an OffsetCommit without a member id"),
    ProtocolRule("GRP.20", S, "After ILLEGAL_GENERATION a member keeps its id and joins with that id",
        "a JoinGroup after ILLEGAL_GENERATION"),
)
# fmt: on


def is_early(passed_us: int, interval_us: int) -> bool:
    """Returns whether a heartbeat arrived clearly before its interval had passed.

    `passed_us` is the time from the earliest moment at which the client can have sent the first heartbeat to the
    arrival of the second one. If a busy machine delays the first heartbeat on its way to the broker, the second one
    seems early. A heartbeat is therefore allowed to be early by NOISE_US, which is more than a fifth of a short
    interval.
    """
    return passed_us < min(EARLY * interval_us, interval_us - NOISE_US)


@dataclass(slots=True)
class GroupMembers:
    """The members that have joined a group and not left it, according to requests and responses."""

    members: set[str] = field(default_factory=set)


@dataclass(slots=True)
class ClassicMember:
    """A member of a classic group. `join_response` is the last response to JoinGroup, and `generation` is the
    generation in it."""

    join_response: Exchange | None = None
    generation: int = -1
    session_us: int = 0
    rebalance_us: int = 0
    last_request: Exchange | None = None
    rebalancing: Exchange | None = None  # the last REBALANCE_IN_PROGRESS response, until the member reacts to it
    fencing: Exchange | None = None
    commits: int = 0
    joining: Exchange | None = None
    syncing: Exchange | None = None


@dataclass(slots=True)
class GroupOnConnection:
    """The responses about a group on one connection, which several members can share.

    assigned_ids   responses with MEMBER_ID_REQUIRED, keyed by the member id in them
    unclaimed_ids  the assigned ids that the client need not use, because the response may have crossed another
                   JoinGroup
    rejections     responses with UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION and their error codes, keyed by member id
    members        ids of the members that have joined on this connection
    """

    assigned_ids: dict[str, Exchange] = field(default_factory=dict)
    unclaimed_ids: set[str] = field(default_factory=set)
    rejections: dict[str, tuple[Exchange, int]] = field(default_factory=dict)
    members: set[str] = field(default_factory=set)
    heartbeat_failed: Exchange | None = None

    def belongs_to_another(self, name: str, member: str) -> bool:
        """Returns whether a JoinGroup with the id `name` may come from a member on this connection other than
        `member`."""
        others = (self.members | self.unclaimed_ids | self.assigned_ids.keys() | self.rejections.keys()) - {member}
        return name in others if name else bool(others)


def member_of(exchange: Exchange) -> tuple[str, str] | None:
    """Returns a request's group and member id, or None if the request has no member id."""
    request = exchange.request
    if isinstance(request, JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | OffsetCommitRequest):
        return (request.group_id, request.member_id) if request.member_id else None
    return None


def on_member_request(exchange: Exchange, scene: Scene) -> None:
    member_key = member_of(exchange)
    if member_key is None:
        return
    scene.join(exchange.connection, "member", *member_key)
    member = scene.state(ClassicMember, *member_key)
    before = member.last_request
    if (
        before is not None
        and member.session_us
        and before.status is AnswerStatus.ANSWERED
        and exchange.api is not ApiKey.JOIN_GROUP
    ):
        gap_us = exchange.earliest_us - max(before.received_us, before.answered_us)
        why = (
            f"the member sent no request for {gap_us // 1000} ms, although its session timeout is"
            f" {member.session_us // 1000} ms"
        )
        scene.decide("GRP.2", gap_us <= member.session_us, exchange, why, before)
    if member.fencing is not None and knows_response(exchange, member.fencing):
        scene.record_broken("GRP.6", exchange, "the member continues after FENCED_INSTANCE_ID", member.fencing)
    member.last_request = exchange
    group_here = scene.state(GroupOnConnection, exchange.connection.number, member_key[0])
    if group_here.heartbeat_failed is not None and knows_response(exchange, group_here.heartbeat_failed):
        scene.record_kept("GRP.17", exchange)
        group_here.heartbeat_failed = None
    if exchange.api in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP):
        flying = [each for each in (member.joining, member.syncing) if each is not None and _is_open(each)]
        scene.decide("GRP.14", not flying, exchange, "another JoinGroup or SyncGroup is in flight", *flying)


def _is_open(exchange: Exchange) -> bool:
    return exchange.status is AnswerStatus.WAITING and exchange.connection.closed_us is None


def on_join_group(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, JoinGroupRequest)
    group_here = scene.state(GroupOnConnection, exchange.connection.number, request.group_id)
    _check_member_id(exchange, request.member_id, group_here, scene)
    if not _check_after_rejection(exchange, request.member_id, group_here, scene):
        _check_after_rebalance(exchange, request, group_here, scene)
    if request.member_id:
        member = scene.state(ClassicMember, request.group_id, request.member_id)
        member.joining, member.commits, member.rebalancing = exchange, 0, None
    if exchange.version >= 8 and request.reason is not None:
        _check_reason(exchange, request.reason, scene)


def _check_member_id(exchange: Exchange, name: str, group_here: GroupOnConnection, scene: Scene) -> None:
    """Decides GRP.1 for a JoinGroup request with the member id `name`."""
    if group_here.assigned_ids.pop(name, None) is not None or name in group_here.unclaimed_ids:
        group_here.unclaimed_ids.discard(name)
        scene.record_kept("GRP.1", exchange)
        return
    for expected, on_response in list(group_here.assigned_ids.items()):
        if group_here.belongs_to_another(name, expected):
            continue
        if knows_response(exchange, on_response):
            scene.record_broken(
                "GRP.1", exchange, f"the member joins with the id {name!r}, but was given {expected!r}", on_response
            )
        elif len(group_here.unclaimed_ids) < MAX_UNCLAIMED_IDS:
            group_here.unclaimed_ids.add(expected)
        del group_here.assigned_ids[expected]


def _check_after_rejection(exchange: Exchange, name: str, group_here: GroupOnConnection, scene: Scene) -> bool:
    """Decides GRP.5 or GRP.20 for a JoinGroup request with the member id `name`. Returns whether the request reacted to
    a rejection."""
    for member, (rejected, code) in list(group_here.rejections.items()):
        begins_anew = code == UNKNOWN and not name  # every member may join again with an empty id
        if member != name and not begins_anew and group_here.belongs_to_another(name, member):
            continue
        del group_here.rejections[member]
        if knows_response(exchange, rejected):
            rule, is_fine = ("GRP.5", name != member) if code == UNKNOWN else ("GRP.20", name == member)
            why = f"the member joins with the id {name!r} after {ErrorCode(code).name} to {member!r}"
            scene.decide(rule, is_fine, exchange, why, rejected)
            return True
    return False


def _check_after_rebalance(
    exchange: Exchange, request: JoinGroupRequest, group_here: GroupOnConnection, scene: Scene
) -> None:
    """Decides GRP.4 for a JoinGroup request."""
    name = request.member_id
    for each in list(group_here.members):
        member = scene.state(ClassicMember, request.group_id, each)
        if member.rebalancing is None or (each != name and group_here.belongs_to_another(name, each)):
            continue
        if knows_response(exchange, member.rebalancing):
            why = f"the member joins with the id {name!r}, but had the id {each!r}"
            scene.decide("GRP.4", name == each, exchange, why, member.rebalancing)
        member.rebalancing = None
        if each != name:
            group_here.members.discard(each)


def _check_reason(exchange: Exchange, reason: str, scene: Scene) -> None:
    scene.decide("GRP.15", len(reason) <= MAX_REASON_LENGTH, exchange, f"the reason has {len(reason)} characters")


def on_leave_group(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, LeaveGroupRequest)
    left = [request.member_id] if exchange.version < 3 else [each.member_id for each in request.members]
    group = scene.state(GroupMembers, request.group_id)
    for name in left:
        group.members.discard(name)
        member = scene.state(ClassicMember, request.group_id, name)
        member.last_request = member.rebalancing = None
    group_here = scene.state(GroupOnConnection, exchange.connection.number, request.group_id)
    for name in left:
        group_here.members.discard(name)
        group_here.rejections.pop(name, None)
        group_here.assigned_ids.pop(name, None)
        group_here.unclaimed_ids.discard(name)
    for each in request.members:
        if exchange.version >= 5 and each.reason is not None:
            _check_reason(exchange, each.reason, scene)


def on_join_group_response(exchange: Exchange, scene: Scene) -> None:
    request, answer = exchange.request, exchange.answer
    assert isinstance(request, JoinGroupRequest)
    if not isinstance(answer, JoinGroupResponse):
        return
    group_here = scene.state(GroupOnConnection, exchange.connection.number, request.group_id)
    if answer.error_code == ID_REQUIRED:
        group_here.assigned_ids[answer.member_id] = exchange
    elif answer.error_code == 0:
        scene.join(exchange.connection, "member", request.group_id, answer.member_id)
        scene.state(GroupMembers, request.group_id).members.add(answer.member_id)
        member = scene.state(ClassicMember, request.group_id, answer.member_id)
        member.join_response, member.generation, member.last_request = exchange, answer.generation_id, exchange
        member.session_us, member.rebalance_us = request.session_timeout_ms * 1000, request.rebalance_timeout_ms * 1000
        group_here.members.add(answer.member_id)
    else:
        _note_rejection(exchange, request.group_id, request.member_id, answer.error_code, scene)


def on_response(exchange: Exchange, scene: Scene) -> None:
    """Examines the responses to Heartbeat, SyncGroup and OffsetCommit."""
    member_key, answer = member_of(exchange), exchange.answer
    if member_key is None:
        return
    codes: set[int] = set()
    if isinstance(answer, HeartbeatResponse | SyncGroupResponse):
        codes.add(answer.error_code)
    elif isinstance(answer, OffsetCommitResponse):
        codes |= {partition.error_code for topic in answer.topics for partition in topic.partitions}
    if isinstance(answer, HeartbeatResponse) and answer.error_code in RETRIABLE:
        scene.state(GroupOnConnection, exchange.connection.number, member_key[0]).heartbeat_failed = exchange
    if isinstance(answer, HeartbeatResponse) and answer.error_code == REBALANCE:
        _expect_join(exchange, member_key, scene)
    for code in codes & {UNKNOWN, ILLEGAL, FENCED}:
        _note_rejection(exchange, *member_key, code, scene)


def _note_rejection(exchange: Exchange, group: str, name: str, code: int, scene: Scene) -> None:
    if not name:
        return
    member = scene.state(ClassicMember, group, name)
    if code == FENCED:
        member.fencing = exchange
        scene.record_kept("GRP.6", exchange)
    elif code in (UNKNOWN, ILLEGAL):
        is_of_now = not isinstance(exchange.request, HeartbeatRequest | SyncGroupRequest | OffsetCommitRequest) or (
            _generation(exchange) == member.generation
        )
        if is_of_now:
            group_here = scene.state(GroupOnConnection, exchange.connection.number, group)
            group_here.rejections[name] = exchange, code
            if code == UNKNOWN:
                group_here.members.discard(name)
        if code == UNKNOWN:
            scene.state(GroupMembers, group).members.discard(name)
        member.last_request = member.rebalancing = None


def _generation(exchange: Exchange) -> int:
    request = exchange.request
    if isinstance(request, HeartbeatRequest | SyncGroupRequest):
        return request.generation_id
    return request.generation_id_or_member_epoch if isinstance(request, OffsetCommitRequest) else -1


def _expect_join(exchange: Exchange, member_key: tuple[str, str], scene: Scene) -> None:
    member = scene.state(ClassicMember, *member_key)
    if member.rebalancing is not None or _generation(exchange) != member.generation or not member.rebalance_us:
        return
    member.rebalancing = exchange

    def check_join() -> None:
        last = member.last_request
        until_us = exchange.answered_us + member.rebalance_us
        if member.rebalancing is exchange and last is not None and last.earliest_us > until_us:
            why = f"the member sent no JoinGroup within the rebalance timeout of {member.rebalance_us // 1000} ms"
            scene.record_broken("GRP.4", last, why, exchange)

    scene.run_later(member.rebalance_us + member.session_us, check_join)


def on_offset_commit(exchange: Exchange, scene: Scene) -> None:
    request, member_key = exchange.request, member_of(exchange)
    assert isinstance(request, OffsetCommitRequest)
    if member_key is None:
        scene.record_kept("GRP.19", exchange)
        return
    member = scene.state(ClassicMember, *member_key)
    if member.join_response is None:
        return
    generation = request.generation_id_or_member_epoch
    if generation == member.generation or knows_response(exchange, member.join_response):
        why = f"the commit has generation {generation}, but the member has {member.generation}"
        scene.decide("GRP.10", generation == member.generation, exchange, why, member.join_response)
    if member.joining is not None:
        member.commits += 1
        why = f"the member sent {member.commits} commits during one rebalance"
        scene.decide("GRP.11", member.commits <= MAX_COMMITS, exchange, why, member.joining)


def on_sync_group(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, SyncGroupRequest)
    member = scene.state(ClassicMember, request.group_id, request.member_id)
    member.joining, member.syncing = None, exchange


def on_heartbeat(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, HeartbeatRequest)
    is_member = bool(request.member_id) and request.generation_id >= 0
    why = f"a heartbeat names member {request.member_id!r} and generation {request.generation_id}"
    scene.decide("GRP.19", is_member, exchange, why)


def on_find_coordinator(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, FindCoordinatorRequest)
    if request.key_type != 0:
        return
    for group in request.coordinator_keys or [request.key]:
        group_here = scene.state(GroupOnConnection, exchange.connection.number, group)
        if group_here.heartbeat_failed is not None and knows_response(exchange, group_here.heartbeat_failed):
            why = "the client sent FindCoordinator after a retriable error of Heartbeat"
            scene.record_broken("GRP.17", exchange, why, group_here.heartbeat_failed)
            group_here.heartbeat_failed = None


FAMILY = Family(
    RULES,
    on_request={
        ApiKey.JOIN_GROUP: (on_member_request, on_join_group),
        ApiKey.SYNC_GROUP: (on_member_request, on_sync_group),
        ApiKey.HEARTBEAT: (on_member_request, on_heartbeat),
        ApiKey.OFFSET_COMMIT: (on_member_request, on_offset_commit),
        ApiKey.LEAVE_GROUP: (on_leave_group,),
        ApiKey.FIND_COORDINATOR: (on_find_coordinator,),
    },
    on_response={
        ApiKey.JOIN_GROUP: (on_join_group_response,),
        ApiKey.SYNC_GROUP: (on_response,),
        ApiKey.HEARTBEAT: (on_response,),
        ApiKey.OFFSET_COMMIT: (on_response,),
    },
)
