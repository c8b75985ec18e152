"""Runs the requests of the registry: one after the other if they write, beside the loop if they parse schemas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from odradek.broker.runtime.workers import Workers, in_thread

if TYPE_CHECKING:
    from odradek.broker.registry.topic import SchemaTopic
    from odradek.registry.core import Registry
    from odradek.registry.records import RegistryRecord

T = TypeVar("T")


class RegistryService:
    def __init__(self, registry: Registry, topic: SchemaTopic, workers: Workers) -> None:
        self.registry = registry
        self._topic = topic
        self._workers = workers
        # Held while a thread looks at the state, so that nothing changes meanwhile, and between a decision and its
        # replay, so that two requests that register the same schema get one id.
        self.lock = asyncio.Lock()

    async def change(self, decide: Callable[[Registry], tuple[T, list[RegistryRecord]]]) -> T:
        """Decides beside the loop, and writes what was decided. Raises RegistryError, or KafkaError if the records
        could not be written."""
        async with self.lock:
            answer, records = await in_thread(self._workers, lambda: decide(self.registry))
            if records:
                await self._topic.write(records)
            return answer

    async def parse(self, look: Callable[[Registry], T]) -> T:
        """Answers beside the loop a request that parses schemas and writes nothing."""
        async with self.lock:
            return await in_thread(self._workers, lambda: look(self.registry))
