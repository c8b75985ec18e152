"""Copies a topic in transactions with aiokafka until it receives SIGTERM or SIGKILL. It works like
`tests.crash.copier`.

Its transactions commit offsets without naming a group member, so the copier must be the only member of its group.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time

import aiokafka
from aiokafka.errors import KafkaError

from tests.crash.copier import GAVE_UP_STATUS, Job, copied

PATIENCE_MS = 5_000
BACKOFF_MS = 20


class AioCopier(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, job: Job) -> None:
        self._job = job
        self._rng = random.Random(job.seed)
        self._journal = os.open(job.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._is_over = False
        self._count = 0
        self._transaction: str | None = None
        self._in_transaction = asyncio.Lock()
        self._assignments = 0  # number of assignments; records polled before the last one are not copied
        self._consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=job.bootstrap,
            group_id=job.group,
            client_id=job.transactional_id,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=2_000,
            heartbeat_interval_ms=300,
            retry_backoff_ms=BACKOFF_MS,
            request_timeout_ms=PATIENCE_MS,
        )
        self._producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=job.bootstrap,
            client_id=job.transactional_id,
            transactional_id=job.transactional_id,
            linger_ms=2,
            retry_backoff_ms=BACKOFF_MS,
        )

    async def run(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._finish)
        await self._producer.start()
        self._consumer.subscribe([self._job.source], listener=self)
        await self._consumer.start()
        while not self._is_over:
            before = self._assignments
            found = await self._consumer.getmany(timeout_ms=50, max_records=self._job.per_transaction)
            if not found:
                continue
            async with self._in_transaction:
                if self._assignments == before:
                    await self._copy(found)
        await self._consumer.stop()
        await self._producer.stop()

    def _finish(self) -> None:
        self._is_over = True

    async def on_partitions_revoked(self, revoked: object) -> None:
        """Waits for the transaction to end, because a partition's next owner continues from the committed offsets."""
        async with self._in_transaction:
            self._assignments += 1

    def on_partitions_assigned(self, assigned: object) -> None:
        self._assignments += 1

    async def _copy(self, found: dict[aiokafka.TopicPartition, list[aiokafka.ConsumerRecord]]) -> None:
        """Copies these records in one transaction."""
        self._count += 1
        self._transaction = f"{self._job.transactional_id} of {os.getpid()}, {self._count}"
        await self._producer.begin_transaction()
        try:
            for partition, records in found.items():
                for record in records:
                    value = copied(record.value.decode())
                    self._note("send", partition=partition.partition, value=value)
                    await self._producer.send(
                        self._job.target, value.encode(), key=record.key, partition=partition.partition
                    )
            if self._rng.random() >= self._job.aborts:
                offsets = {partition: records[-1].offset + 1 for partition, records in found.items()}
                await self._producer.send_offsets_to_transaction(offsets, self._job.group)
                self._note("ask")
                await self._producer.commit_transaction()
                self._note("answer", committed=True)
                return
        except KafkaError as refused:
            print(f"aborts: {refused!r}", file=sys.stderr)
        await self._producer.abort_transaction()
        self._note("answer", committed=False)
        for partition, records in found.items():
            self._consumer.seek(partition, records[0].offset)

    def _note(self, event: str, **more: object) -> None:
        row = {"at": time.monotonic_ns(), "event": event, "transaction": self._transaction, **more}
        os.write(self._journal, json.dumps(row).encode() + b"\n")


async def main() -> None:
    await AioCopier(Job(**json.loads(sys.argv[1]))).run()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KafkaError as end:
        print(f"gave up: {end!r}", file=sys.stderr)
        sys.exit(GAVE_UP_STATUS)
