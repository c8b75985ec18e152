"""The broker: who is there, in which order they come to life, and in which they end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace


class CannotStart(Exception):
    """What keeps the broker from serving, in words for the person who started it."""


class Broker:
    def __init__(self, config, loop) -> None:
        from broker.clock import SystemClock, LoopTimers

        self.config = config
        self.loop = loop
        self.clock = SystemClock()
        self.timers = LoopTimers(loop)
        from broker.metadata.image import MetadataImage

        self.metadata = SimpleNamespace(image=MetadataImage())

    async def start(self):
        from broker.dispatch import Dispatcher
        from broker.limits import ConnectionLimits
        from broker.server import Server

        self.server = Server(Dispatcher(self, self.clock), ConnectionLimits(), self.timers, self.loop)
        listener = self.config.serving[0]
        port = await self.server.listen(listener.host or None, listener.port)
        self.advertised = self.config.advertised({listener.name: port}, lambda: "localhost")
        self.cluster_id = "?"

    async def stop(self, t):
        await self.server.stop(t)
