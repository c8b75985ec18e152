"""Tests that sockets and connection limits can be configured with Kafka's settings, and that an error names the
cause."""

import re
import socket

import pytest

from odradek.broker.configuration.config import BrokerConfig, configure
from odradek.broker.configuration.listeners import Listener
from odradek.broker.network.admission import ConnectionLimits
from odradek.broker.network.listening import bind_listener, connection_limits
from odradek.broker.runtime.starting import CannotStart

HERE = Listener("PLAINTEXT", "127.0.0.1", 0)


def configured(**settings: str) -> BrokerConfig:
    return configure({}, {}, {name.replace("_", "."): value for name, value in settings.items()})[0]


def test_limits_are_kafkas_defaults() -> None:
    assert connection_limits(configured()) == ConnectionLimits(
        max_request_bytes=104_857_600,
        max_idle_ms=600_000,
        max_connections=2_147_483_647,
        max_connections_per_ip=2_147_483_647,
        max_connections_per_ip_overrides={},
        queued_max_request_bytes=None,
        accept_backlog=50,
    )


def test_every_limit_can_be_set_by_kafkas_name() -> None:
    config = configured(
        socket_request_max_bytes="1000",
        connections_max_idle_ms="2000",
        max_connections="3",
        max_connections_per_ip="4",
        max_connections_per_ip_overrides="127.0.0.1:5, localhost:6",
        queued_max_request_bytes="7000",
        socket_listen_backlog_size="8",
    )
    assert connection_limits(config) == ConnectionLimits(1000, 2000, 3, 4, {"127.0.0.1": 6}, 7000, 8)


def test_a_negative_idle_time_means_that_nobody_is_ever_idle() -> None:
    assert connection_limits(configured(connections_max_idle_ms="-1")).max_idle_ms is None


def test_an_override_for_a_host_that_cannot_be_found_is_refused_by_name() -> None:
    with pytest.raises(CannotStart, match=re.escape("the host nowhere.invalid")):
        connection_limits(configured(max_connections_per_ip_overrides="nowhere.invalid:5"))


def test_a_port_that_is_taken_is_refused_with_what_to_do() -> None:
    with bind_listener(HERE, configured()) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotStart, match=f"port {port} is taken .*--port"):
            bind_listener(Listener("PLAINTEXT", "127.0.0.1", port), configured())


def test_an_address_of_another_machine_is_refused_by_name() -> None:
    with pytest.raises(CannotStart, match=re.escape("cannot listen on 192.0.2.1:0")):
        bind_listener(Listener("PLAINTEXT", "192.0.2.1", 0), configured())


def test_socket_buffers_are_set_where_they_are_given_and_left_to_the_kernel_otherwise() -> None:
    with (
        bind_listener(HERE, configured()) as usual,
        bind_listener(HERE, configured(socket_receive_buffer_bytes="30000", socket_send_buffer_bytes="20000")) as given,
    ):
        for option, size_bytes in ((socket.SO_RCVBUF, 30_000), (socket.SO_SNDBUF, 20_000)):
            ours = given.getsockopt(socket.SOL_SOCKET, option)
            assert ours >= size_bytes
            assert ours != usual.getsockopt(socket.SOL_SOCKET, option)
