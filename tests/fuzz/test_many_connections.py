"""Tests that other clients are not affected by peers that open thousands of connections, or that send their requests
byte by byte.

Source: docs/spec/security.md#s5
"""

import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from tests.support.broker_process import Broker, BrokerProcess
from tests.support.wire import Wire

MANY = 10_000
FILES_BESIDE = 500  # The test and the broker may each have this many other files open.
MAX_BYTES_EACH = 8 * 1024  # memory that the broker may use for each connection that sends no requests
SLOW_PEERS = 500


def as_many_as_allowed() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < min(hard, MANY + FILES_BESIDE):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, MANY + FILES_BESIDE), hard))
    return min(MANY, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - FILES_BESIDE)


@contextmanager
def connections(broker: Broker, count: int) -> Iterator[list[socket.socket]]:
    found: list[socket.socket] = []
    try:
        for _ in range(count):
            found.append(socket.create_connection((broker.host, broker.port), 60))
        yield found
    finally:
        for each in found:
            each.close()


def memory_bytes(broker: Broker) -> int:
    """Returns the broker's resident memory."""
    assert broker.pid is not None
    return int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1]) * resource.getpagesize()


def ask(wire: Wire) -> None:
    assert wire.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == 0


def test_ten_thousand_connections_are_opened_and_left(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, Wire(broker.bootstrap, timeout_s=60) as early:
        ask(early)
        count, before = as_many_as_allowed(), memory_bytes(broker)
        with connections(broker, count):
            ask(early)
            with Wire(broker.bootstrap, timeout_s=60) as late:
                ask(late)
            assert memory_bytes(broker) - before < count * MAX_BYTES_EACH
        ask(early)
        with connections(broker, count // 5), Wire(broker.bootstrap, timeout_s=60) as late:
            ask(late)
            # The broker reuses the memory of the first connections.
            assert memory_bytes(broker) - before < count * MAX_BYTES_EACH


def test_peers_that_send_their_requests_byte_by_byte_keep_nobody_waiting(tmp_path: Path) -> None:
    frame = request_bytes(ApiVersionsRequest(), 0, 1, "slow")
    with (
        BrokerProcess(tmp_path / "data") as broker,
        Wire(broker.bootstrap, timeout_s=60) as quick,
        connections(broker, SLOW_PEERS) as slow,
    ):
        ask(quick)
        before = memory_bytes(broker)
        for position in range(len(frame) - 1):
            for each in slow:
                each.sendall(frame[position : position + 1])
            ask(quick)
        assert memory_bytes(broker) - before < SLOW_PEERS * MAX_BYTES_EACH
        for each in slow:
            each.sendall(frame[-1:])
        assert all(len(each.recv(4)) == 4 for each in slow)
