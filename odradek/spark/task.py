"""What a task of the sink does: it writes rows into a transaction of its own (docs/spec/spark.md#s2)."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from odradek.client import ClientError
from odradek.client.sync import Admin, Producer
from odradek.protocol.errors import ErrorCode
from odradek.spark.names import Sink
from odradek.spark.options import Delivery, SinkOptions
from odradek.spark.rows import groups
from odradek.spark.steps import ObserveTask, TaskStep, observe_no_task
from odradek.spark.two_phase import Vote

_MASK = 2**64 - 1
_UNPREPARED = (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION)


def write_rows(
    options: SinkOptions,
    sink: Sink,
    *,
    run: str,
    batch: int,
    partition: int,
    attempt: int,
    rows: Iterable[pa.RecordBatch],
    observe: ObserveTask = observe_no_task,
) -> Vote | None:
    """None where there is nothing to decide: no rows, or a delivery without transactions. What is written when an error
    is raised is aborted."""
    task = _Task(options, sink.task_id(run, batch, partition, attempt, f"{random.getrandbits(64):016x}"), observe)
    try:
        observe(TaskStep.BEGUN)
        for each in rows:
            task.write(each)
        return task.vote(sink.query, run, partition, attempt)
    finally:
        task.close()


class _Task:
    def __init__(self, options: SinkOptions, transactional_id: str, observe: ObserveTask) -> None:
        self._options = options
        self._transactional_id = transactional_id
        self._observe = observe
        self._producer: Producer | None = None
        self._partition_counts: dict[str, int] = {}
        self._rng = random.Random()
        self._rows = self._bytes = self._digest = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if not len(batch):
            return
        producer = self._producer or self._started()
        for group in groups(batch, self._options.topic, self._partition_count, self._rng):
            producer.send_batch(group.topic, group.partition, group.keys, group.values, None, group.headers)
            self._digest = (self._digest + group.digest()) & _MASK
        self._rows += len(batch)
        self._bytes += batch.nbytes

    def vote(self, query: str, run: str, partition: int, attempt: int) -> Vote | None:
        if self._producer is None:
            return None
        self._observe(TaskStep.WRITTEN)
        if self._options.delivery is Delivery.AT_LEAST_ONCE:
            self._producer.flush()
            return None
        state = self._producer.prepare_transaction()
        self._observe(TaskStep.PREPARED)
        name = self._transactional_id
        return Vote(query, run, partition, attempt, name, state, self._rows, self._bytes, self._digest)

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()

    def _started(self) -> Producer:
        settings: dict[str, Any] = {
            "bootstrap_servers": self._options.brokers.bootstrap_servers,
            "bootstrap_timeout_ms": self._options.brokers.bootstrap_timeout_ms,
            **self._options.brokers.security,
            **self._options.producer,
        }
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            settings |= {"transactional_id": self._transactional_id, "two_phase_commit": True}
        self._producer = producer = Producer(**settings)
        producer.start()
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            self._initialize(producer)
            producer.begin_transaction()
        self._observe(TaskStep.OPENED)
        return producer

    def _initialize(self, producer: Producer) -> None:
        try:
            producer.init_transactions()
        except ClientError as error:
            if error.code not in _UNPREPARED:
                raise
            raise ClientError(
                f"the broker prepares no transaction of {self._transactional_id!r}: it has to be started with"
                " transaction.two.phase.commit.enable=true (KIP-939), and where it has ACLs, TWO_PHASE_COMMIT and WRITE"
                f" have to be allowed on transactional ids of the prefix {self._options.prefix!r}."
                " The option delivery=atLeastOnce does without transactions",
                error.code,
            ) from error

    def _partition_count(self, topic: str) -> int:
        count = self._partition_counts.get(topic)
        if count is None:
            brokers = self._options.brokers
            with Admin(
                bootstrap_servers=brokers.bootstrap_servers, default_api_timeout_ms=5_000, **brokers.security
            ) as admin:
                try:
                    count = len(admin.describe_topics([topic])[topic].partitions)
                except ClientError as error:
                    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise ClientError(f"the topic {topic!r} does not exist: create it first", error.code) from error
                    raise
            self._partition_counts[topic] = count
        return count
