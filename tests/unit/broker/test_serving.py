"""Tests that a broker that cannot start frees its ports and its directory."""

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.broker.broker import Broker
from odradek.broker.registry.serving import bind_registry
from odradek.broker.runtime.starting import CannotStart
from odradek.broker.serving import Prepare, ServingBroker
from tests.support.metadata import config_with
from tests.support.ports import free_ports

KAFKA, PAGE, REGISTRY = "kafka", "page", "registry"


class Refusal(Exception):
    """The error for a seed that could not be applied."""


@pytest.fixture
def ports() -> Mapping[str, int]:
    return dict(zip((KAFKA, PAGE, REGISTRY), free_ports(3), strict=True))


def settings(directory: Path, ports: Mapping[str, int], **others: str) -> dict[str, str]:
    return {
        "log_dirs": str(directory),
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[KAFKA]}",
        "odradek_http_port": str(ports[PAGE]),
        "odradek_schema_registry_enable": "true",
        "odradek_schema_registry_port": str(ports[REGISTRY]),
    } | others


def failure(settings: Mapping[str, str], prepare: Prepare | None = None) -> BaseException:
    """Starts a broker and returns the error. While a test holds the error, the error's traceback keeps every object
    created by the start alive."""

    async def start() -> BaseException:
        serving = ServingBroker(config_with(**settings), asyncio.get_running_loop(), prepare=prepare)
        with pytest.raises((CannotStart, OSError, Refusal)) as error:
            await serving.start()
        return error.value

    return asyncio.run(start())


def starts(settings: Mapping[str, str]) -> None:
    async def start() -> None:
        serving = ServingBroker(config_with(**settings), asyncio.get_running_loop())
        await serving.start()
        await serving.stop(0)

    asyncio.run(start())


def require_free(port: int) -> None:
    """Fails if any socket is bound to the port, even a socket that does not listen."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))


@pytest.mark.parametrize("taken", [KAFKA, PAGE, REGISTRY])
def test_a_taken_port_frees_the_others(tmp_path: Path, ports: Mapping[str, int], taken: str) -> None:
    with socket.create_server(("127.0.0.1", ports[taken])):
        error = failure(settings(tmp_path, ports))
        for name, port in ports.items():
            if name != taken:
                require_free(port)
    assert str(ports[taken]) in str(error)
    starts(settings(tmp_path, ports))


def test_the_port_of_the_registry_accepts_connections_before_the_registry_serves(
    tmp_path: Path, ports: Mapping[str, int]
) -> None:
    with bind_registry(config_with(**settings(tmp_path, ports))):
        socket.create_connection(("127.0.0.1", ports[REGISTRY])).close()


def test_a_seed_that_fails_frees_ports_and_directory(tmp_path: Path, ports: Mapping[str, int]) -> None:
    async def refuse(broker: Broker) -> None:
        raise Refusal

    error = failure(settings(tmp_path, ports), refuse)
    for port in ports.values():
        require_free(port)
    assert isinstance(error, Refusal)
    starts(settings(tmp_path, ports))


def test_a_limit_that_cannot_be_read_frees_ports_and_directory(tmp_path: Path, ports: Mapping[str, int]) -> None:
    error = failure(settings(tmp_path, ports, max_connections_per_ip_overrides="nowhere.invalid:5"))
    for port in ports.values():
        require_free(port)
    assert "nowhere.invalid" in str(error)
    starts(settings(tmp_path, ports))


def test_a_port_that_is_taken_between_bind_and_listen_frees_ports_and_directory(
    tmp_path: Path, ports: Mapping[str, int]
) -> None:
    with socket.socket() as rival:
        rival.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        rival.bind(("127.0.0.1", ports[KAFKA]))

        async def be_faster(broker: Broker) -> None:
            rival.listen()

        error = failure(settings(tmp_path, ports), be_faster)
        require_free(ports[PAGE])
        require_free(ports[REGISTRY])
    require_free(ports[KAFKA])
    assert isinstance(error, OSError)
    starts(settings(tmp_path, ports))
