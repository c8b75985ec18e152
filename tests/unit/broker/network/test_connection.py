"""Tests that a connection splits bytes into frames and sends responses in order with bounded buffers. A connection runs
one request at a time, unless the handler allows requests to overlap."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.api.context import RequestContext
from odradek.broker.api.dispatch import Answer
from odradek.broker.network.admission import ConnectionLimits
from odradek.broker.network.connection import (
    FIRST_BUFFER_BYTES,
    GROWTH_FACTOR,
    MAX_OVERLAPPING_REQUESTS,
    REQUESTS_PER_TURN,
)
from odradek.broker.network.server import RECEIVE_BUFFER_BYTES, Server
from odradek.broker.runtime.replies import NO_RESPONSE, CloseConnection, NoResponse
from odradek.broker.runtime.waiting import Deferred
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.list_groups_response import ListGroupsResponse
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.produce_response import ProduceResponse
from tests.support.examples import examples
from tests.support.peer import Handler, Peer, server_with
from tests.support.requests import produce_request

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
VERSION = 4


def heartbeat(correlation_id: int) -> bytes:
    return request_bytes(HEARTBEAT, VERSION, correlation_id, "test")


def list_groups(correlation_id: int) -> bytes:
    return request_bytes(ListGroupsRequest(), 5, correlation_id, "test")


def produce(records: bytes, correlation_id: int = 0) -> bytes:
    request = produce_request("t", records)
    return request_bytes(request, 9, correlation_id, "test")


class Desk:
    """A server's handlers, which store the received requests in `requests`. If `parks` is set, they leave the responses
    to heartbeats in `owed`, and the test sends them."""

    def __init__(self, *, parks: bool = False, overlaps: bool = False) -> None:
        self.parks = parks
        self.overlaps = overlaps
        self.requests: list[int] = []
        self.owed: list[Deferred[HeartbeatResponse]] = []
        self.records: list[memoryview] = []

    def heartbeat(self, request: HeartbeatRequest, context: RequestContext, broker: object) -> Answer:
        self.requests.append(context.correlation_id)
        if not self.parks:
            return HeartbeatResponse()
        self.owed.append(Deferred(overlaps=self.overlaps))
        return self.owed[-1]

    def list_groups(self, request: ListGroupsRequest, context: RequestContext, broker: object) -> ListGroupsResponse:
        self.requests.append(context.correlation_id)
        return ListGroupsResponse()

    def produce(self, request: ProduceRequest, context: RequestContext, broker: object) -> ProduceResponse:
        self.requests.append(context.correlation_id)
        records = request.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        self.records.append(records)
        return ProduceResponse()

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.HEARTBEAT: Handler(0, 4, call=self.heartbeat),
            ApiKey.LIST_GROUPS: Handler(0, 5, call=self.list_groups),
            ApiKey.PRODUCE: Handler(0, 13, served_from=3, keeps_frame=True, call=self.produce),
        }

    def server(self, limits: ConnectionLimits | None = None) -> Server:
        return server_with(self.handlers(), limits=limits)


async def let_the_loop_run() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_three_requests_are_answered_wherever_the_bytes_are_cut_in_two() -> None:
    stream = heartbeat(1) + produce(b"r" * 40, 2) + heartbeat(3)
    server = Desk().server()
    for cut in range(len(stream) + 1):
        peer = Peer(server)
        peer.send(stream[:cut])
        peer.send(stream[cut:])
        assert peer.correlation_ids() == [1, 2, 3], f"cut at {cut}"


async def test_requests_may_come_a_byte_at_a_time() -> None:
    desk = Desk()
    peer = Peer(desk.server())
    for byte in heartbeat(1) + produce(b"r" * 40, 2) + heartbeat(3):
        peer.send(bytes([byte]))
    assert peer.correlation_ids() == [1, 2, 3]
    assert desk.records[0] == b"r" * 40


async def test_a_frame_longer_than_the_receive_buffer_arrives_whole() -> None:
    desk = Desk()
    peer = Peer(desk.server())
    records = bytes(range(256)) * (5 * RECEIVE_BUFFER_BYTES // 256)
    peer.send(heartbeat(1) + produce(records, 2) + heartbeat(3))
    assert peer.correlation_ids() == [1, 2, 3]
    assert desk.records[0] == records


async def test_records_that_a_handler_keeps_are_not_overwritten_by_what_comes_later() -> None:
    desk = Desk()
    server = desk.server()
    peer, other = Peer(server), Peer(server)
    peer.send(produce(b"a" * 100))
    other.send(produce(b"b" * 100))
    assert [bytes(records) for records in desk.records] == [b"a" * 100, b"b" * 100]


async def test_records_that_a_handler_keeps_can_be_written_to() -> None:
    desk = Desk()
    peer = Peer(desk.server())
    peer.send(produce(b"small") + produce(b"l" * 2 * RECEIVE_BUFFER_BYTES))
    for records in desk.records:
        assert not records.readonly


async def test_an_announced_length_allocates_nothing_before_its_bytes_arrive() -> None:
    peer = Peer(Desk().server())
    peer.send((100_000_000).to_bytes(4, "big"))
    assert len(peer.connection.get_buffer(-1)) <= FIRST_BUFFER_BYTES


async def test_the_buffer_of_a_long_frame_stays_within_a_multiple_of_what_has_arrived() -> None:
    peer = Peer(Desk().server())
    peer.send((100_000_000).to_bytes(4, "big"))
    arrived = 4
    while arrived < 20_000_000:
        room = len(peer.connection.get_buffer(-1))
        assert arrived + room <= max(FIRST_BUFFER_BYTES + arrived, GROWTH_FACTOR * arrived)
        peer.send(bytes(room))
        arrived += room


async def test_the_next_request_is_not_looked_at_before_the_last_is_answered() -> None:
    desk = Desk(parks=True)
    peer = Peer(desk.server())
    peer.send(heartbeat(1) + heartbeat(2))
    assert desk.requests == [1]
    desk.owed[0].resolve(HeartbeatResponse())
    await let_the_loop_run()
    assert desk.requests == [1, 2]
    desk.owed[1].resolve(HeartbeatResponse())
    assert peer.correlation_ids() == [1, 2]


async def test_reading_stops_when_more_comes_behind_an_unanswered_request_and_goes_on_after_it() -> None:
    desk = Desk(parks=True)
    peer = Peer(desk.server())
    peer.send(heartbeat(1))
    assert not peer.transport.is_paused  # still reading, so that it notices when the peer closes the connection
    for correlation_id in range(2, 1000):
        peer.send(heartbeat(correlation_id))
    assert peer.transport.is_paused
    assert peer.unread_bytes == 997 * len(heartbeat(2))
    desk.parks = False
    desk.owed[0].resolve(HeartbeatResponse())
    for _ in range(1000 // REQUESTS_PER_TURN + 1):
        await let_the_loop_run()
        peer.deliver()
    assert peer.correlation_ids() == list(range(1, 1000))


async def test_a_long_frame_behind_an_unanswered_request_is_received_and_waits() -> None:
    desk = Desk(parks=True)
    peer = Peer(desk.server())
    records = b"x" * 3 * RECEIVE_BUFFER_BYTES
    peer.send(heartbeat(1) + produce(records, 2) + heartbeat(3))
    assert desk.requests == [1]
    desk.parks = False
    desk.owed[0].resolve(HeartbeatResponse())
    await let_the_loop_run()
    peer.deliver()
    assert peer.correlation_ids() == [1, 2, 3]
    assert desk.records[0] == records


async def test_requests_of_one_api_overlap_where_the_handler_says_so_and_are_answered_in_order() -> None:
    desk = Desk(parks=True, overlaps=True)
    peer = Peer(desk.server())
    peer.send(heartbeat(1) + heartbeat(2) + heartbeat(3))
    assert desk.requests == [1, 2, 3]
    desk.owed[1].resolve(HeartbeatResponse())
    desk.owed[2].resolve(HeartbeatResponse())
    assert peer.correlation_ids() == []
    desk.owed[0].resolve(HeartbeatResponse())
    assert peer.correlation_ids() == [1, 2, 3]


async def test_a_request_of_another_api_does_not_overlap() -> None:
    desk = Desk(parks=True, overlaps=True)
    peer = Peer(desk.server())
    peer.send(heartbeat(1) + list_groups(2))
    assert desk.requests == [1]
    desk.owed[0].resolve(HeartbeatResponse())
    await let_the_loop_run()
    assert peer.correlation_ids() == [1, 2]


async def test_no_more_than_a_bounded_number_of_requests_overlap() -> None:
    desk = Desk(parks=True, overlaps=True)
    peer = Peer(desk.server())
    peer.send(b"".join(heartbeat(number) for number in range(MAX_OVERLAPPING_REQUESTS + 5)))
    assert len(desk.requests) == MAX_OVERLAPPING_REQUESTS
    for deferred in list(desk.owed):
        deferred.resolve(HeartbeatResponse())
    await let_the_loop_run()
    assert len(desk.requests) == MAX_OVERLAPPING_REQUESTS + 5


async def test_a_peer_that_does_not_read_its_answers_is_not_served_further() -> None:
    desk = Desk()
    peer = Peer(desk.server())
    peer.connection.pause_writing()
    for number in range(REQUESTS_PER_TURN):
        peer.send(heartbeat(number))
    assert desk.requests == []
    assert peer.transport.is_paused
    peer.connection.resume_writing()
    peer.deliver()
    assert desk.requests == list(range(REQUESTS_PER_TURN))


async def test_the_transport_is_told_to_say_when_the_peer_does_not_read() -> None:
    assert 0 < Peer(Desk().server()).transport.high_water_bytes <= 1024 * 1024


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
async def test_a_negative_or_too_long_frame_disconnects(size: int) -> None:
    desk = Desk()
    peer = Peer(desk.server(ConnectionLimits(max_request_bytes=1000)))
    peer.send(heartbeat(1) + size.to_bytes(4, "big", signed=True) + heartbeat(2))
    assert peer.is_disconnected
    assert desk.requests == [1]
    assert peer.correlation_ids() == [1]


async def test_a_bad_frame_behind_parked_requests_disconnects_after_their_answers() -> None:
    desk = Desk(parks=True, overlaps=True)
    peer = Peer(desk.server())
    peer.send(heartbeat(1) + heartbeat(2) + (2**31 - 1).to_bytes(4, "big"))
    assert not peer.is_disconnected
    for deferred in desk.owed:
        deferred.resolve(HeartbeatResponse())
    assert peer.correlation_ids() == [1, 2]
    assert peer.is_disconnected


async def test_an_empty_frame_disconnects() -> None:
    peer = Peer(Desk().server())
    peer.send(bytes(4))
    assert peer.is_disconnected


async def test_a_parked_request_learns_that_its_client_is_gone() -> None:
    desk = Desk(parks=True)
    peer = Peer(desk.server())
    peer.send(heartbeat(1))
    forgotten: list[int] = []
    desk.owed[0].on_disconnect(lambda: forgotten.append(1))
    peer.hang_up()
    assert forgotten == [1]
    # the client has disconnected, so the response is dropped without an error
    desk.owed[0].resolve(HeartbeatResponse())
    assert peer.frames() == []


async def test_a_client_that_stops_sending_still_gets_the_answer_that_is_owed() -> None:
    desk = Desk(parks=True)
    peer = Peer(desk.server())
    peer.send(heartbeat(1))
    assert peer.connection.eof_received()
    desk.owed[0].resolve(HeartbeatResponse())
    assert peer.correlation_ids() == [1]
    assert peer.is_disconnected


async def test_a_request_without_an_answer_is_followed_by_the_next() -> None:
    def silent(request: HeartbeatRequest, context: RequestContext, broker: object) -> NoResponse:
        return NO_RESPONSE

    desk = Desk()
    peer = Peer(server_with(desk.handlers() | {ApiKey.HEARTBEAT: Handler(0, 4, call=silent)}))
    peer.send(heartbeat(1) + list_groups(2))
    assert peer.correlation_ids() == [2]


def closing_at_once(*_: object) -> Answer:
    raise CloseConnection("acks=0 and an error")


def closing_later(*_: object) -> Answer:
    deferred: Deferred[HeartbeatResponse] = Deferred()
    deferred.fail(CloseConnection("acks=0 and an error"))
    return deferred


@pytest.mark.parametrize("call", [closing_at_once, closing_later])
async def test_a_handler_can_hang_up(call: Callable[..., Answer]) -> None:
    peer = Peer(server_with({ApiKey.HEARTBEAT: Handler(0, 4, call=call)}))
    peer.send(heartbeat(1))
    assert peer.is_disconnected
    assert peer.frames() == []


async def test_while_requests_fill_the_memory_for_requests_the_next_waits() -> None:
    desk = Desk(parks=True)
    size = len(heartbeat(1)) - 4
    server = desk.server(ConnectionLimits(queued_max_request_bytes=2 * size))
    peers = [Peer(server) for _ in range(3)]
    for number, peer in enumerate(peers):
        peer.send(heartbeat(number))
    assert desk.requests == [0, 1]
    assert peers[2].transport.is_paused
    desk.owed[0].resolve(HeartbeatResponse())
    await let_the_loop_run()
    assert desk.requests == [0, 1, 2]
    assert not peers[2].transport.is_paused


async def test_memory_for_requests_comes_back_from_a_peer_that_is_gone() -> None:
    desk = Desk(parks=True)
    server = desk.server(ConnectionLimits(queued_max_request_bytes=10))
    half, parked, waiting = Peer(server), Peer(server), Peer(server)
    half.send((1000).to_bytes(4, "big") + b"begun")
    waiting.send(heartbeat(1))
    assert desk.requests == []
    half.hang_up()
    await let_the_loop_run()
    assert desk.requests == [1]
    parked.send(heartbeat(2))
    waiting.hang_up()
    await let_the_loop_run()
    assert desk.requests == [1, 2]


@settings(max_examples=examples(100))
@given(
    sizes=st.lists(st.integers(0, 3 * RECEIVE_BUFFER_BYTES), min_size=1, max_size=6),
    parked=st.lists(st.booleans(), min_size=6, max_size=6),
    overlaps=st.booleans(),
    cuts=st.lists(st.integers(1, RECEIVE_BUFFER_BYTES + 10), min_size=1, max_size=20),
)
async def test_any_pipeline_cut_anyhow_is_answered_completely_and_in_order(
    sizes: list[int], parked: list[bool], overlaps: bool, cuts: list[int]
) -> None:
    desk = Desk(overlaps=overlaps)
    peer = Peer(desk.server())
    stream, expected, kept = b"", [], []
    for number, size in enumerate(sizes):
        records = bytes([number + 1]) * size
        stream += heartbeat(2 * number) + produce(records, 2 * number + 1)
        expected += [2 * number, 2 * number + 1]
        kept.append(records)
    position = 0
    for number in range(1_000):
        if position == len(stream) and len(desk.requests) == len(expected) and not desk.owed:
            break
        desk.parks = parked[number % len(parked)]
        end = min(len(stream), position + max(cuts[number % len(cuts)], len(stream) // 300))
        peer.send(stream[position:end])
        position = end
        if desk.owed and number % 2:
            desk.owed.pop().resolve(HeartbeatResponse())
        await let_the_loop_run()
        peer.deliver()
    assert peer.correlation_ids() == expected
    assert [bytes(records) for records in desk.records] == kept


async def test_a_connection_that_sends_very_much_waits_behind_the_others_after_some_requests() -> None:
    desk = Desk()
    server = desk.server()
    flood, other = Peer(server), Peer(server)
    sent = 10 * REQUESTS_PER_TURN
    flood.send(b"".join(map(heartbeat, range(sent))))
    assert len(desk.requests) <= REQUESTS_PER_TURN
    other.send(heartbeat(sent))
    assert len(other.frames()) == 1
    turns = 0
    while len(desk.requests) <= sent:
        before = len(desk.requests)
        await asyncio.sleep(0)
        assert 0 < len(desk.requests) - before <= REQUESTS_PER_TURN
        turns += 1
    assert len(flood.frames()) == sent
    assert turns >= sent / REQUESTS_PER_TURN - 1
    assert sorted(desk.requests) == list(range(sent + 1))
    assert [one for one in desk.requests if one < sent] == list(range(sent))


async def test_answers_that_come_meanwhile_give_a_connection_no_further_turn() -> None:
    desk = Desk(parks=True, overlaps=True)
    peer = Peer(desk.server())
    peer.send(b"".join(map(heartbeat, range(4 * MAX_OVERLAPPING_REQUESTS))))
    assert len(desk.requests) <= MAX_OVERLAPPING_REQUESTS
    for owed in desk.owed[:MAX_OVERLAPPING_REQUESTS]:
        owed.resolve(HeartbeatResponse())
    before = len(desk.requests)
    await asyncio.sleep(0)
    assert len(desk.requests) - before <= REQUESTS_PER_TURN
