"""Queries whose rows are known beforehand, and what has to hold of their output (docs/spec/spark.md#s9)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek.client.sync import Admin
from odradek.spark.ledger import Brokers, read_entries
from odradek.spark.names import Sink
from odradek.spark.two_phase import ONGOING, TwoPhaseSink
from tests.clients.speakers import wait_for
from tests.spark.faults import FORMAT, Plan
from tests.support.broker_process import Broker
from tests.support.spark_queries import committed_values

ROWS = 40  # of a batch
PATIENCE_S = 90.0
STARTS = 4


@dataclass(slots=True)
class Numbers:
    """A query that writes the numbers from 0 on, ROWS in each batch: the same ones when a batch is written again."""

    spark: Any
    broker: Broker
    output: str
    checkpoint: str
    starts: int = 0
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
        """As Spark sees it."""
        return Path(self.checkpoint, "commits", str(batch)).exists()

    def run(self, last_batch: int, plan: Plan | None = None, until: Callable[[], bool] = lambda: True) -> None:
        """Until that batch is done; started again whenever it fails."""
        while not (self.done(last_batch) and until()):
            assert self.starts < STARTS, f"fails again and again: {self.query.exception()}"
            query = self.start(plan)
            wait_for(
                f"batch {last_batch}",
                lambda query=query: not query.isActive or (self.done(last_batch) and until()),  # type: ignore[misc]
                PATIENCE_S,
            )
            query.stop()

    def check(self) -> int:
        """After a recovery: every number of the decided batches once, and nothing is open. Returns the last batch."""
        self.query.stop()
        return asyncio.run(checked(self.broker.bootstrap, self.output, Sink("spark", self.query.id)))


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


def open_ids(broker: Broker, query: str) -> list[str]:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        pattern = Sink("spark", query).pattern()
        return [
            each.transactional_id
            for each in admin.list_transactions(states=[ONGOING], transactional_id_pattern=pattern)
        ]
