"""The base class of all clients that connect to a cluster. A client must be started and closed, preferably with `async
with`."""

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
        """Returns the metrics of this client, with the names, groups and units of Kafka's Java clients.

        Measurements start when the client is created and can still be read after the client is closed. Thread-safe.
        """
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
        """Connects to the cluster. If no broker answers, raises RetriableError and leaves no connection open."""
        try:
            await self._cluster.start()
        except BaseException:
            await self._cluster.close()
            raise


async def is_set_by(event: asyncio.Event, ends_at: float | None) -> bool:
    """Waits for the event until `ends_at`, on the loop's clock, or without a limit if `ends_at` is None. Returns False
    on timeout."""
    try:
        async with asyncio.timeout_at(ends_at):
            await event.wait()
    except TimeoutError:
        return False
    return True
