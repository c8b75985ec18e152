"""Measures the dispatcher without a real handler: `python -m bench.dispatch` prints µs of CPU per request.

The handler answers a Heartbeat immediately, so the figure covers only the header, the body, the context, the counters
and the encoding.
"""

import asyncio
import time

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.api.dispatch import Dispatcher
from odradek.broker.runtime.clock import SystemClock
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse

ROUNDS, REQUESTS = 15, 20_000
VERSION = 4


def measure() -> float:
    """Returns the CPU time per request in µs, from the fastest round. Disturbances only add time, so the minimum is the
    most accurate figure."""
    answer = HeartbeatResponse()
    dispatcher = Dispatcher(None, SystemClock(), lambda _: lambda *_: answer)
    request = HeartbeatRequest(group_id="readers", generation_id=1, member_id="member")
    frame = memoryview(request_bytes(request, VERSION, 7, "client")[4:])
    connection = ConnectionInfo(1, "127.0.0.1", 50_000)
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(REQUESTS):
            dispatcher.start(frame, connection)
        best = min(best, time.process_time() - started)
    return best / REQUESTS * 1e6


async def main() -> None:
    print(f"dispatch {measure():.2f} µs per request")


if __name__ == "__main__":
    asyncio.run(main())
