"""Tests that bytes that arrive before the connection can accept them are kept in order, on either event loop."""

import asyncio
from collections.abc import Callable

import pytest

from odradek.broker.network.admission import ConnectionLimits
from odradek.broker.network.server import bind
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from tests.support.peer import Handler, server_with

uvloop = pytest.importorskip("uvloop")

HEARTBEAT = request_bytes(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 1, "test")
ANSWER_BYTES = 4 + 4 + 1 + 4 + 2 + 1
REQUESTS = 2000  # more bytes than a loop reads in one call


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_requests_that_arrive_while_the_broker_is_full_are_answered_later(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def answered_beside_a_full_broker() -> int:
        answered = 0

        def heartbeat(request: HeartbeatRequest, context: object, broker: object) -> HeartbeatResponse:
            nonlocal answered
            answered += 1
            return HeartbeatResponse()

        limits = ConnectionLimits(max_connections=1)
        server = server_with({ApiKey.HEARTBEAT: Handler(0, 4, call=heartbeat)}, limits=limits)
        bound = bind("127.0.0.1", 0)
        port = bound.getsockname()[1]
        await server.listen(bound)
        first_reader, first = await asyncio.open_connection("127.0.0.1", port)
        first.write(HEARTBEAT)
        await first_reader.readexactly(ANSWER_BYTES)
        reader, waiting = await asyncio.open_connection("127.0.0.1", port)
        waiting.write(HEARTBEAT * REQUESTS)
        for _ in range(20):  # the loop is running, but the connection does not accept the bytes yet
            first.write(HEARTBEAT)
            await first_reader.readexactly(ANSWER_BYTES)
        assert answered == 21
        first.close()
        await reader.readexactly(ANSWER_BYTES * REQUESTS)
        waiting.close()
        await server.stop(0)
        return answered

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(answered_beside_a_full_broker()) == 21 + REQUESTS
