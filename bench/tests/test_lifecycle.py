"""Tests that rows that start and stop brokers fail if a broker does not start, instead of waiting forever."""

import signal
import socket
from pathlib import Path
from threading import Thread

import pytest

from bench.lifecycle import free_port, until_led
from tests.support.broker_process import Broker


class ClosingBroker(Broker):
    """A broker that accepts connections but closes each one, as if it did not serve requests yet."""

    name = "closing"

    def __init__(self, data_dir: Path, connections: int | None) -> None:
        """Creates the broker. It stops after closing `connections` connections, or runs forever if `connections` is
        None."""
        super().__init__(data_dir, port=free_port())
        self._left = connections
        self._server: socket.socket | None = None

    def is_running(self) -> bool:
        return self._server is not None

    def log_text(self) -> str:
        return ""

    def _start(self) -> None:
        self._server = socket.create_server(("127.0.0.1", self.port))
        Thread(target=self._close_connections, args=(self._server,), daemon=True).start()

    def _close_connections(self, server: socket.socket) -> None:
        with server:
            while self._left is None or self._left > 0:
                server.accept()[0].close()
                self._left = None if self._left is None else self._left - 1
        self._server = None

    def _end(self, how: signal.Signals) -> None:
        raise AssertionError("it is not ended")


def test_a_broker_that_ends_while_it_starts_fails_the_row(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the broker ended"):
        until_led(ClosingBroker(tmp_path, connections=3), ["t"])


def test_a_broker_that_never_serves_fails_the_row(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="still closes connections"):
        until_led(ClosingBroker(tmp_path, connections=None), ["t"], timeout_s=0.1)
