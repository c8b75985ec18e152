"""The part that every client of a cluster shares: it is started and closed, best by `async with`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from odradek.client.metrics.client_metrics import ClientMetrics
from odradek.client.metrics.values import Metrics
from odradek.client.network.cluster import Cluster


class ConnectedClient(ABC):
    _cluster: Cluster
    _metrics: ClientMetrics

    def metrics(self) -> Metrics:
        """Reads the metrics of this client, which have the names, groups and units of Kafka's Java clients. They begin
        with the client, and can still be read when it is closed. Any thread may call it."""
        return self._metrics.read()

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _connect(self) -> None:
        """Raises RetriableError when no broker answers; then nothing stays open."""
        try:
            await self._cluster.start()
        except BaseException:
            await self._cluster.close()
            raise


async def is_set_by(event: asyncio.Event, ends_at: float | None) -> bool:
    """Waits for the event, until this time of the loop's clock; False when that came first."""
    try:
        async with asyncio.timeout_at(ends_at):
            await event.wait()
    except TimeoutError:
        return False
    return True
