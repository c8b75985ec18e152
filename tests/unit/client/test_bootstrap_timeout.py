"""Tests that `bootstrap_timeout_ms` lets a client start before its broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek.client import Admin, Consumer, Producer, RetriableError
from tests.support.ports import free_port
from tests.unit.client.scripted_broker import ScriptedBroker

CLIENTS = pytest.mark.parametrize("client", [Producer, Consumer, Admin])
HOUR_MS = 60 * 60 * 1000


def a_client(client: Callable[..., Any], port: int, **settings: float) -> Any:
    return client(bootstrap_servers=f"127.0.0.1:{port}", retry_backoff_ms=1, retry_backoff_max_ms=5, **settings)


@CLIENTS
async def test_a_client_waits_for_a_broker_that_is_away(client: Callable[..., Any]) -> None:
    port = free_port()
    waiting = a_client(client, port, bootstrap_timeout_ms=HOUR_MS)
    starting = asyncio.ensure_future(waiting.start())
    # Gives the client time for a first attempt. If no attempt had failed, the test would prove nothing.
    await asyncio.sleep(0.02)
    broker = ScriptedBroker(port=port)
    server = await asyncio.start_server(broker.accept, "127.0.0.1", port)
    await starting
    await waiting.close()
    server.close()
    await asyncio.gather(*broker.serving)


@CLIENTS
async def test_a_client_does_not_wait_for_a_broker_by_default(client: Callable[..., Any]) -> None:
    with pytest.raises(RetriableError):
        await a_client(client, free_port()).start()


async def test_the_error_after_the_timeout_names_the_unreachable_broker() -> None:
    port = free_port()
    with pytest.raises(RetriableError, match=f"127.0.0.1:{port}"):
        await a_client(Admin, port, bootstrap_timeout_ms=20).start()


async def test_a_start_that_is_cancelled_ends_at_once() -> None:
    producer = a_client(Producer, free_port(), bootstrap_timeout_ms=HOUR_MS)
    starting = asyncio.ensure_future(producer.start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
