"""A partition in the form that a `Shard` uses: appended to at once, awaited until durable, read from its start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from odradek.storage.log import Origin

if TYPE_CHECKING:
    from odradek.broker.partitions.partition import Partition
    from odradek.broker.runtime.workers import JobResult, Workers
    from odradek.protocol.batch_header import BatchHeader
    from odradek.protocol.errors import KafkaError
    from odradek.storage.verification import VerificationGuard


@mypyc_attr(allow_interpreted_subclasses=True)
class PartitionLog:
    def __init__(self, partition: Partition, workers: Workers) -> None:
        self._partition = partition
        self._workers = workers

    @property
    def max_batch_bytes(self) -> int:
        return self._partition.log.config.max_message_bytes

    @property
    def is_empty(self) -> bool:
        return self._partition.log.log_start_offset == self._partition.log.log_end_offset

    def append(
        self,
        batch: bytearray,
        now_ms: int,
        guard: VerificationGuard | None = None,
        header: BatchHeader | None = None,
    ) -> int:
        appended = self._partition.append_now(
            batch, origin=Origin.COORDINATOR, now_ms=now_ms, header=header, guard=guard
        )
        return appended.base_offset

    def is_durable(self, *, must_sync: bool) -> bool:
        log = self._partition.log
        return not (must_sync or log.needs_sync) or log.synced_offset >= log.log_end_offset

    def when_durable(self, action: Callable[[KafkaError | None], None], *, must_sync: bool = False) -> None:
        self._partition.when_durable(self._partition.log.log_end_offset, action, must_sync=must_sync)

    @property
    def start_offset(self) -> int:
        return self._partition.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._partition.log.log_end_offset

    def delete_before(self, offset: int) -> None:
        self._partition.log.delete_records_before(offset)

    def read(self) -> AsyncIterator[bytes]:
        """Portions of about a megabyte, read by a thread; most partitions are empty and take none."""
        log = self._partition.log
        if self.is_empty:
            return Portions(None, self._workers)
        return Portions(log.reader.scan(log.log_start_offset, log.log_end_offset, checked=True), self._workers)


class Portions:
    """What a scan yields, if there is one, read by a thread. A class, since mypyc has no asynchronous generators."""

    def __init__(self, scan: Iterator[bytes] | None, workers: Workers) -> None:
        self._scan = scan
        self._workers = workers

    def __aiter__(self) -> Portions:
        return self

    async def __anext__(self) -> bytes:
        portion = None if self._scan is None else await self._next(self._scan)
        if portion is None:
            raise StopAsyncIteration
        return portion

    def _next(self, scan: Iterator[bytes]) -> asyncio.Future[bytes | None]:
        ended: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

        def done(outcome: JobResult[bytes | None]) -> None:
            if ended.cancelled():
                return
            try:
                ended.set_result(outcome.result())
            except Exception as error:
                ended.set_exception(error)

        self._workers.run(lambda: next(scan, None), done)
        return ended
