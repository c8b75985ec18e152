"""Tests that schema registrations do not block other requests if a thread takes a long time to parse the schema."""

import asyncio
from collections.abc import Callable
from typing import Any

from odradek.broker.registry.service import RegistryService
from odradek.broker.runtime.workers import JobResult, outcome_of
from odradek.registry.core import Registration, Registry
from odradek.registry.facts import SchemaSource
from odradek.registry.records import RegistryRecord
from odradek.registry.schemas import SchemaText

SMALL = SchemaText("AVRO", '"string"')
LARGE = SchemaText("AVRO", '{"type":"fixed","size":1,"name":"' + "a" * 100_000 + '"}')


class HeldWorkers:
    """Runs each job immediately. While `is_holding` is set, stores jobs in `held` instead, so that the test can run
    them later."""

    def __init__(self) -> None:
        self.is_holding = False
        self.held: list[Callable[[], None]] = []

    def run(self, job: Callable[[], Any], then: Callable[[JobResult[Any]], None]) -> None:
        if self.is_holding:
            self.held.append(lambda: then(outcome_of(job)))
        else:
            then(outcome_of(job))


class WrittenAtOnce:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def write(self, records: list[RegistryRecord]) -> None:
        for each in records:
            self._registry.state.replay(each)


def service_with(workers: HeldWorkers) -> RegistryService:
    registry = Registry()
    topic: Any = WrittenAtOnce(registry)
    return RegistryService(registry, topic, workers)


def registration(service: RegistryService, subject: str, text: SchemaText) -> asyncio.Task[int]:
    return asyncio.ensure_future(service.change(lambda registry: registry.register(subject, Registration(text))))


async def held(service: RegistryService, workers: HeldWorkers, subject: str, text: SchemaText) -> asyncio.Task[int]:
    """Starts a registration and returns it while its schema is still being parsed."""
    workers.is_holding = True
    waiting = registration(service, subject, text)
    while not workers.held:
        await asyncio.sleep(0)
    workers.is_holding = False
    return waiting


async def test_a_schema_that_is_being_parsed_holds_no_other_request() -> None:
    workers = HeldWorkers()
    service = service_with(workers)
    slow = await held(service, workers, "slow", LARGE)
    assert await registration(service, "quick", SMALL) == 1
    assert service.registry.version("quick", 1).text == SMALL
    workers.held.pop()()
    assert await slow == 2


async def test_a_second_large_schema_waits_for_the_first_one() -> None:
    workers = HeldWorkers()
    service = service_with(workers)
    first = await held(service, workers, "a", LARGE)
    second = registration(service, "b", LARGE)
    await asyncio.sleep(0)
    assert not second.done()
    workers.held.pop()()
    assert [await first, await second] == [1, 1]


async def test_a_registration_that_was_overtaken_is_decided_by_the_new_state() -> None:
    workers = HeldWorkers()
    service = service_with(workers)
    slow = await held(service, workers, "same", SMALL)
    assert await registration(service, "same", SMALL) == 1
    workers.held.pop()()
    assert await slow == 1
    assert service.registry.numbers("same") == [1]


def test_the_size_of_a_source_counts_its_references() -> None:
    assert SchemaSource(SMALL).size == 8
