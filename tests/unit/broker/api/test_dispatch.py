"""Tests that the dispatcher passes a request from its frame to its handler and returns the response. The broker refuses
a request or closes the connection in the same cases as Kafka."""

import ast
import asyncio
import logging
import re
from importlib import import_module
from pathlib import Path

import pytest

from odradek.broker.api.context import RequestContext
from odradek.broker.api.dispatch import Answer
from odradek.broker.api.error_replies import error_reply
from odradek.broker.api.error_translations import translate
from odradek.broker.api.long_requests import LONG_REQUEST_BYTES
from odradek.broker.api.served import SERVED
from odradek.broker.handlers.by_api_key import handler_of
from odradek.broker.runtime.waiting import Deferred
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages import request_class, response_class
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.list_groups_response import ListedGroup, ListGroupsResponse
from odradek.protocol.schema import load
from odradek.protocol.struct import Message, Struct
from tests.support.clock import ManualClock
from tests.support.manual_loop import ManualWorkers
from tests.support.peer import Handler, Peer, dispatcher_with, server_around, server_with

REPOSITORY = Path(__file__).resolve().parents[4]
HEAD_OF_A_HANDLER = re.compile(r"(?P<name>\w+) \(key (?P<key>\d+)\), versions? (?P<first>\d+)(?:-(?P<last>\d+))?\b")
LONG_HEARTBEAT = HeartbeatRequest(
    group_id="g" * (LONG_REQUEST_BYTES // 3),
    generation_id=1,
    member_id="m" * (LONG_REQUEST_BYTES // 3),
    group_instance_id="i" * (LONG_REQUEST_BYTES // 3),
)
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def list_groups(request: ListGroupsRequest, context: RequestContext, broker: object) -> ListGroupsResponse:
    return ListGroupsResponse()


def refused(code: ErrorCode) -> Handler:
    def heartbeat(request: HeartbeatRequest, context: RequestContext, broker: object) -> HeartbeatResponse:
        raise KafkaError(code)

    return Handler(0, 4, call=heartbeat)


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


async def test_a_refusal_is_answered_in_the_form_of_its_api() -> None:
    peer = Peer(server_with({ApiKey.HEARTBEAT: refused(ErrorCode.UNKNOWN_MEMBER_ID)}))
    peer.ask(HEARTBEAT, 4)
    assert peer.answer(ApiKey.HEARTBEAT, 4) == HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID.value)


async def test_a_deferred_that_fails_is_answered_with_its_error_code() -> None:
    deferred: Deferred[HeartbeatResponse] = Deferred()

    def heartbeat(request: HeartbeatRequest, context: RequestContext, broker: object) -> Answer:
        return deferred

    peer = Peer(server_with({ApiKey.HEARTBEAT: Handler(0, 4, call=heartbeat)}))
    peer.ask(HEARTBEAT, 4)
    deferred.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    assert peer.answer(ApiKey.HEARTBEAT, 4).error_code == ErrorCode.NOT_COORDINATOR.value


@pytest.mark.parametrize("is_parked", [False, True])
@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
async def test_a_newer_error_code_is_replaced_in_older_versions(version: int, code: ErrorCode, is_parked: bool) -> None:
    fenced = KafkaError(ErrorCode.PRODUCER_FENCED)

    def end_txn(request: EndTxnRequest, context: RequestContext, broker: object) -> Answer:
        if not is_parked:
            raise fenced
        deferred: Deferred[EndTxnResponse] = Deferred()
        deferred.fail(fenced)
        return deferred

    peer = Peer(server_with({ApiKey.END_TXN: Handler(0, 5, call=end_txn)}))
    peer.ask(EndTxnRequest(transactional_id="pay"), version)
    assert peer.answer(ApiKey.END_TXN, version).error_code == code.value


@pytest.mark.parametrize(
    ("api_key", "code", "since", "before"),
    [
        (ApiKey.INIT_PRODUCER_ID, ErrorCode.PRODUCER_FENCED, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ApiKey.DELETE_TOPICS, ErrorCode.TOPIC_DELETION_DISABLED, 3, ErrorCode.INVALID_REQUEST),
        (ApiKey.DELETE_TOPICS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_each_version_returns_only_error_codes_that_it_knows(
    api_key: ApiKey, code: ErrorCode, since: int, before: ErrorCode
) -> None:
    assert [translate(api_key, code, version) for version in (since - 1, since)] == [before, code]


@pytest.mark.traceback("IndexError: no such member")
async def test_a_bug_is_logged_with_its_request_and_answered_as_unknown_server_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def heartbeat(request: HeartbeatRequest, context: RequestContext, broker: object) -> HeartbeatResponse:
        raise IndexError("no such member")

    peer = Peer(server_with({ApiKey.HEARTBEAT: Handler(0, 4, call=heartbeat)}))
    with caplog.at_level(logging.ERROR):
        peer.ask(HEARTBEAT, 4, correlation_id=77)
    assert peer.answer(ApiKey.HEARTBEAT, 4).error_code == ErrorCode.UNKNOWN_SERVER_ERROR.value
    assert "HEARTBEAT v4 correlation_id=77" in caplog.text
    assert "no such member" in caplog.text


@pytest.mark.traceback("UnsupportedVersion: HeartbeatResponse")
async def test_a_response_that_cannot_be_encoded_becomes_unknown_server_error() -> None:
    def heartbeat(request: HeartbeatRequest, context: RequestContext, broker: object) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=1_000_000)

    peer = Peer(server_with({ApiKey.HEARTBEAT: Handler(0, 4, call=heartbeat)}))
    peer.ask(HEARTBEAT, 4)
    assert peer.answer(ApiKey.HEARTBEAT, 4).error_code == ErrorCode.UNKNOWN_SERVER_ERROR.value


async def test_a_coroutine_is_answered_when_it_ends() -> None:
    gate = asyncio.Event()

    async def heartbeat(request: HeartbeatRequest, context: RequestContext, broker: object) -> HeartbeatResponse:
        await gate.wait()
        return HeartbeatResponse(throttle_time_ms=5)

    peer = Peer(server_with({ApiKey.HEARTBEAT: Handler(0, 4, call=heartbeat)}))
    peer.ask(HEARTBEAT, 4)
    await asyncio.sleep(0)
    assert peer.frames() == []
    gate.set()
    for _ in range(4):
        await asyncio.sleep(0)
    assert peer.answer(ApiKey.HEARTBEAT, 4).throttle_time_ms == 5


async def test_a_handler_gets_the_client_and_the_time_in_its_context() -> None:
    seen: list[RequestContext] = []

    def heartbeat(request: HeartbeatRequest, context: RequestContext, broker: object) -> HeartbeatResponse:
        seen.append(context)
        return HeartbeatResponse()

    handlers = {ApiKey.HEARTBEAT: Handler(0, 4, call=heartbeat)}
    peer = Peer(server_with(handlers, clock=ManualClock(1_700_000_000_000)), host="192.0.2.7")
    peer.ask(HEARTBEAT, 3, correlation_id=9)
    (context,) = seen
    assert (context.api_key, context.api_version, context.correlation_id) == (ApiKey.HEARTBEAT, 3, 9)
    assert (context.client_id, context.now_ms) == ("test", 1_700_000_000_000)
    assert context.connection.client_host == "192.0.2.7"
    assert (context.principal, context.connection.client_software_name) == ("User:ANONYMOUS", "unknown")


async def test_bytes_behind_a_request_are_ignored_as_kafka_does() -> None:
    peer = Peer(server_with({ApiKey.LIST_GROUPS: Handler(0, 5, call=list_groups)}))
    frame = request_bytes(ListGroupsRequest(), 5, 1, "rdkafka")[4:]
    peer.send(framed(frame + b"\x00\x00\x00"))
    assert peer.correlation_ids() == [1]


async def test_every_shortened_request_disconnects() -> None:
    server = server_with({ApiKey.HEARTBEAT: refused(ErrorCode.NONE)})
    frame = request_bytes(HEARTBEAT, 4, 1, "test")[4:]
    for end in range(len(frame)):
        peer = Peer(server)
        peer.send(framed(frame[:end]))
        assert peer.is_disconnected, f"{end} of {len(frame)} bytes"
        assert peer.frames() == []


@pytest.mark.parametrize("api_key", [-1, 4, 13, 93, 999, 32767])
async def test_an_api_that_is_not_served_disconnects(api_key: int) -> None:
    peer = Peer(server_with({ApiKey.HEARTBEAT: refused(ErrorCode.NONE)}))
    peer.send(framed(api_key.to_bytes(2, "big", signed=True) + bytes(16)))
    assert peer.is_disconnected
    assert peer.frames() == []


@pytest.mark.parametrize("version", [-1, 5, 99, 32767])
async def test_a_version_that_is_not_served_disconnects(version: int) -> None:
    peer = Peer(server_with({ApiKey.HEARTBEAT: refused(ErrorCode.NONE)}))
    peer.send(framed((12).to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + bytes(16)))
    assert peer.is_disconnected


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_version_that_is_shown_but_not_served_disconnects(version: int) -> None:
    peer = Peer(server_with({ApiKey.PRODUCE: Handler(0, 13, served_from=3, call=list_groups)}))
    peer.send(framed((0).to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(16)))
    assert peer.is_disconnected


@pytest.mark.parametrize(
    ("request_frame", "response_frame"),
    [  # recorded from Kafka 4.3.1
        ("0012ffff0000000a000570726f6265000670726f6265023100", "0000000a002300000001001200000004"),
        ("0012000500000007000570726f6265000670726f6265023100", "00000007002300000001001200000004"),
        ("0012006300000008000570726f6265000670726f6265023100", "00000008002300000001001200000004"),
        ("00127fff00000009000570726f6265000670726f6265023100", "00000009002300000001001200000004"),
    ],
)
async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    request_frame: str, response_frame: str
) -> None:
    peer = Peer(server_with({ApiKey.API_VERSIONS: Handler(0, 4)}))
    peer.send(framed(bytes.fromhex(request_frame)))
    assert [frame.hex() for frame in peer.frames()] == [response_frame]
    assert not peer.is_disconnected


# The responses in these versions have no field for an error that concerns the whole request.
SILENT = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}


def filled(struct: Struct) -> Struct:
    """Returns the struct with one element in every array, so that the response has an error code to set."""
    module = import_module(type(struct).__module__)
    schema = load(module.__name__.rpartition(".")[2])
    for field in schema.structs.get(type(struct).__name__, schema.fields):
        if field.is_array and field.is_struct:
            setattr(struct, field.attribute, [filled(getattr(module, field.type)())])
        elif field.is_array:
            setattr(struct, field.attribute, ["name" if field.type == "string" else 7])
    return struct


def codes_in(struct: Struct) -> set[int]:
    codes = set()
    for name in struct.__slots__:
        value = getattr(struct, name)
        if name in ("error_code", "partition_error_code"):
            codes.add(value)
        for element in value if isinstance(value, list) else [value]:
            if isinstance(element, Struct):
                codes |= codes_in(element)
    return codes


def versions_of(api_key: ApiKey) -> range:
    handler = SERVED[api_key]
    return range(max(handler.min_version, handler.served_from), handler.max_version + 1)


@pytest.mark.parametrize("api_key", SERVED)
def test_every_served_api_has_a_handler_of_its_name_that_says_its_key_and_versions(api_key: ApiKey) -> None:
    handler, row = handler_of(api_key), SERVED[api_key]
    module = f"odradek.broker.handlers.{row.module}"
    assert handler.__name__ == api_key.name.lower()
    assert getattr(import_module(module), handler.__name__) is handler
    tree = ast.parse((REPOSITORY / f"{module.replace('.', '/')}.py").read_text())
    functions = [each for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    (function,) = (each for each in functions if each.name == handler.__name__)
    said = HEAD_OF_A_HANDLER.search(f"{ast.get_docstring(function)}\n{ast.get_docstring(tree)}")
    assert said is not None
    assert (said["name"].upper(), int(said["key"])) == (api_key.name.replace("_", ""), api_key.value)
    assert range(int(said["first"]), int(said["last"] or said["first"]) + 1) == versions_of(api_key)


@pytest.mark.parametrize("api_key", SERVED)
def test_every_served_api_can_say_that_all_of_a_request_failed_in_every_version(api_key: ApiKey) -> None:
    for version in versions_of(api_key):
        request = filled(request_class(api_key.value)())
        assert isinstance(request, Message)
        reply = error_reply(api_key, version, request, ErrorCode.UNKNOWN_SERVER_ERROR, "because")
        read = decode(response_class(api_key.value), version, encode(reply, version))
        expected = set() if (api_key, version) in SILENT else {ErrorCode.UNKNOWN_SERVER_ERROR.value}
        assert codes_in(read) - {ErrorCode.NONE.value} == expected, f"version {version}"


async def test_requests_are_counted_by_version_and_refusals_by_their_code() -> None:
    dispatcher = dispatcher_with({ApiKey.HEARTBEAT: refused(ErrorCode.UNKNOWN_MEMBER_ID)})
    peer = Peer(server_around(dispatcher))
    for version in (3, 4, 4):
        peer.ask(HEARTBEAT, version)
    frame_bytes = len(request_bytes(HEARTBEAT, 4, 0, "test")) - 4
    counted = {route.version: (route.requests, route.request_bytes) for route in dispatcher.routes}
    assert (counted[3][0], counted[4]) == (1, (2, 2 * frame_bytes))
    assert dispatcher.errors == {(ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID): 3}


async def test_the_time_of_a_parked_request_is_counted_when_it_is_answered() -> None:
    deferred: Deferred[HeartbeatResponse] = Deferred()
    dispatcher = dispatcher_with({ApiKey.HEARTBEAT: Handler(0, 4, call=lambda *_: deferred)})
    peer = Peer(server_around(dispatcher))
    peer.ask(HEARTBEAT, 4)
    (route,) = dispatcher.routes
    assert (route.requests, route.remote_s) == (1, 0)
    assert route.local_s > 0
    deferred.resolve(HeartbeatResponse())
    assert route.remote_s > 0


async def test_the_response_to_a_sliced_request_is_encoded_in_a_thread() -> None:
    """Tests that the response to a request processed in several slices is encoded in a thread, because even a short
    request can have a long response, such as the names of all groups."""
    deferred: Deferred[ListGroupsResponse] = Deferred()
    sliced = Handler(0, 5, is_sliced=True, call=lambda *_: deferred)
    dispatcher = dispatcher_with({ApiKey.LIST_GROUPS: sliced})
    dispatcher.workers = workers = ManualWorkers()
    peer = Peer(server_around(dispatcher))
    peer.ask(ListGroupsRequest(), 4)
    listed = ListGroupsResponse(groups=[ListedGroup(group_id="g")])
    deferred.resolve(listed)
    assert peer.frames() == []
    workers.finish_all()
    assert peer.answer(ApiKey.LIST_GROUPS, 4) == listed


async def test_the_error_of_a_sliced_request_is_encoded_in_a_thread_too() -> None:
    deferred: Deferred[ListGroupsResponse] = Deferred()
    dispatcher = dispatcher_with({ApiKey.LIST_GROUPS: Handler(0, 5, is_sliced=True, call=lambda *_: deferred)})
    dispatcher.workers = workers = ManualWorkers()
    peer = Peer(server_around(dispatcher))
    peer.ask(ListGroupsRequest(), 4)
    deferred.fail(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    workers.finish_all()
    assert peer.answer(ApiKey.LIST_GROUPS, 4).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.value


@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_long_request_whose_client_has_gone_before_a_thread_decodes_it_is_dropped(is_gone: bool) -> None:
    heard: list[int] = []

    def heartbeat(request: HeartbeatRequest, context: RequestContext, broker: object) -> HeartbeatResponse:
        heard.append(len(request.group_id))
        return HeartbeatResponse()

    dispatcher = dispatcher_with({ApiKey.HEARTBEAT: Handler(0, 4, call=heartbeat)})
    dispatcher.workers = workers = ManualWorkers()
    peer = Peer(server_around(dispatcher))
    peer.ask(LONG_HEARTBEAT, 4)
    assert len(workers.jobs) == 1
    if is_gone:
        peer.hang_up()
    workers.finish_all()
    assert heard == ([] if is_gone else [len(LONG_HEARTBEAT.group_id)])


async def test_a_refusal_of_a_long_request_is_made_beside_the_loop() -> None:
    dispatcher = dispatcher_with({ApiKey.HEARTBEAT: refused(ErrorCode.UNKNOWN_MEMBER_ID)})
    dispatcher.workers = workers = ManualWorkers()
    peer = Peer(server_around(dispatcher))
    peer.ask(LONG_HEARTBEAT, 4)
    for _ in ("it is read", "the refusal is made", "it is encoded"):
        assert peer.frames() == []
        workers.finish_one()
    assert peer.answer(ApiKey.HEARTBEAT, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID.value
    assert dispatcher.errors == {(ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID): 1}
