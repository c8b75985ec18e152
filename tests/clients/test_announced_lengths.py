"""Tests that the broker allocates no memory for long frames that peers announce but do not send. Allocating it would
let peers exhaust the broker's memory."""

import socket
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess

CONNECTIONS = 100
ANNOUNCED_BYTES = 100_000_000
ALLOWED_GROWTH_KIB = 60 * 1024


def resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


@pytest.mark.known_bug(58, "another broker")
def test_a_hundred_announced_frames_of_100_mb_allocate_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        assert broker.pid is not None
        first = ask_api_versions(broker.port)
        before_kib = resident_kib(broker.pid)
        peers = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(CONNECTIONS)]
        for peer in peers:
            peer.sendall(ANNOUNCED_BYTES.to_bytes(4, "big") + b"\x00\x00\x00\x09\x00\x00\x00\x01")
        # This connection is the last one, so its response shows that the broker has read all announced lengths.
        assert ask_api_versions(broker.port) == first
        grown_kib = resident_kib(broker.pid) - before_kib
        for peer in peers:
            peer.close()
    assert grown_kib < ALLOWED_GROWTH_KIB


def ask_api_versions(port: int) -> bytes:
    request = bytes.fromhex("0012000000000001000570726f6265")
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(len(request).to_bytes(4, "big") + request)
        answer = peer.makefile("rb")
        return answer.read(int.from_bytes(answer.read(4), "big"))
