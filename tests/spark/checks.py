"""Queries that write predictable rows, and the checks that their output must pass (docs/spec/spark.md#s9)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek.client import TopicPartition
from odradek.client.sync import Admin
from odradek.protocol.key_partition import partition_for_key
from odradek.spark.brokers import Brokers
from odradek.spark.ledger import LEDGER_TOPIC, ONGOING, LedgerEntry, read_entries
from odradek.spark.names import Sink
from odradek.spark.two_phase import TwoPhaseSink
from tests.clients.speakers import wait_for
from tests.spark.faults import FORMAT, Plan
from tests.support.broker_process import Broker
from tests.support.spark_queries import committed_values
from tests.support.spark_session import is_late

ROWS = 40  # rows per batch
PATIENCE_S = 250.0  # limit for work that takes seconds on an idle machine
STARTS = 4
LATE_STARTS = 10


@dataclass(slots=True)
class Numbers:
    """A query that writes consecutive numbers from 0, ROWS per batch. A repeated batch contains the same numbers."""

    spark: Any
    broker: Broker
    output: str
    checkpoint: str
    starts: int = 0  # number of starts, excluding those that failed because the machine was slow
    late: int = 0
    query: Any = None

    def start(self, plan: Plan | None = None) -> Any:
        self.starts += 1
        chosen = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "topic": self.output,
            "checkpointLocation": self.checkpoint,
        }
        self.query = (
            self.spark.readStream.format("rate-micro-batch")
            .options(rowsPerBatch=str(ROWS), numPartitions="2")
            .load()
            .selectExpr("cast(value as string) value")
            .writeStream.format("odradek" if plan is None else FORMAT)
            .options(**chosen, **({} if plan is None else {"fault": plan.option()}))
            .start()
        )
        return self.query

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()

    def done(self, batch: int) -> bool:
        """Returns whether Spark considers the batch done."""
        return Path(self.checkpoint, "commits", str(batch)).exists()

    def run(self, last_batch: int, plan: Plan | None = None, until: Callable[[], bool] = lambda: True) -> None:
        """Runs the query until the batch is done. Restarts the query whenever it fails."""
        while not (self.done(last_batch) and until()):
            assert self.starts < STARTS, f"fails again and again: {self.query.exception()}"
            query = self.start(plan)
            wait_for(
                f"batch {last_batch}",
                lambda query=query: not query.isActive or (self.done(last_batch) and until()),  # type: ignore[misc]
                PATIENCE_S,
            )
            query.stop()
            self._forget_late(query)

    def run_until(self, what: str, condition: Callable[[], bool], plan: Plan | None = None) -> Any:
        """Starts the query and returns it when the condition holds or the query has failed. Starts it again if it
        failed only because the machine was slow."""
        while True:
            query = self.start(plan)
            wait_for(what, lambda query=query: condition() or not query.isActive, PATIENCE_S)  # type: ignore[misc]
            if condition() or not self._forget_late(query):
                return query

    def go_on(self, what: str, condition: Callable[[], bool]) -> None:
        """Waits until the condition holds, and checks that the running query has not failed."""
        wait_for(what, lambda: condition() or not self.query.isActive, PATIENCE_S)
        if is_late(self.query):
            self.run_until(what, condition)
        assert self.query.exception() is None

    def _forget_late(self, query: Any) -> bool:
        if not is_late(query):
            return False
        self.starts -= 1
        self.late += 1
        assert self.late < LATE_STARTS, "the machine is too slow for Spark"
        return True

    def check(self) -> int:
        """Stops the query and recovers its sink. Then checks that each number in the decided batches was written once,
        and that no transaction is open.

        Returns the last decided batch.
        """
        self.query.stop()
        return asyncio.run(checked(self.broker.bootstrap, self.output, Sink("spark", self.query.id)))


def finished(start: Callable[[], Any]) -> Any:
    """Starts a query with Trigger.AvailableNow, and returns it when it has read all records or has failed."""
    for _ in range(LATE_STARTS):
        query = start()
        wait_for("the end of the query", lambda query=query: not query.isActive, PATIENCE_S)  # type: ignore[misc]
        if not is_late(query):
            return query
    raise AssertionError(f"the machine is too slow for Spark: {query.exception()}")


async def checked(bootstrap: str, output: str, sink: Sink) -> int:
    brokers = Brokers(bootstrap)
    two_phase = TwoPhaseSink(brokers, sink)
    await two_phase.recover()
    left = await two_phase.open_ids()
    await two_phase.close()
    assert left == []
    decided = (await read_entries(brokers, sink))[sink.name].batch
    expected = Counter(b"%d" % number for number in range((decided + 1) * ROWS))
    found = Counter(await committed_values(bootstrap, output))
    assert found == expected, f"lost {expected - found}, invented or twice {found - expected}"
    return decided


async def decision_of(bootstrap: str, sink: Sink, batch: int) -> LedgerEntry:
    """Returns the record that decided the batch. A recovery may have written a later record for the same batch."""
    brokers = Brokers(bootstrap)
    async with brokers.admin() as admin:
        count = len((await admin.describe_topics([LEDGER_TOPIC]))[LEDGER_TOPIC].partitions)
    partition = TopicPartition(LEDGER_TOPIC, partition_for_key(sink.name.encode(), count))
    async with brokers.consumer("read_committed") as consumer:
        (end,) = (await consumer.end_offsets([partition])).values()
        consumer.assign([partition])
        consumer.seek_to_beginning()
        while await consumer.position(partition) < end:
            for record in (await consumer.getmany(timeout_ms=50)).get(partition, []):
                entry = None if record.value is None else LedgerEntry.from_json(record.value)
                if entry is not None and (entry.sink, entry.batch) == (sink.name, batch):
                    return entry
    raise AssertionError(f"batch {batch} of {sink.name} was not decided")


def open_ids(broker: Broker, query: str) -> list[str]:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        pattern = Sink("spark", query).pattern()
        return [
            each.transactional_id
            for each in admin.list_transactions(states=[ONGOING], transactional_id_pattern=pattern)
        ]
