"""Keeps the metadata of a producer's topics fresh, and the connections to their leaders open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from odradek.client.common.errors import AuthenticationFailed, ClientError
from odradek.client.common.values import TopicPartition
from odradek.client.network.cluster import Cluster
from odradek.client.network.connection import Connection


class Routes:
    """on_change is called whenever something may have become possible that was not; on_refused when no login is."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Collection[str],
        *,
        max_age_s: float,
        on_change: Callable[[], None],
        on_refused: Callable[[AuthenticationFailed], None],
    ) -> None:
        """topics: those to ask about; looked at anew each time."""
        self._cluster = cluster
        self._topics = topics
        self._max_age_s = max_age_s
        self._on_change = on_change
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._next_look = self._loop.call_later(max_age_s, self._look_again)

    def leader(self, partition: TopicPartition) -> int | None:
        """The node to send to; None while it is not known, and then it is asked for."""
        leader = self._cluster.leader(partition)
        if leader is None or leader.node_id is None:
            self.refresh()
            return None
        return leader.node_id

    def connection(self, node_id: int) -> Connection | None:
        """None while there is none, and then it is opened."""
        connection = self._cluster.open_connection(node_id)
        if connection is None and node_id not in self._connecting:
            self._connecting[node_id] = self._loop.create_task(self._connect(node_id))
        return connection

    def refresh(self) -> None:
        """Ask who leads what, again and again until a broker answers."""
        if self._refreshing is None:
            self._refreshing = self._loop.create_task(self._refresh())

    async def close(self) -> None:
        self._next_look.cancel()
        tasks = [*self._connecting.values(), *([self._refreshing] if self._refreshing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connect(self, node_id: int) -> None:
        try:
            await self._cluster.connection(node_id)
        except AuthenticationFailed as error:
            self._on_refused(error)
            await self._cluster.pause(1)
        except ClientError:
            self.refresh()
            await self._cluster.pause(1)
        finally:
            del self._connecting[node_id]
            self._on_change()

    async def _refresh(self) -> None:
        try:
            failures = 0
            while True:
                failures += 1
                await self._cluster.pause(
                    failures
                )  # also before the first: a broker that has just failed may be back then
                try:
                    await self._cluster.refresh(self._topics)
                except AuthenticationFailed as error:
                    self._on_refused(error)
                except ClientError:
                    continue
                return
        finally:
            self._refreshing = None
            self._on_change()

    def _look_again(self) -> None:
        """Leaders may have moved, and topics grown, without anything having failed."""
        self._next_look = self._loop.call_later(self._max_age_s, self._look_again)
        if self._topics:
            self.refresh()
