"""Rules FET, about fetch sessions, and about fetch positions where responses reveal them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.batch_header import batches
from odradek.protocol.errors import ErrorCode, MalformedMessage
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.list_offsets_request import ListOffsetsRequest
from odradek.protocol.struct import Buffer
from odradek.testing.judge.exchanges import Exchange, knows_response
from odradek.testing.judge.rule import Family, M, ProtocolRule, S, undecided
from odradek.testing.judge.scene import Scene
from odradek.testing.judge.topics import Topic

FULL, FINAL = 0, -1
WRAP: Final = 2**31 - 1
MAX_UNUSED_SESSIONS: Final = 5
MAX_SESSIONS: Final = 100  # maximum number of remembered sessions per connection
MAX_REPETITIONS: Final = 5
MAX_FETCHES_WITHOUT_PAUSE: Final = 20
AT_ONCE_US: Final = 5_000
PACED_US: Final = (
    # If the broker holds a response for at least this long, it has slowed the client down enough. The limit must not be
    # longer, because the broker responds early if another partition has records.
    50_000
)
EARLIEST: Final = -2
SESSION_ERRORS: Final = frozenset(
    {ErrorCode.FETCH_SESSION_ID_NOT_FOUND.value, ErrorCode.INVALID_FETCH_SESSION_EPOCH.value}
)
DRIVER: Final = "a driver: only the application knows its seeks and pauses, and which records it received"
NODES: Final = "a driver that moves leaders, or that edits answers"

# fmt: off
RULES = (
    ProtocolRule("FET.1", M, "ListOffsets has the same isolation level as the consumer's Fetch",
        "a ListOffsets for any offset but the earliest, on a connection that has fetched"),
    undecided("FET.2", M,
        "The consumer delivers no record of an aborted transaction, and every committed record", DRIVER),
    ProtocolRule("FET.3", M, "Control batches move the position forward even if no records follow them",
        "a Fetch that is answered with nothing but control batches"),
    undecided("FET.4", M, "Aborted transactions may be listed in any order; read_uncommitted ignores the list", NODES),
    ProtocolRule("FET.5", M, "After a compacted gap or an empty batch the next offset is the batch's last offset + 1",
        "a Fetch that is answered with a batch whose last records are missing"),
    ProtocolRule("FET.6", M,
        "The client uses the fetch session it was given: each epoch is one higher, and 1 follows 2^31 - 1",
        "a Fetch after an answer with a session id"),
    ProtocolRule("FET.7", M,
        "After FETCH_SESSION_ID_NOT_FOUND or INVALID_FETCH_SESSION_EPOCH the client sends a full fetch",
        "a Fetch after FETCH_SESSION_ID_NOT_FOUND or INVALID_FETCH_SESSION_EPOCH"),
    undecided("FET.8", M, "The client removes partitions from the fetch session when it no longer wants them", DRIVER),
    undecided("FET.9", M, "After a change of leader the client sends OffsetForLeaderEpoch before it fetches", NODES),
    undecided("FET.10", M, "The client does not treat an undefined leader epoch in a response as data loss", NODES),
    undecided("FET.11", M, "If a replica refuses a fetch, the client fetches from the leader", NODES),
    undecided("FET.12", M,
        "After OFFSET_OUT_OF_RANGE from a follower the client requests offsets from the leader", NODES),
    undecided("FET.13", M, "The client resets an offset only if the offset is out of range or missing", DRIVER),
    undecided("FET.14", S, "No partition starves when responses are limited in size", DRIVER),
    ProtocolRule("FET.15", S, "The client does not keep repeating a failed Fetch without a pause",
        "a Fetch after an answer with a partition error"),
    undecided("FET.16", M, "A malformed batch neither crashes the client nor is skipped", NODES),
)
# fmt: on


@dataclass(slots=True)
class FetchSession:
    """A fetch session on one connection. `epoch` is the epoch of `last_fetch`."""

    epoch: int = 0
    last_fetch: Exchange | None = None
    error_response: Exchange | None = None


@dataclass(slots=True)
class ConnectionFetches:
    """The fetches on one connection, which several consumers may share.

    sessions         open sessions, keyed by id; fetches without a session have the id 0
    unused_session   the last response that opened a session, until a request uses that session
    unused_sessions  number of consecutive sessions that the client opened without using them
    isolation        the last Fetch, which contains the current isolation level
    is_mixed         whether both isolation levels have been used
    """

    sessions: dict[int, FetchSession] = field(default_factory=dict)
    unused_session: Exchange | None = None
    unused_sessions: int = 0
    offsets: dict[tuple[Topic, int], int] = field(default_factory=dict)
    isolation: Exchange | None = None
    is_mixed: bool = False
    failed_fetch: Exchange | None = None
    fetches_without_pause: int = 0


@dataclass(slots=True)
class StuckPartition:
    """Counts how many times fetches of one partition from the same offset returned only control batches or only empty
    batches."""

    offset: int = -1
    end: int = -1
    rule: str = ""
    repetitions: int = 0
    first_fetch: Exchange | None = None


def on_fetch(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, FetchRequest)
    state = scene.state(ConnectionFetches, exchange.connection.number)
    is_full = request.session_epoch in (FULL, FINAL)
    _check_session(exchange, request, state, scene)
    failed_fetch = state.failed_fetch
    if failed_fetch is not None and failed_fetch.written_us is not None and _is_of_same_session(request, failed_fetch):
        answered_us = failed_fetch.answered_us
        is_at_once = (
            exchange.received_us - answered_us < AT_ONCE_US and answered_us - failed_fetch.received_us < PACED_US
        )
        state.fetches_without_pause = state.fetches_without_pause + 1 if is_at_once else 0
        why = (
            f"the client sent {state.fetches_without_pause} fetches in a row within {AT_ONCE_US // 1000} ms of an error"
        )
        scene.decide("FET.15", state.fetches_without_pause <= MAX_FETCHES_WITHOUT_PAUSE, exchange, why, failed_fetch)
        state.failed_fetch = None
    if is_full:
        state.offsets.clear()
    for forgotten in request.forgotten_topics_data:
        for partition in forgotten.partitions:
            state.offsets.pop((exchange.topic(forgotten.topic, forgotten.topic_id), partition), None)
    for topic in request.topics:
        for each in topic.partitions:
            place = (exchange.topic(topic.topic, topic.topic_id), each.partition)
            state.offsets[place] = each.fetch_offset
            stuck = scene.state(StuckPartition, exchange.connection.number, *place)
            if stuck.rule and each.fetch_offset >= stuck.end:
                scene.record_kept(stuck.rule, exchange)
                stuck.rule = ""
    before = state.isolation
    if before is not None and isinstance(before.request, FetchRequest):
        state.is_mixed = state.is_mixed or before.request.isolation_level != request.isolation_level
    state.isolation = exchange


def _check_session(exchange: Exchange, request: FetchRequest, state: ConnectionFetches, scene: Scene) -> None:
    """Decides FET.6 and FET.7 for the session of a request. A full fetch may replace any session."""
    epoch = request.session_epoch
    session = state.sessions.get(request.session_id)
    if epoch in (FULL, FINAL):
        for number, each in list(state.sessions.items()):
            if each.error_response is not None:
                scene.record_kept("FET.7", exchange)
                del state.sessions[number]
        if epoch == FINAL:
            state.sessions.pop(request.session_id, None)
        given = state.unused_session
        if epoch == FULL and given is not None and knows_response(exchange, given):
            state.unused_sessions += 1
            state.unused_session = None
            if state.unused_sessions >= MAX_UNUSED_SESSIONS:
                why = f"the client opened {state.unused_sessions} fetch sessions in a row without using them"
                scene.record_broken("FET.6", exchange, why, given)
        return
    if session is None:
        return
    if session.error_response is not None:
        if knows_response(exchange, session.error_response):
            scene.record_broken(
                "FET.7", exchange, f"the request has epoch {epoch} of a lost session", session.error_response
            )
            del state.sessions[request.session_id]
        return
    expected = 1 if session.epoch == WRAP else session.epoch + 1
    scene.decide(
        "FET.6", epoch == expected, exchange, f"the request has epoch {epoch} instead of {expected}", session.last_fetch
    )
    session.epoch, session.last_fetch = epoch, exchange
    state.unused_sessions, state.unused_session = 0, None


def _is_of_same_session(request: FetchRequest, before: Exchange) -> bool:
    return isinstance(before.request, FetchRequest) and (
        request.session_id == before.request.session_id or before.request.session_epoch in (FULL, FINAL)
    )


def on_fetch_response(exchange: Exchange, scene: Scene) -> None:
    request, answer = exchange.request, exchange.answer
    assert isinstance(request, FetchRequest)
    state, epoch = scene.state(ConnectionFetches, exchange.connection.number), request.session_epoch
    if exchange.is_lost:  # the client cannot know whether the broker has processed the request
        state.sessions.pop(request.session_id, None)
    if not isinstance(answer, FetchResponse):
        return
    if answer.error_code in SESSION_ERRORS:
        if epoch not in (FULL, FINAL):
            state.sessions.setdefault(request.session_id, FetchSession(epoch)).error_response = exchange
    elif answer.error_code == 0 and epoch == FULL and answer.session_id:
        if len(state.sessions) >= MAX_SESSIONS:
            state.sessions.pop(next(iter(state.sessions)))
        state.sessions[answer.session_id] = FetchSession(last_fetch=exchange)
        state.unused_session = exchange
    elif answer.error_code == 0 and epoch not in (FULL, FINAL) and answer.session_id != request.session_id:
        state.sessions.pop(request.session_id, None)  # the broker has closed the session
    has_error = False
    for topic in answer.responses:
        for partition in topic.partitions:
            has_error = has_error or partition.error_code != 0
            place = (exchange.topic(topic.topic, topic.topic_id), partition.partition_index)
            records = partition.records
            if records and not isinstance(records, list) and place in state.offsets:
                _check_progress(exchange, place, state.offsets[place], records, scene)
    if has_error:
        state.failed_fetch = exchange
    else:
        state.fetches_without_pause = 0


def _check_progress(exchange: Exchange, place: tuple[Topic, int], offset: int, data: Buffer, scene: Scene) -> None:
    stuck = scene.state(StuckPartition, exchange.connection.number, *place)
    if offset != stuck.offset:
        stuck.offset, stuck.rule, stuck.repetitions, stuck.first_fetch = offset, "", 0, exchange
    try:
        found = [header for _, header in batches(data) if header.next_offset > offset]
    except (MalformedMessage, ValueError):
        return
    if not found:
        return
    last = found[-1]
    if all(header.is_control for header in found):
        rule = "FET.3"
    elif all(header.record_count == 0 for header in found):
        rule = "FET.5"
    else:
        return
    stuck.rule, stuck.end, stuck.repetitions = rule, last.next_offset, stuck.repetitions + 1
    if stuck.repetitions > MAX_REPETITIONS:
        what = "control batches" if rule == "FET.3" else "empty batches"
        why = (
            f"{'-'.join(map(str, place))}: the client fetched offset {offset} {stuck.repetitions} times, although"
            f" only {what} follow"
        )
        scene.record_broken(rule, exchange, why, stuck.first_fetch)


def on_list_offsets(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, ListOffsetsRequest)
    state = scene.state(ConnectionFetches, exchange.connection.number)
    fetched = None if state.is_mixed else state.isolation
    is_measured = any(each.timestamp != EARLIEST for topic in request.topics for each in topic.partitions)
    if fetched is None or not is_measured or exchange.version < 2 or not isinstance(fetched.request, FetchRequest):
        return
    level = fetched.request.isolation_level
    why = f"ListOffsets has isolation level {request.isolation_level}, but Fetch has {level}"
    scene.decide("FET.1", request.isolation_level == level, exchange, why, fetched)


FAMILY = Family(
    RULES,
    on_request={ApiKey.FETCH: (on_fetch,), ApiKey.LIST_OFFSETS: (on_list_offsets,)},
    on_response={ApiKey.FETCH: (on_fetch_response,)},
)
