"""The unfinished batches, and the calls that wait for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from odradek.client.common.errors import RetriableError
from odradek.client.producing.outbox import Outbox
from odradek.client.producing.producer_batch import ProducerBatch


class Backlog:
    """A batch is *done* when its futures are resolved, which may be before its fate is *settled*: one that was given up
    under way still gets its answer, or loses it."""

    def __init__(self) -> None:
        self.buffered_bytes = 0  # of records in batches that are not done
        self._by_age: deque[tuple[Outbox, ProducerBatch]] = deque()
        self._flushes: list[tuple[set[ProducerBatch], asyncio.Future[None]]] = []
        self._room_wanted: deque[asyncio.Future[None]] = deque()

    @property
    def is_flushing(self) -> bool:
        return bool(self._flushes)

    def opened(self, outbox: Outbox, batch: ProducerBatch) -> None:
        self.buffered_bytes += batch.size_bytes
        self._by_age.append((outbox, batch))

    def oldest(self) -> tuple[Outbox, ProducerBatch] | None:
        """Of those that are not done."""
        by_age = self._by_age
        while by_age and by_age[0][1].is_done:
            by_age.popleft()
        return by_age[0] if by_age else None

    def done(self, batch: ProducerBatch) -> None:
        self.buffered_bytes -= batch.size_bytes
        while self._room_wanted:
            waiter = self._room_wanted.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def settled(self, batch: ProducerBatch) -> None:
        for unsettled, finished in self._flushes:
            unsettled.discard(batch)
            if not unsettled and not finished.done():
                finished.set_result(None)

    def unsettled(self, under_way: Iterable[ProducerBatch]) -> set[ProducerBatch]:
        """Those that are not done, and those under way, which may have been given up."""
        return {batch for _, batch in self._by_age if not batch.is_done}.union(under_way)

    def flush(self, unsettled: set[ProducerBatch]) -> asyncio.Future[None]:
        """Resolved when all of these are settled. Until it is done, or cancelled, `is_flushing`."""
        finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (unsettled, finished)
        self._flushes.append(entry)
        finished.add_done_callback(lambda _: self._flushes.remove(entry))
        return finished

    async def room(self, timeout_s: float) -> None:
        """Wait until a batch is done, which may give enough room. Raises RetriableError when none is in time."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room_wanted.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            raise RetriableError(f"the buffer has been full for {timeout_s:g} s") from None
