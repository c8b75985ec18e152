"""Tests that the garbage collector does not run while coordinators are loading, and runs again when all of them have
loaded."""

from __future__ import annotations

import asyncio
import gc

import pytest

from odradek.broker.broker import Broker
from odradek.protocol.topic_partition import GROUP_OFFSETS
from tests.support.metadata import config_with


async def load_until(ended: asyncio.Future[None], *, fails: bool) -> None:
    await ended
    if fails:
        raise ValueError("a bug")


@pytest.mark.parametrize("fails", [False, True])
def test_no_collection_runs_until_the_last_coordinator_has_loaded(fails: bool) -> None:
    asyncio.run(load_two(fails))


async def load_two(fails: bool) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    broker = Broker(config_with(), loop)
    first, second = loop.create_future(), loop.create_future()
    try:
        broker.load(load_until(first, fails=fails), GROUP_OFFSETS)
        broker.load(load_until(second, fails=False), GROUP_OFFSETS)
        first.set_result(None)
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.0)
        assert not gc.isenabled()
        second.set_result(None)
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.0)
        assert gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()
