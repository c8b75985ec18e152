"""Runs the registry's requests. Decisions are made on the event loop, one at a time if they write. Schemas are parsed
in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from odradek.broker.runtime.workers import Workers, in_thread
from odradek.registry.facts import GatheredFacts, NotGathered, ParsedSchemas

if TYPE_CHECKING:
    from odradek.broker.registry.topic import SchemaTopic
    from odradek.registry.core import Registry
    from odradek.registry.records import RegistryRecord

T = TypeVar("T")

# Maximum number of threads that parse or compare schemas at the same time. The broker's other threads remain free for
# other work. Large schemas have a separate thread, so they delay only one another.
THREADS: Final = 2
THREADS_FOR_LARGE_SCHEMAS: Final = 1
LARGE_BYTES: Final = 64 << 10


class RegistryService:
    """Runs requests against one registry and its topic.

    lock  held between a decision and its replay, so that two requests that register the same schema get the same id. No
          schema is parsed while the lock is held
    """

    def __init__(self, registry: Registry, topic: SchemaTopic, workers: Workers) -> None:
        self.registry = registry
        self.lock = asyncio.Lock()
        self._topic = topic
        self._workers = workers
        self._schemas = ParsedSchemas()
        self._threads = asyncio.Semaphore(THREADS)
        self._threads_for_large = asyncio.Semaphore(THREADS_FOR_LARGE_SCHEMAS)

    async def change(self, decide: Callable[[Registry], tuple[T, list[RegistryRecord]]]) -> T:
        """Makes a decision and writes its records. Raises RegistryError, or KafkaError if the records could not be
        written."""
        facts = GatheredFacts()
        registry = self.registry.using(facts)
        while True:
            try:
                async with self.lock:
                    answer, records = decide(registry)
                    if records:
                        await self._topic.write(records)
                    return answer
            except NotGathered as missing:
                await self._gather(facts, missing)

    async def parse(self, look: Callable[[Registry], T]) -> T:
        """Answers a request that parses schemas but writes nothing."""
        facts = GatheredFacts()
        registry = self.registry.using(facts)
        while True:
            try:
                return look(registry)
            except NotGathered as missing:
                await self._gather(facts, missing)

    async def in_thread(self, job: Callable[[], T]) -> T:
        """Runs a short job in a thread. The job waits in the same queue as requests that parse small schemas."""
        async with self._threads:
            return await in_thread(self._workers, job)

    async def _gather(self, facts: GatheredFacts, missing: NotGathered) -> None:
        """Determines one fact in a thread. After each fact, the request returns to the back of the queue, so that a
        request that compares many schemas does not block other requests."""
        async with self._threads_for_large if missing.size > LARGE_BYTES else self._threads:
            facts.add(missing, await in_thread(self._workers, lambda: missing.work(self._schemas)))
