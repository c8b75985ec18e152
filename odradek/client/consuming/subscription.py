"""The group membership of a consumer: joins and hands partitions over only while the application asks for records."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from odradek.client.consuming.delivery import Delivery
from odradek.client.consuming.fetcher import Fetcher
from odradek.client.consuming.group_member import GroupMember, GroupSettings
from odradek.client.consuming.positions import Positions
from odradek.client.network.cluster import Cluster
from odradek.client.values import ConsumerGroupMetadata, TopicPartition
from protocol.errors import ErrorCode

OnRebalance = Callable[[list[TopicPartition]], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What the application wants to hear of a rebalance."""

    on_assigned: OnRebalance | None = None
    on_revoked: OnRebalance | None = None
    on_lost: OnRebalance | None = None


class Subscription:
    """Of one consumer: it has a member from the first `subscribe` to `leave`."""

    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        positions: Positions,
        delivery: Delivery,
        fetcher: Fetcher,
        *,
        commit: Callable[[], Awaitable[None]],
        progress: Callable[[], object],
        news: Callable[[], None],
    ) -> None:
        """commit   called before partitions are given up that are still the member's own"""
        self._cluster = cluster
        self._settings = settings
        self._positions = positions
        self._delivery = delivery
        self._fetcher = fetcher
        self._commit = commit
        self._progress = progress
        self._news = news
        self._callbacks = Callbacks()
        self._member: GroupMember | None = None
        self._joining: asyncio.Task[list[TopicPartition]] | None = None
        self.topics: frozenset[str] = frozenset()

    @property
    def is_made(self) -> bool:
        return self._member is not None

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """Of a consumer that only assigns: the group's id, which is not checked against any member."""
        if self._member is None:
            return ConsumerGroupMetadata(self._settings.group_id)
        return self._member.metadata

    def subscribe(self, topics: Collection[str], callbacks: Callbacks) -> None:
        self.topics, self._callbacks = frozenset(topics), callbacks
        if self._member is None:
            self._member = GroupMember(
                self._cluster, self._settings, self.topics, progress=self._progress, news=self._heard
            )
        else:
            self._member.subscribe(self.topics)

    async def keep_up(self) -> None:
        """Join when that is needed, without waiting for it; `news` comes when there is more to do here.

        Raises ClientError when the group does not take this member.
        """
        member = self._member
        if member is None:
            return
        if self._joining is None and member.needs_to_join:
            await self.give_up()
            self._joining = asyncio.get_running_loop().create_task(member.join())
            self._joining.add_done_callback(lambda _: self._news())
        if self._joining is not None and self._joining.done():
            joining, self._joining = self._joining, None
            partitions = joining.result()
            self._positions.assign(partitions, has_group=True)
            await _tell(self._callbacks.on_assigned, partitions)
            self._fetcher.watch(member.watched_topics)
        if self._joining is None:
            self._delivery.is_held = False

    async def give_up(self) -> None:
        """All partitions, after the application has been told."""
        partitions = sorted(self._positions.partitions)
        if partitions:
            is_lost = self._member is not None and self._member.has_lost_its_partitions
            if not is_lost:
                await self._commit()
            if self._member is not None:
                callbacks = self._callbacks
                await _tell(callbacks.on_lost or callbacks.on_revoked if is_lost else callbacks.on_revoked, partitions)
        self._delivery.drop()
        self._positions.assign([], has_group=True)

    async def leave(self) -> None:
        """Give up everything and be a member no more."""
        joining, self._joining = self._joining, None
        if joining is not None:
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
        member = self._member
        try:
            await self.give_up()
        finally:
            self._member, self.topics = None, frozenset()
            self._delivery.is_held = False
            self._fetcher.watch(frozenset())
            if member is not None:
                await member.leave()

    def refused_commit(self, code: ErrorCode) -> None:
        if self._member is not None:
            self._member.refused_commit(code)

    def _heard(self) -> None:
        """From the member's heartbeats, maybe: what was taken for the application is not to be given any more."""
        self._delivery.is_held = True
        self._news()


async def _tell(callback: OnRebalance | None, partitions: list[TopicPartition]) -> None:
    if callback is not None:
        done = callback(partitions)
        if done is not None:
            await done
