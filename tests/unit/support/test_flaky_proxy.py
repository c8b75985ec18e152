"""Tests that the flaky proxy delivers every request and loses only the responses that a test selects."""

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.flaky_proxy import FlakyProxy
from tests.support.wire import ClosedByBroker, Wire

PRODUCE, FETCH = 0, 1


class Echo:
    """A server that answers each frame with the frame's correlation id and stores the frames."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while head := stream.read(4):
                frame = stream.read(int.from_bytes(head))
                self.received.append(frame)
                connection.sendall((4).to_bytes(4) + frame[4:8])


@pytest.fixture
def echo() -> Iterator[Echo]:
    found = Echo()
    yield found
    found.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FlakyProxy]:
    with FlakyProxy() as found:
        found.target = echo.address
        yield found


def frame(api_key: int, correlation_id: int) -> bytes:
    body = api_key.to_bytes(2) + (9).to_bytes(2) + correlation_id.to_bytes(4)
    return len(body).to_bytes(4) + body


def ask(wire: Wire, api_key: int, correlation_id: int) -> bytes:
    wire.send_bytes(frame(api_key, correlation_id))
    return wire.receive_bytes()


def test_frames_pass_both_ways(proxy: FlakyProxy) -> None:
    with Wire(proxy.bootstrap) as wire:
        assert [ask(wire, FETCH, n) for n in range(3)] == [n.to_bytes(4) for n in range(3)]
    assert (proxy.request_count(FETCH), proxy.request_count(PRODUCE)) == (3, 0)


def test_a_lost_answer_closes_the_connection_after_the_request_was_delivered(proxy: FlakyProxy, echo: Echo) -> None:
    proxy.loses = lambda key, _version, seen: key == PRODUCE and seen == 1
    with Wire(proxy.bootstrap) as wire:
        assert ask(wire, PRODUCE, 1) == (1).to_bytes(4)
        with pytest.raises(ClosedByBroker):
            ask(wire, PRODUCE, 2)
    assert [one[4:8] for one in echo.received] == [(1).to_bytes(4), (2).to_bytes(4)]
    assert proxy.lost == [PRODUCE]
    with Wire(proxy.bootstrap) as wire:
        assert ask(wire, PRODUCE, 3) == (3).to_bytes(4)


def test_cutting_ends_the_connections_of_now_and_not_later_ones(proxy: FlakyProxy) -> None:
    with Wire(proxy.bootstrap) as wire:
        ask(wire, FETCH, 1)
        proxy.cut_all()
        with pytest.raises(ClosedByBroker):
            ask(wire, FETCH, 2)
    assert proxy.cuts == 1
    with Wire(proxy.bootstrap) as wire:
        assert ask(wire, FETCH, 3) == (3).to_bytes(4)
