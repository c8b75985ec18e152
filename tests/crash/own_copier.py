"""Copies a topic in transactions with Odradek's client until it receives SIGTERM or SIGKILL. It works like
`tests.crash.copier`.

Unlike that copier, it needs no workarounds. It asserts that no record arrives twice unless there was a restart,
rebalance or seek in between.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

from odradek.client import (
    AbortableError,
    ClientError,
    Consumer,
    ConsumerRecord,
    FatalError,
    Producer,
    RetriableError,
    TopicPartition,
)
from odradek.protocol.errors import ErrorCode
from tests.crash.copier import GAVE_UP_STATUS, IDLE_S, Job, copied

PATIENCE_MS = 5_000
BACKOFF_MS, MAX_BACKOFF_MS = 20, 200


class OwnCopier:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._rng = random.Random(job.seed)
        self._journal = os.open(job.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._is_over = False
        self._count = 0
        self._transaction: str | None = None
        self._begin: dict[TopicPartition, int] = {}  # first offset of this transaction; `_next`: its next offset
        self._next: dict[TopicPartition, int] = {}
        self._position: dict[TopicPartition, int] = {}  # next expected offset since the assignment
        self._consumer = Consumer(
            bootstrap_servers=job.bootstrap,
            group_id=job.group,
            group_protocol=job.protocol,
            group_instance_id=job.instance,
            client_id=job.transactional_id,
            session_timeout_ms=2_000,
            heartbeat_interval_ms=300,
            request_timeout_ms=PATIENCE_MS,
            retry_backoff_ms=BACKOFF_MS,
            retry_backoff_max_ms=MAX_BACKOFF_MS,
        )
        self._producer = Producer(
            bootstrap_servers=job.bootstrap,
            client_id=job.transactional_id,
            transactional_id=job.transactional_id,
            linger_ms=2,
            request_timeout_ms=PATIENCE_MS,
            retry_backoff_ms=BACKOFF_MS,
            retry_backoff_max_ms=MAX_BACKOFF_MS,
        )

    async def run(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._finish)
        await self._persist(self._consumer.start)
        await self._persist(self._producer.start)
        await self._persist(self._producer.init_transactions)
        self._consumer.subscribe([self._job.source], on_revoked=self._revoked)
        while not self._is_over:
            await self._copy_some()
        await self._abort()
        await self._consumer.close()
        await self._producer.close()

    def _finish(self) -> None:
        self._is_over = True

    async def _copy_some(self) -> None:
        """Copies up to `per_transaction` records in one transaction, or fewer if no more are available."""
        size, last_at = 0, time.monotonic()
        try:
            while size < self._job.per_transaction and not self._is_over:
                found = await self._consumer.getmany(timeout_ms=50, max_records=self._job.per_transaction - size)
                if self._transaction is None:
                    size = 0  # A rebalance has taken the partition away.
                if not found and size and time.monotonic() - last_at > IDLE_S:
                    break
                for records in found.values():
                    for record in records:
                        await self._copy(record)
                        size, last_at = size + 1, time.monotonic()
            if self._transaction is None:
                return
            if self._is_over or self._rng.random() < self._job.aborts:
                await self._abort()
                self._rewind()
            else:
                await self._commit()
        except AbortableError:
            await self._abort()
            self._rewind()

    async def _copy(self, record: ConsumerRecord) -> None:
        partition = TopicPartition(record.topic, record.partition)
        expected = self._position.get(partition, record.offset)
        assert record.offset == expected, f"offset {record.offset} of {partition}, where {expected} is next"
        self._position[partition] = record.offset + 1
        assert record.value is not None
        if self._transaction is None:
            self._count += 1
            self._transaction = f"{self._job.transactional_id} of {os.getpid()}, {self._count}"
            await self._producer.begin_transaction()
        self._begin.setdefault(partition, record.offset)
        self._next[partition] = record.offset + 1
        result = copied(record.value.decode())
        self._note("send", partition=record.partition, value=result)
        await self._producer.send(self._job.target, result.encode(), key=record.key, partition=record.partition)

    async def _commit(self) -> None:
        member = self._consumer.group_metadata()
        await self._persist(lambda: self._producer.send_offsets_to_transaction(self._next, member))
        self._note("ask")
        await self._persist(self._producer.commit_transaction)
        self._note("answer", committed=True)
        self._forget()

    async def _abort(self) -> None:
        if self._transaction is None:
            return
        await self._persist(self._producer.abort_transaction)
        self._note("answer", committed=False)
        self._transaction = None

    def _rewind(self) -> None:
        for partition, offset in self._begin.items():
            self._consumer.seek(partition, offset)
            self._position[partition] = offset
        self._forget()

    async def _revoked(self, partitions: list[TopicPartition]) -> None:
        """Aborts the uncommitted work, because another member may continue from the committed offsets.

        The next transaction repeats the work on partitions that the member keeps (KIP-848 revokes single partitions).
        """
        await self._abort()
        for partition in partitions:
            self._position.pop(partition, None)
            self._begin.pop(partition, None)
        self._rewind()

    def _forget(self) -> None:
        self._transaction = None
        self._begin.clear()
        self._next.clear()

    async def _persist(self, step: Callable[[], Awaitable[object]]) -> None:
        """Retries a step until it succeeds. Raises fatal errors and errors that require an abort."""
        while True:
            try:
                await step()
                return
            except RetriableError:
                await asyncio.sleep(0.02)

    def _note(self, event: str, **more: object) -> None:
        row = {"at": time.monotonic_ns(), "event": event, "transaction": self._transaction, **more}
        os.write(self._journal, json.dumps(row).encode() + b"\n")


if __name__ == "__main__":
    try:
        uvloop.run(OwnCopier(Job(**json.loads(sys.argv[1]))).run())
    except ClientError as end:
        # After a kill, a static member's instance id remains in use until its session ends (KIP-848).
        if not isinstance(end, FatalError) and end.code is not ErrorCode.UNRELEASED_INSTANCE_ID:
            raise
        print(f"gave up: {end}", file=sys.stderr)
        sys.exit(GAVE_UP_STATUS)
