"""Rules STG.1 to STG.19, about the epochs, heartbeats and commits of streams group members (KIP-1071), which are
identified by group and member id."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequest
from odradek.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from odradek.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
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
    for code in (
        E.INVALID_REQUEST,
        E.GROUP_AUTHORIZATION_FAILED,
        E.GROUP_MAX_SIZE_REACHED,
        E.FENCED_INSTANCE_ID,
        E.UNRELEASED_INSTANCE_ID,
        E.STREAMS_INVALID_TOPOLOGY,
    )
)
SHUTDOWN: Final = 4  # the status SHUTDOWN_APPLICATION
# The statuses MISSING_SOURCE_TOPICS, INCORRECTLY_PARTITIONED_TOPICS, MISSING_INTERNAL_TOPICS and ASSIGNMENT_DELAYED. A
# group is not ready while its responses contain one of these statuses.
NOT_READY: Final = frozenset({1, 2, 3, 5})
SILENT: Final = 2  # number of heartbeat intervals after which a silent member has caused its own removal
NEEDS_CLOSING_DRIVER: Final = "a driver: only the application knows whether it closes or will come back"

# fmt: off
RULES = (
    ProtocolRule("STG.1", M,
        "A member joins with epoch 0, a rebalance timeout, a topology and three empty lists of tasks",
        "a heartbeat with epoch 0"),
    ProtocolRule("STG.2", M, "The client generates the member id; ids of groups, instances and racks are not blank",
        "a StreamsGroupHeartbeat"),
    ProtocolRule("STG.3", M, "A negative epoch is -1 or -2, and -2 has an instance id",
        "a heartbeat with a negative epoch"),
    ProtocolRule("STG.4", M, "A heartbeat has the epoch of the last response", "a heartbeat after an answer"),
    ProtocolRule("STG.5", M, "An OffsetCommit v9+ has the epoch of the last response", "a commit after an answer"),
    ProtocolRule("STG.6", S, "The client sends no OffsetCommit while it holds no epoch",
        "an OffsetCommit v9+ of a member of a streams group"),
    ProtocolRule("STG.7", M, "An OffsetFetch v9+ that names a member has the epoch of the last response",
        "an OffsetFetch v9+ with a member, after an answer"),
    ProtocolRule("STG.8", M, "After STALE_MEMBER_EPOCH the next commit has the current epoch",
        "a commit after a commit that failed with STALE_MEMBER_EPOCH"),
    ProtocolRule("STG.9", M, "After FENCED_MEMBER_EPOCH or UNKNOWN_MEMBER_ID the next heartbeat has epoch 0",
        "a heartbeat after FENCED_MEMBER_EPOCH or UNKNOWN_MEMBER_ID"),
    ProtocolRule("STG.10", M, "After a member has left, it sends nothing but a new join",
        "a heartbeat with which a member leaves"),
    ProtocolRule("STG.11", M,
        "A response that arrives after the member has left has no effect: the member joins with epoch 0",
        "a heartbeat of a member that has left, after a late answer to an earlier heartbeat"),
    ProtocolRule("STG.12", M,
        "INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID, "
        "GROUP_MAX_SIZE_REACHED and GROUP_AUTHORIZATION_FAILED end the member",
        "an answer with one of the errors that end the member"),
    ProtocolRule("STG.13", M, "An active member sends heartbeats often enough to keep its session",
        "a heartbeat after one that was answered without error"),
    ProtocolRule("STG.14", S,
        "The client keeps the heartbeat interval of the response, unless a heartbeat reports a change",
        "a heartbeat after one that was answered without error"),
    ProtocolRule("STG.15", S, "A member has at most one heartbeat in flight", "a heartbeat that does not leave"),
    ProtocolRule("STG.16", S, "A heartbeat has the endpoint information epoch of the last response",
        "a heartbeat after an answer"),
    ProtocolRule("STG.17", S, "A heartbeat leaves out the fields that have not changed",
        "a heartbeat after one that was answered without error"),
    ProtocolRule("STG.18", S, "After the status SHUTDOWN_APPLICATION a member leaves within its rebalance timeout",
        "a heartbeat after SHUTDOWN_APPLICATION"),
    undecided("STG.19", S, "A member that closes leaves with epoch -1, or with -2 if it is static and will return",
        NEEDS_CLOSING_DRIVER),
)
# fmt: on
COMMITS: Final = CommitRules("STG.6", "STG.10", "STG.8", "STG.5")


@dataclass(slots=True)
class JudgedStreamsMember:
    """A member of a streams group.

    epoch              the epoch in `last_response`, which is the last response without an error; -1 if there is none
    earlier_heartbeat  the heartbeat before `last_heartbeat`
    regular_heartbeat  the last heartbeat that was not early. The interval is measured from this heartbeat, because a
                       member need not restart its timer when it sends a heartbeat early. Kafka Streams 4.4.0 does not
                       restart it.
    late_heartbeat     a heartbeat answered after the member had left
    shutdown_response  the response that asked the application to shut down
    is_ready           whether the group is ready according to the last response
    may_acknowledge    whether the member may send a heartbeat early to acknowledge a response. It may do so if the
                       response contained tasks or changed whether the group is ready. Kafka Streams sends this
                       heartbeat once its tasks have started, which can take longer than the interval.
    fields             the last value of each field that a member may omit while the value remains unchanged
    """

    epoch: int = -1
    last_response: Exchange | None = None
    last_heartbeat: Exchange | None = None
    earlier_heartbeat: Exchange | None = None
    regular_heartbeat: Exchange | None = None
    interval_us: int = 0
    rebalance_us: int = 0
    endpoint_epoch: int = 0
    fencing: Exchange | None = None
    departure: Exchange | None = None
    fatal_response: Exchange | None = None
    stale_commit: Exchange | None = None
    late_heartbeat: Exchange | None = None
    shutdown_response: Exchange | None = None
    is_ready: bool = True
    may_acknowledge: bool = False
    fields: dict[str, object] = field(default_factory=dict)


def on_heartbeat(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, StreamsGroupHeartbeatRequest)
    _check_full_heartbeat(exchange, request, scene)
    if not request.member_id:
        return
    scene.join(exchange.connection, "member", request.group_id, request.member_id)
    member, epoch = scene.state(JudgedStreamsMember, request.group_id, request.member_id), request.member_epoch
    if epoch >= 0:
        _check_in_flight(exchange, member, scene)
        if member.fatal_response is not None and knows_response(exchange, member.fatal_response):
            scene.record_broken(
                "STG.12",
                exchange,
                "the member sends a heartbeat after an error that must end it",
                member.fatal_response,
            )
    if member.fencing is not None and (epoch <= 0 or knows_response(exchange, member.fencing)):
        scene.decide(
            "STG.9", epoch <= 0, exchange, f"the member sends epoch {epoch} after it was fenced", member.fencing
        )
        member.fencing = None
    elif member.departure is not None and epoch > 0 and exchange.earliest_us > member.departure.received_us:
        scene.record_broken(
            "STG.10", exchange, f"the member sends a heartbeat with epoch {epoch} after it has left", member.departure
        )
    elif (
        epoch > 0
        and member.last_response is not None
        and member.last_response is member.last_heartbeat
        and knows_response(exchange, member.last_response)
    ):
        _check_next_heartbeat(exchange, request, member, member.last_response, scene)
    if (
        member.late_heartbeat is not None
        and epoch >= 0
        and (epoch == JOIN_EPOCH or knows_response(exchange, member.late_heartbeat))
    ):
        scene.decide(
            "STG.11",
            epoch == JOIN_EPOCH,
            exchange,
            f"the request has epoch {epoch} of a membership that has ended",
            member.late_heartbeat,
        )
        member.late_heartbeat = None
    _check_shutdown(exchange, epoch, member, scene)
    if epoch < 0:
        _check_leave(exchange, request, member, scene)
    elif epoch == JOIN_EPOCH:
        member.departure = None
        member.fields.clear()
    member.earlier_heartbeat, member.last_heartbeat = member.last_heartbeat, exchange
    if epoch <= JOIN_EPOCH or not _is_soon(exchange, member):
        member.regular_heartbeat = exchange
    member.fields |= _unchanging_fields(request)
    if request.rebalance_timeout_ms >= 0:
        member.rebalance_us = request.rebalance_timeout_ms * 1000


def _check_full_heartbeat(exchange: Exchange, request: StreamsGroupHeartbeatRequest, scene: Scene) -> None:
    """Decides the rules that depend only on the request itself."""
    ids = {"group": request.group_id, "member": request.member_id}
    optional = {"instance": request.instance_id, "rack": request.rack_id}
    ids |= {name: value for name, value in optional.items() if value is not None}
    blank = [name for name, value in ids.items() if not value.strip()]
    scene.decide("STG.2", not blank, exchange, f"the id of the {' and of the '.join(blank)} is blank")
    epoch = request.member_epoch
    if epoch < 0:
        is_known = epoch == LEAVE_EPOCH or (epoch == TEMPORARY_LEAVE_EPOCH and request.instance_id is not None)
        why = f"epoch {epoch}{'' if epoch != TEMPORARY_LEAVE_EPOCH else ' without an instance id'}"
        scene.decide("STG.3", is_known, exchange, why)
    elif epoch == JOIN_EPOCH:
        is_there = {
            "RebalanceTimeoutMs": request.rebalance_timeout_ms != -1,
            "Topology": request.topology is not None,
            "empty ActiveTasks": request.active_tasks == [],
            "empty StandbyTasks": request.standby_tasks == [],
            "empty WarmupTasks": request.warmup_tasks == [],
        }
        missing = [name for name, is_fine in is_there.items() if not is_fine]
        scene.decide("STG.1", not missing, exchange, f"the member joins without {' and '.join(missing)}")


def _check_in_flight(exchange: Exchange, member: JudgedStreamsMember, scene: Scene) -> None:
    last_heartbeat = member.last_heartbeat
    if exchange.is_unsure:
        return
    is_flying = (
        last_heartbeat is not None
        and last_heartbeat.status is AnswerStatus.WAITING
        and last_heartbeat.connection.closed_us is None
    )
    is_behind = exchange.is_behind and last_heartbeat is not None and exchange.connection.previous is last_heartbeat
    scene.decide("STG.15", not (is_flying or is_behind), exchange, "another heartbeat is in flight", last_heartbeat)


def _unchanging_fields(request: StreamsGroupHeartbeatRequest) -> dict[str, object]:
    """Returns the heartbeat fields that a member may omit while their values remain unchanged."""
    given: dict[str, object] = {}
    if request.rebalance_timeout_ms != -1:
        given["RebalanceTimeoutMs"] = request.rebalance_timeout_ms
    if request.process_id is not None:
        given["ProcessId"] = request.process_id
    if request.user_endpoint is not None:
        given["UserEndpoint"] = (request.user_endpoint.host, request.user_endpoint.port)
    if request.client_tags is not None:
        given["ClientTags"] = frozenset((tag.key, tag.value) for tag in request.client_tags)
    return given


def _check_next_heartbeat(
    exchange: Exchange,
    request: StreamsGroupHeartbeatRequest,
    member: JudgedStreamsMember,
    last_response: Exchange,
    scene: Scene,
) -> None:
    """Decides the rules about a heartbeat from a member that has received the response to its last heartbeat."""
    epoch = request.member_epoch
    scene.decide(
        "STG.4",
        epoch == member.epoch,
        exchange,
        f"the heartbeat has epoch {epoch}, but the last answer had {member.epoch}",
        last_response,
    )
    reported = request.endpoint_information_epoch
    why = f"the heartbeat has endpoint information epoch {reported}, but the last answer had {member.endpoint_epoch}"
    scene.decide("STG.16", reported == member.endpoint_epoch, exchange, why, last_response)
    given = _unchanging_fields(request)
    again = [name for name, value in given.items() if name in member.fields and member.fields[name] == value]
    scene.decide(
        "STG.17", not again, exchange, f"the member sends {' and '.join(again)} again without a change", last_response
    )
    lists = (request.active_tasks, request.task_offsets, request.task_end_offsets)
    reports = request.shutdown_application or bool(given) or any(each is not None for each in lists)
    if reports or member.may_acknowledge:
        scene.record_kept("STG.14", exchange)
    # A member whose commit was rejected after its last heartbeat may send the next heartbeat early to learn its new
    # epoch.
    elif member.interval_us and not (
        member.stale_commit is not None and member.stale_commit.answered_us > last_response.received_us
    ):
        passed_ms = _since_regular_heartbeat_us(exchange, member) // 1000
        interval_ms = member.interval_us // 1000
        why = f"the member sends a heartbeat without a change after {passed_ms} ms; the interval is {interval_ms} ms"
        is_fine = not _is_soon(exchange, member)
        scene.decide("STG.14", is_fine, exchange, why, member.regular_heartbeat, last_response)
    if _is_soon(exchange, member):
        member.may_acknowledge = False


def _is_soon(exchange: Exchange, member: JudgedStreamsMember) -> bool:
    """Returns whether a member sent this heartbeat before the interval had passed."""
    return is_early(_since_regular_heartbeat_us(exchange, member), member.interval_us)


def _since_regular_heartbeat_us(exchange: Exchange, member: JudgedStreamsMember) -> int:
    regular = member.regular_heartbeat
    return exchange.received_us - (0 if regular is None else regular.earliest_us)


def _check_shutdown(exchange: Exchange, epoch: int, member: JudgedStreamsMember, scene: Scene) -> None:
    reported = member.shutdown_response
    if reported is None:
        return
    if epoch < 0:
        scene.record_kept("STG.18", exchange)
        member.shutdown_response = None
    elif epoch == JOIN_EPOCH:
        member.shutdown_response = None
    elif knows_response(exchange, reported) and 0 < member.rebalance_us < exchange.earliest_us - reported.answered_us:
        why = f"the member continues for longer than its rebalance timeout of {member.rebalance_us // 1000} ms"
        scene.record_broken("STG.18", exchange, why, reported)
        member.shutdown_response = None


def _check_leave(
    exchange: Exchange, request: StreamsGroupHeartbeatRequest, member: JudgedStreamsMember, scene: Scene
) -> None:
    last_heartbeat = member.last_heartbeat
    if (
        last_heartbeat is not None
        and last_heartbeat.status is AnswerStatus.ANSWERED
        and last_heartbeat.answered_us > exchange.earliest_us
    ):
        member.late_heartbeat = last_heartbeat
    member.departure, member.epoch = exchange, -1
    scene.record_kept("STG.10", exchange)
    scene.state(GroupMembers, request.group_id).members.discard(request.member_id)


def on_heartbeat_response(exchange: Exchange, scene: Scene) -> None:
    request, answer = exchange.request, exchange.answer
    assert isinstance(request, StreamsGroupHeartbeatRequest)
    member = scene.state(JudgedStreamsMember, request.group_id, request.member_id)
    if not isinstance(answer, StreamsGroupHeartbeatResponse):
        member.last_response = None
        return
    code = answer.error_code
    if member.departure is not None and exchange.number < member.departure.number:
        member.late_heartbeat = exchange
        return
    _check_session(exchange, code, member, scene)
    if code == 0 and request.member_epoch >= 0:
        scene.state(GroupMembers, request.group_id).members.add(request.member_id)
        member.epoch, member.last_response, member.interval_us = (
            answer.member_epoch,
            exchange,
            answer.heartbeat_interval_ms * 1000,
        )
        member.endpoint_epoch = answer.endpoint_information_epoch
        is_ready = not any(each.status_code in NOT_READY for each in answer.status or ())
        if answer.active_tasks is not None or is_ready != member.is_ready:
            member.may_acknowledge = True
        member.is_ready = is_ready
        if member.shutdown_response is None and any(each.status_code == SHUTDOWN for each in answer.status or ()):
            member.shutdown_response = exchange
        return
    member.last_response = None
    if code in LOST:
        member.fencing, member.epoch = exchange, -1
    elif code in FINAL:
        member.fatal_response = exchange
        scene.record_kept("STG.12", exchange)


def _check_session(exchange: Exchange, code: int, member: JudgedStreamsMember, scene: Scene) -> None:
    """Decides STG.13 from the response to a heartbeat: the member must not be silent until its session expires."""
    earlier, request = member.earlier_heartbeat, exchange.request
    assert isinstance(request, StreamsGroupHeartbeatRequest)
    if (
        exchange is not member.last_heartbeat
        or earlier is None
        or earlier is not member.last_response
        or request.member_epoch <= 0
    ):
        return
    silent_us = exchange.earliest_us - max(earlier.received_us, earlier.answered_us)
    if code == 0:
        scene.record_kept("STG.13", exchange)
    elif code == E.UNKNOWN_MEMBER_ID.value and 0 < SILENT * member.interval_us < silent_us:
        why = (
            f"the member sent no heartbeat for {silent_us // 1000} ms, although the interval is"
            f" {member.interval_us // 1000} ms"
        )
        scene.record_broken("STG.13", exchange, why, earlier)


def on_offset_commit(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, OffsetCommitRequest)
    member = scene.find_state(JudgedStreamsMember, request.group_id, request.member_id)
    if member is not None:
        check_commit(exchange, scene, member, COMMITS)


def on_offset_commit_response(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, OffsetCommitRequest)
    member = scene.find_state(JudgedStreamsMember, request.group_id, request.member_id)
    if member is not None and is_answered_stale(exchange):
        member.stale_commit = exchange


def on_offset_fetch(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, OffsetFetchRequest)
    for group in request.groups:
        member = scene.find_state(JudgedStreamsMember, group.group_id, group.member_id) if group.member_id else None
        if member is None or member.last_response is None or member.epoch < 0:
            continue
        if group.member_epoch == member.epoch or knows_response(exchange, member.last_response):
            why = f"the OffsetFetch has epoch {group.member_epoch}, but the last answer had {member.epoch}"
            scene.decide("STG.7", group.member_epoch == member.epoch, exchange, why, member.last_response)


FAMILY = Family(
    RULES,
    on_request={
        ApiKey.STREAMS_GROUP_HEARTBEAT: (on_heartbeat,),
        ApiKey.OFFSET_COMMIT: (on_offset_commit,),
        ApiKey.OFFSET_FETCH: (on_offset_fetch,),
    },
    on_response={
        ApiKey.STREAMS_GROUP_HEARTBEAT: (on_heartbeat_response,),
        ApiKey.OFFSET_COMMIT: (on_offset_commit_response,),
    },
)
