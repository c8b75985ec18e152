"""Rules SHR, about the sessions, acknowledgements and heartbeats of share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import share_acknowledge_request, share_fetch_request
from odradek.protocol.messages.share_acknowledge_request import ShareAcknowledgeRequest
from odradek.protocol.messages.share_acknowledge_response import ShareAcknowledgeResponse
from odradek.protocol.messages.share_fetch_request import ShareFetchRequest
from odradek.protocol.messages.share_fetch_response import ShareFetchResponse
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from odradek.protocol.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from odradek.protocol.struct import Message
from odradek.testing.judge.exchanges import AnswerStatus, Exchange, knows_response
from odradek.testing.judge.rule import Family, M, ProtocolRule, S, undecided
from odradek.testing.judge.scene import Scene

E = ErrorCode
SESSION_ERRORS: Final = frozenset({E.SHARE_SESSION_NOT_FOUND.value, E.INVALID_SHARE_SESSION_EPOCH.value})
LOST: Final = frozenset({E.FENCED_MEMBER_EPOCH.value, E.UNKNOWN_MEMBER_ID.value})
LIMIT: Final = E.SHARE_SESSION_LIMIT_REACHED.value
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
WRAP: Final = 2**31 - 1
RENEW: Final = 4
AT_ONCE_US: Final = 5_000
MAX_RANGES: Final = 1_000
DRIVER: Final = "a driver that holds or cuts an answer, and reports what the application sees"
NODES: Final = "a driver that moves leaders or coordinators"
Batches: TypeAlias = (
    "list[share_fetch_request.AcknowledgementBatch] | list[share_acknowledge_request.AcknowledgementBatch]"
)

# fmt: off
RULES = (
    ProtocolRule("SHR.1", M,
        "Epoch 0 opens a share session, each later epoch is one higher, 1 follows 2^31 - 1, and -1 closes it",
        "a request of a session after one that was answered without error"),
    ProtocolRule("SHR.2", M,
        "The request that opens a session has no acknowledgements; ShareAcknowledge never opens a session",
        "a ShareFetch with epoch 0, or a ShareAcknowledge"),
    ProtocolRule("SHR.3", M,
        "After SHARE_SESSION_NOT_FOUND or INVALID_SHARE_SESSION_EPOCH the client opens a new session",
        "a request after SHARE_SESSION_NOT_FOUND or INVALID_SHARE_SESSION_EPOCH"),
    ProtocolRule("SHR.4", M,
        "Acknowledgement batches ascend without overlap; types are 0 to 3 (4 from v2), one per batch or one per offset",
        "a request with acknowledgements"),
    ProtocolRule("SHR.5", M, "A member acknowledges only records that it has acquired and not acknowledged yet",
        "a request with acknowledgements, from a member whose acquisitions are in the recording"),
    undecided("SHR.6", M, "A member acknowledges or releases each acquired record before it closes", DRIVER),
    ProtocolRule("SHR.7", M,
        "A share session has at most one request in flight per node", "a request of a share session"),
    undecided("SHR.8", M,
        "If the client names a partition only to acknowledge records, it removes the partition from the session",
        DRIVER),
    undecided("SHR.9", M, "Acknowledgements that the application makes during a fetch are sent later", DRIVER),
    undecided("SHR.10", M, "If the connection is lost, the request in flight is completed", DRIVER),
    undecided("SHR.11", M, "After a change of leader, acknowledgements fail or go to the new leader", NODES),
    ProtocolRule("SHR.12", M,
        "Heartbeats have the epoch of the last response, and 0 after FENCED_MEMBER_EPOCH or UNKNOWN_MEMBER_ID",
        "a ShareGroupHeartbeat after an answer"),
    undecided("SHR.13", S, "After a fetch error, the client reads metadata and waits before it retries", NODES),
    undecided("SHR.14", S, "The client sends requests about offsets of share groups to the coordinator", NODES),
    ProtocolRule("SHR.15", S,
        "After SHARE_SESSION_LIMIT_REACHED the client waits before it retries",
        "a request after SHARE_SESSION_LIMIT_REACHED"),
)
# fmt: on


@dataclass(slots=True)
class ShareSession:
    """A member's share session on one connection.

    epoch        the epoch of `last_request`
    is_sure      whether the broker and the client agree on the epoch
    acquired     the first and last offsets of acquired ranges, keyed by topic id and partition
    is_followed  whether `acquired` is known to be correct, so that acknowledgements can be judged
    """

    epoch: int = -1
    last_request: Exchange | None = None
    is_sure: bool = False
    session_error: Exchange | None = None
    session_limit: Exchange | None = None
    acquired: dict[tuple[bytes, int], dict[int, int]] = field(default_factory=dict)
    is_followed: bool = True


@dataclass(slots=True)
class ShareMember:
    epoch: int = -1
    last_response: Exchange | None = None
    fencing: Exchange | None = None


def _acknowledged(request: ShareFetchRequest | ShareAcknowledgeRequest) -> Iterator[tuple[tuple[bytes, int], Batches]]:
    for topic in request.topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                yield (topic.topic_id, partition.partition_index), partition.acknowledgement_batches


def on_share_request(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, ShareFetchRequest | ShareAcknowledgeRequest)
    group, name = request.group_id or "", request.member_id or ""
    scene.join(exchange.connection, "member", group, name)
    session = scene.state(ShareSession, exchange.connection.number, group, name)
    epoch, last = request.share_session_epoch, session.last_request
    if session.session_error is not None and (
        epoch in (INITIAL_EPOCH, FINAL_EPOCH) or knows_response(exchange, session.session_error)
    ):
        scene.decide(
            "SHR.3",
            epoch in (INITIAL_EPOCH, FINAL_EPOCH),
            exchange,
            f"the request has epoch {epoch} of a lost session",
            session.session_error,
        )
        session.session_error = None
    elif last is not None and session.is_sure and epoch > 0:
        expected = 1 if session.epoch == WRAP else session.epoch + 1
        scene.decide("SHR.1", epoch == expected, exchange, f"the request has epoch {epoch} instead of {expected}", last)
    if (
        session.session_limit is not None
        and knows_response(exchange, session.session_limit)
        and session.session_limit.written_us is not None
    ):
        waited_us = exchange.received_us - session.session_limit.answered_us
        why = f"the client repeated the request after only {waited_us / 1000} ms"
        scene.decide("SHR.15", waited_us >= AT_ONCE_US, exchange, why, session.session_limit)
        session.session_limit = None
    is_flying = last is not None and last.status is AnswerStatus.WAITING
    is_behind = exchange.is_behind and exchange.connection.previous is last and last is not None
    if not exchange.is_unsure:
        scene.decide("SHR.7", not (is_flying or is_behind), exchange, "another request is in flight", last)
    acknowledged = list(_acknowledged(request))
    if epoch == INITIAL_EPOCH or isinstance(request, ShareAcknowledgeRequest):
        is_fine = epoch != INITIAL_EPOCH or (isinstance(request, ShareFetchRequest) and not acknowledged)
        scene.decide("SHR.2", is_fine, exchange, "a request with epoch 0 contains acknowledgements", last)
    for place, found in acknowledged:
        scene.decide("SHR.4", (why_not := _batches_violation(found, exchange)) is None, exchange, why_not or "")
        if session.is_followed and session.acquired:
            _check_acknowledgements(exchange, session, place, found, scene)
    if epoch == INITIAL_EPOCH:
        session.acquired.clear()
        session.is_followed = True
    session.epoch, session.last_request, session.is_sure = epoch, exchange, False


def _batches_violation(found: Batches, exchange: Exchange) -> str | None:
    end = -1
    most = RENEW if exchange.version >= 2 else RENEW - 1
    for batch in found:
        count = batch.last_offset - batch.first_offset + 1
        if batch.first_offset <= end or count < 1:
            return f"offsets {batch.first_offset} to {batch.last_offset} follow offset {end}"
        if len(batch.acknowledge_types) not in (1, count):
            return f"a batch has {len(batch.acknowledge_types)} types for {count} offsets"
        if not all(0 <= each <= most for each in batch.acknowledge_types):
            return f"types {batch.acknowledge_types}"
        end = batch.last_offset
    return None


def _check_acknowledgements(
    exchange: Exchange, session: ShareSession, place: tuple[bytes, int], found: Batches, scene: Scene
) -> None:
    """Decides SHR.5 for the acknowledgements of one partition. Removes the acknowledged offsets from the acquired ones,
    unless the acknowledgement renews them."""
    acquired = session.acquired.setdefault(place, {})
    for batch in found:
        missing = batch.first_offset
        for start, last in sorted(acquired.items()):
            if start <= missing <= last:
                missing = last + 1
        scene.decide(
            "SHR.5",
            missing > batch.last_offset,
            exchange,
            f"the member acknowledges offset {missing}, which it has not acquired",
            session.last_request,
        )
        types = batch.acknowledge_types
        if len(types) == 1:
            if types[0] != RENEW:
                _remove_offsets(acquired, batch.first_offset, batch.last_offset)
            continue
        for offset, kind in enumerate(types, batch.first_offset):
            if kind != RENEW:
                _remove_offsets(acquired, offset, offset)
    if len(acquired) > MAX_RANGES:
        session.is_followed = False


def _remove_offsets(acquired: dict[int, int], first: int, end: int) -> None:
    for start, last in list(acquired.items()):
        if last < first or start > end:
            continue
        del acquired[start]
        if start < first:
            acquired[start] = first - 1
        if last > end:
            acquired[end + 1] = last


def _has_refused(answer: Message | None) -> bool:
    """Returns whether the broker rejected the acknowledgements for any partition. Also returns True if the response is
    missing or has another type."""
    if isinstance(answer, ShareFetchResponse):
        return any(each.acknowledge_error_code for topic in answer.responses for each in topic.partitions)
    if isinstance(answer, ShareAcknowledgeResponse):
        return any(each.error_code for topic in answer.responses for each in topic.partitions)
    return True


def on_share_response(exchange: Exchange, scene: Scene) -> None:
    request, answer = exchange.request, exchange.answer
    assert isinstance(request, ShareFetchRequest | ShareAcknowledgeRequest)
    session = scene.state(ShareSession, exchange.connection.number, request.group_id or "", request.member_id or "")
    code = getattr(answer, "error_code", None)
    session.is_sure = code == 0
    if any(_acknowledged(request)) and (code != 0 or _has_refused(answer)):
        session.is_followed = False  # the client cannot know which records the broker regards as acknowledged
    if code in SESSION_ERRORS:
        session.session_error = exchange
    elif code == LIMIT:
        session.session_limit = exchange
    if isinstance(answer, ShareFetchResponse):
        for topic in answer.responses:
            for partition in topic.partitions:
                acquired = session.acquired.setdefault((topic.topic_id, partition.partition_index), {})
                for each in partition.acquired_records:
                    acquired[each.first_offset] = each.last_offset


def on_heartbeat(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, ShareGroupHeartbeatRequest)
    scene.join(exchange.connection, "member", request.group_id, request.member_id)
    member, epoch = scene.state(ShareMember, request.group_id, request.member_id), request.member_epoch
    if epoch < 0:
        member.last_response = member.fencing = None
    elif member.fencing is not None and (epoch == 0 or knows_response(exchange, member.fencing)):
        scene.decide(
            "SHR.12", epoch == 0, exchange, f"the member sends epoch {epoch} after it was fenced", member.fencing
        )
        member.fencing = None
    elif member.last_response is not None and epoch > 0 and knows_response(exchange, member.last_response):
        why = f"the request has epoch {epoch}, but the last answer had {member.epoch}"
        scene.decide("SHR.12", epoch == member.epoch, exchange, why, member.last_response)


def on_heartbeat_response(exchange: Exchange, scene: Scene) -> None:
    request, answer = exchange.request, exchange.answer
    assert isinstance(request, ShareGroupHeartbeatRequest)
    member = scene.state(ShareMember, request.group_id, request.member_id)
    if not isinstance(answer, ShareGroupHeartbeatResponse):
        member.last_response = None
    elif answer.error_code == 0:
        member.epoch, member.last_response = answer.member_epoch, exchange
    else:
        member.last_response = None
        member.fencing = exchange if answer.error_code in LOST else None


FAMILY = Family(
    RULES,
    on_request={
        ApiKey.SHARE_FETCH: (on_share_request,),
        ApiKey.SHARE_ACKNOWLEDGE: (on_share_request,),
        ApiKey.SHARE_GROUP_HEARTBEAT: (on_heartbeat,),
    },
    on_response={
        ApiKey.SHARE_FETCH: (on_share_response,),
        ApiKey.SHARE_ACKNOWLEDGE: (on_share_response,),
        ApiKey.SHARE_GROUP_HEARTBEAT: (on_heartbeat_response,),
    },
)
