"""Queries that write through `odradek.spark.two_phase` as Spark does, but without Spark. Tests can stop a driver at any
step."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from odradek.client import Admin, Consumer, Producer, TopicPartition
from odradek.spark.brokers import Brokers
from odradek.spark.ledger import ONGOING, read_entries
from odradek.spark.names import Sink
from odradek.spark.steps import CommitStep, Observe, observe_nothing
from odradek.spark.two_phase import TwoPhaseSink, Vote, wall_clock_ms

PARTITIONS = 2
ROWS = 3  # number of rows per task


class Crash(Exception):
    """Raised to make the driver die in a way that its own code can observe."""


class Stop:
    """Stops a driver at a step until `go_on` is called, or makes it crash there."""

    def __init__(self, step: CommitStep, number: int = 0, *, crashes: bool = False) -> None:
        self._at = (step, number)
        self._crashes = crashes
        self.reached = asyncio.Event()
        self._continue = asyncio.Event()

    async def __call__(self, step: CommitStep, number: int) -> None:
        if (step, number) != self._at or self.reached.is_set():
            return
        self.reached.set()
        if self._crashes:
            raise Crash(step.name)
        await self._continue.wait()

    def go_on(self) -> None:
        self._continue.set()


@dataclass(slots=True)
class Query:
    """A query and its checkpoint. `next_batch` is the batch that Spark would write next."""

    bootstrap: str
    topic: str
    sink: Sink = field(default_factory=lambda: Sink("spark", str(uuid.uuid4())))
    next_batch: int = 0
    drivers: list[Driver] = field(default_factory=list)

    @property
    def brokers(self) -> Brokers:
        return Brokers(self.bootstrap)

    def driver(
        self,
        observe: Observe = observe_nothing,
        kind: type[TwoPhaseSink] = TwoPhaseSink,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> Driver:
        """Starts a new run of the query."""
        sink = kind(self.brokers, self.sink, observe=observe, clock_ms=clock_ms)
        self.drivers.append(Driver(self, uuid.uuid4().hex, sink))
        return self.drivers[-1]

    async def prepare(self, run: str, batch: int, partition: int, attempt: int = 0) -> Vote:
        """Does the work of a task and returns the task's vote. The task's producer is closed afterwards."""
        name = self.sink.task_id(run, batch, partition, attempt, uuid.uuid4().hex[:8])
        async with Producer(
            bootstrap_servers=self.bootstrap, transactional_id=name, two_phase_commit=True, linger_ms=0
        ) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            for value in rows(batch, partition):
                await producer.send(self.topic, value, partition=partition)
            state = await producer.prepare_transaction()
        return Vote(self.sink.query, run, partition, attempt, name, state, ROWS, 100, batch + partition)

    async def recover(self, run: str | None = None) -> None:
        sink = TwoPhaseSink(self.brokers, self.sink)
        await sink.recover(run)
        await sink.close()

    async def check(self) -> None:
        """Runs a recovery, then checks that the output contains exactly the committed batches and that no transaction
        is open."""
        await self.recover()
        decided = (await read_entries(self.brokers, self.sink))[self.sink.name].batch
        expected = Counter(
            value for batch in range(decided + 1) for partition in range(PARTITIONS) for value in rows(batch, partition)
        )
        async with Admin(bootstrap_servers=self.bootstrap) as admin:
            left = await admin.list_transactions(states=[ONGOING], transactional_id_pattern=self.sink.pattern())
        assert left == []
        found = Counter(await committed_values(self.bootstrap, self.topic))
        assert found == expected, f"lost {expected - found}, invented or twice {found - expected}"
        assert decided >= self.next_batch - 1, "a batch that Spark takes for done"

    async def close(self) -> None:
        for driver in self.drivers:
            await driver.close()


@dataclass(slots=True)
class Driver:
    query: Query
    run: str
    sink: TwoPhaseSink
    votes: Sequence[Vote] = ()
    batch: int = 0
    committing: asyncio.Task[None] | None = None

    async def prepare(self, batch: int | None = None) -> None:
        """Runs the tasks of the next batch."""
        self.batch = self.query.next_batch if batch is None else batch
        self.votes = await asyncio.gather(
            *(self.query.prepare(self.run, self.batch, partition) for partition in range(PARTITIONS))
        )

    async def commit(self) -> None:
        """Commits as Spark does: if the commit raises an exception, the batch is aborted; otherwise it is recorded as
        done."""
        try:
            await self.sink.commit(self.votes, self.batch)
        except Exception:
            await self.sink.abort(self.votes, self.batch)
            raise
        self.query.next_batch = max(self.query.next_batch, self.batch + 1)

    async def write(self) -> None:
        await self.prepare()
        await self.commit()

    async def write_until(self, stop: Stop) -> None:
        """Writes until the driver has stopped at the step given by `stop`."""
        await self.prepare()
        self.committing = asyncio.create_task(self.commit())
        await asyncio.wait_for(stop.reached.wait(), 30)

    async def ended(self) -> BaseException | None:
        """Waits for the stopped commit to finish. Returns its exception, or None."""
        assert self.committing is not None
        return (await asyncio.gather(self.committing, return_exceptions=True))[0]

    async def close(self) -> None:
        if self.committing is not None and not self.committing.done():
            self.committing.cancel()
            with suppress(asyncio.CancelledError):
                await self.committing
        await self.sink.close()


def rows(batch: int, partition: int) -> list[bytes]:
    """Returns the values that a task writes. A replay of the batch writes the same values."""
    return [b"%d.%d.%d" % (batch, partition, number) for number in range(ROWS)]


async def committed_values(bootstrap: str, topic: str) -> list[bytes]:
    """Returns all committed values after every transaction in the topic has received its markers."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    async with (
        Consumer(bootstrap_servers=bootstrap) as committed,
        Consumer(bootstrap_servers=bootstrap, isolation_level="read_uncommitted") as every,
    ):
        ends = await every.end_offsets(partitions)
        async with asyncio.timeout(120):
            while await committed.end_offsets(partitions) != ends:
                await asyncio.sleep(0.01)
                ends = await every.end_offsets(partitions)
        committed.assign(partitions)
        committed.seek_to_beginning()
        found: list[bytes] = []
        while [await committed.position(each) for each in partitions] != [ends[each] for each in partitions]:
            for records in (await committed.getmany(timeout_ms=20)).values():
                found += [record.value or b"" for record in records]
        return found
