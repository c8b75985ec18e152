"""Finds unused ports on this machine."""

import socket


def free_ports(count: int) -> list[int]:
    """Returns `count` different ports. Another process may claim one of them before the test does."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def free_port() -> int:
    (port,) = free_ports(1)
    return port
