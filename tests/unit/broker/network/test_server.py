"""Tests that the server serves clients over real sockets, limits connections, closes idle ones, and shuts down in an
orderly way (docs/spec/security.md#s5)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from odradek.broker.api.context import RequestContext
from odradek.broker.api.dispatch import Answer
from odradek.broker.network.admission import ConnectionLimits
from odradek.broker.network.server import SWEEPS_PER_IDLE_TIME, Server, bind
from odradek.broker.runtime.waiting import Deferred
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from tests.support.clock import ManualTimers
from tests.support.peer import Handler, server_with

HEARTBEAT = request_bytes(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 1, "test")
ANSWER_BYTES = 4 + 4 + 1 + 4 + 2 + 1
IDLE_MS = 8000


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def is_served(self) -> None:
        """Sends a request and returns when its response has arrived."""
        self.writer.write(HEARTBEAT)
        assert len(await self.reader.readexactly(ANSWER_BYTES)) == ANSWER_BYTES

    async def is_closed(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.writer.close()


Connect = Callable[[], Awaitable[Client]]
Start = Callable[..., Awaitable[tuple[Server, Connect]]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    servers: list[Server] = []
    clients: list[Client] = []

    async def start(
        limits: ConnectionLimits | None = None,
        *,
        timers: ManualTimers | None = None,
        handler: Handler | None = None,
        authentication_timeout_ms: int | None = None,
    ) -> tuple[Server, Connect]:
        def heartbeat(request: HeartbeatRequest, context: RequestContext, broker: object) -> Answer:
            return HeartbeatResponse()

        handlers = {ApiKey.HEARTBEAT: handler or Handler(0, 4, call=heartbeat)}
        server = server_with(
            handlers, limits=limits, timers=timers, authentication_timeout_ms=authentication_timeout_ms
        )
        servers.append(server)
        socket = bind("127.0.0.1", 0)
        port = socket.getsockname()[1]
        await server.listen(socket)

        async def connect() -> Client:
            clients.append(Client(*await asyncio.open_connection("127.0.0.1", port)))
            return clients[-1]

        return server, connect

    yield start
    for client in clients:
        client.close()
    for server in servers:
        await server.stop(0)


async def test_a_client_is_answered(start: Start) -> None:
    _, connect = await start()
    await (await connect()).is_served()


async def test_more_connections_from_one_address_than_allowed_are_closed(start: Start) -> None:
    _, connect = await start(ConnectionLimits(max_connections_per_ip=1))
    first, second = await connect(), await connect()
    assert await second.is_closed()
    await first.is_served()


async def test_at_max_connections_a_newcomer_is_served_when_another_leaves(start: Start) -> None:
    server, connect = await start(ConnectionLimits(max_connections=1))
    first = await connect()
    await first.is_served()
    second = await connect()
    served = asyncio.ensure_future(second.is_served())
    await first.is_served()
    assert not served.done()
    assert server.connection_count == 2
    first.close()
    await served


async def test_a_peer_that_is_silent_for_too_long_is_closed_and_a_busy_one_is_not(start: Start) -> None:
    timers = ManualTimers()
    _, connect = await start(ConnectionLimits(max_idle_ms=IDLE_MS), timers=timers)
    silent, busy = await connect(), await connect()
    await silent.is_served()
    for _ in range(SWEEPS_PER_IDLE_TIME):
        await busy.is_served()
        timers.advance(IDLE_MS // SWEEPS_PER_IDLE_TIME)
        await silent.is_served()
    for _ in range(SWEEPS_PER_IDLE_TIME + 1):
        timers.advance(IDLE_MS // SWEEPS_PER_IDLE_TIME)
        await busy.is_served()
    assert await silent.is_closed()
    await busy.is_served()


async def test_a_peer_is_never_closed_before_its_idle_time_is_over(start: Start) -> None:
    timers = ManualTimers()
    _, connect = await start(ConnectionLimits(max_idle_ms=IDLE_MS), timers=timers)
    client = await connect()
    await client.is_served()
    timers.advance(IDLE_MS)
    await client.is_served()


async def test_scenario_155_a_peer_that_does_not_authenticate_in_time_is_closed_and_one_that_has_stays(
    start: Start,
) -> None:
    timers = ManualTimers()
    server, connect = await start(ConnectionLimits(max_idle_ms=None), timers=timers, authentication_timeout_ms=5000)
    slow, quick = await connect(), await connect()
    await slow.is_served()
    await quick.is_served()
    late, in_time = server.connections()
    assert not late.is_authenticated
    in_time.is_authenticated = True
    timers.advance(4999)
    await slow.is_served()
    timers.advance(1)
    assert await slow.is_closed()
    await quick.is_served()
    assert timers.armed() == []


async def test_one_timer_sweeps_all_idle_peers(start: Start) -> None:
    timers = ManualTimers()
    _, connect = await start(ConnectionLimits(max_idle_ms=IDLE_MS), timers=timers)
    for _ in range(5):
        await (await connect()).is_served()
    assert len(timers.armed()) == 1


async def test_a_server_that_stops_answers_requests_in_flight_and_accepts_no_connections(start: Start) -> None:
    owed: list[Deferred[HeartbeatResponse]] = []
    request_arrived = asyncio.Event()

    def heartbeat(request: HeartbeatRequest, context: RequestContext, broker: object) -> Answer:
        owed.append(Deferred())
        request_arrived.set()
        return owed[-1]

    server, connect = await start(handler=Handler(0, 4, call=heartbeat))
    client = await connect()
    client.writer.write(HEARTBEAT + HEARTBEAT)
    await request_arrived.wait()
    stopped = asyncio.ensure_future(server.stop(60))
    await asyncio.sleep(0)
    owed[0].resolve(HeartbeatResponse())
    await client.reader.readexactly(ANSWER_BYTES)
    assert await client.is_closed()
    await stopped
    assert len(owed) == 1
    with pytest.raises(OSError, match="Connect call failed"):
        await connect()


async def test_a_server_that_stops_does_not_wait_for_requests_that_wait_for_other_clients(start: Start) -> None:
    request_arrived = asyncio.Event()

    def poll(request: HeartbeatRequest, context: RequestContext, broker: object) -> Answer:
        request_arrived.set()
        return Deferred[HeartbeatResponse]()

    server, connect = await start(handler=Handler(0, 4, waits_for_others=True, call=poll))
    client = await connect()
    client.writer.write(HEARTBEAT)
    await request_arrived.wait()
    await server.stop(3600)
    assert await client.is_closed()


async def test_a_server_that_stops_waits_only_so_long_for_an_answer(start: Start) -> None:
    request_arrived = asyncio.Event()

    def stuck(request: HeartbeatRequest, context: RequestContext, broker: object) -> Answer:
        request_arrived.set()
        return Deferred[HeartbeatResponse]()

    server, connect = await start(handler=Handler(0, 4, call=stuck))
    client = await connect()
    client.writer.write(HEARTBEAT)
    await request_arrived.wait()
    await server.stop(0.01)
    assert await client.is_closed()


async def test_every_address_means_ipv4_and_ipv6_on_one_port_and_hosts_are_written_alike(start: Start) -> None:
    seen: list[str] = []

    def heartbeat(request: HeartbeatRequest, context: RequestContext, broker: object) -> Answer:
        seen.append(context.connection.client_host)
        return HeartbeatResponse()

    server = server_with({ApiKey.HEARTBEAT: Handler(0, 4, call=heartbeat)})
    socket = bind("", 0)
    await server.listen(socket)
    client = Client(*await asyncio.open_connection("127.0.0.1", socket.getsockname()[1]))
    await client.is_served()
    client.close()
    await server.stop(1)
    assert seen == ["127.0.0.1"]


def test_bind_reports_that_a_port_is_in_use() -> None:
    taken = bind("127.0.0.1", 0)
    taken.listen()
    with taken, pytest.raises(OSError, match="in use"):
        bind("127.0.0.1", taken.getsockname()[1])
