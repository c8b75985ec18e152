"""The settings of a consumer in a group, and what happens when partitions come and go: to positions, to records in
hand, and what the application is told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from enum import Enum

from odradek.client.common.values import TopicPartition
from odradek.client.consuming.delivery import Delivery
from odradek.client.consuming.fetcher import Fetcher
from odradek.client.consuming.positions import Positions

LEAVE_TIMEOUT_MS = 5_000


class GroupProtocol(Enum):
    """The place where the assignment is computed (`group.protocol`): a member of the group, or the coordinator
    (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """By Kafka's names. `assignors` by preference, of the classic protocol; `remote_assignor` of the other one."""

    group_id: str
    group_instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: float
    max_poll_interval_ms: int
    assignors: tuple[str, ...]
    protocol: GroupProtocol = GroupProtocol.CLASSIC
    remote_assignor: str | None = None
    client_rack: str | None = None


@dataclass(frozen=True, slots=True)
class Interest:
    """The topics that a member wants to read: by name, or all whose names match (RE2), or both."""

    topics: frozenset[str] = frozenset()
    regex: str | None = None


OnRebalance = Callable[[list[TopicPartition]], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Functions of the application that a rebalance calls."""

    on_assigned: OnRebalance | None = None
    on_revoked: OnRebalance | None = None
    on_lost: OnRebalance | None = None


class Handover:
    """Called only while the application asks for records, so that nothing is taken from under its hands."""

    def __init__(
        self,
        positions: Positions,
        delivery: Delivery,
        fetcher: Fetcher,
        *,
        commit: Callable[[], Awaitable[None]],
        rebalanced: Callable[[], None],
    ) -> None:
        """commit      called before partitions are given up that are still the member's own
        rebalanced  called by the member when it has taken over an assignment
        """
        self.rebalanced = rebalanced
        self._positions = positions
        self._delivery = delivery
        self._fetcher = fetcher
        self._commit = commit
        self.callbacks = Callbacks()

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return frozenset(self._positions.partitions)

    async def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Give these up, after their positions are committed and the application was told."""
        if partitions:
            await self._commit()
            await _tell(self.callbacks.on_revoked, partitions)
        self._drop(partitions)

    async def lose_all(self) -> None:
        """Others have them already: nothing is committed, and `on_lost` is called, else `on_revoked`."""
        lost = self.owned
        if lost:
            await _tell(self.callbacks.on_lost or self.callbacks.on_revoked, lost)
        self._drop(lost)

    async def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Have these besides those that it owns, which keep their positions."""
        self._positions.assign(sorted(self.owned | set(partitions)), has_group=True)
        await _tell(self.callbacks.on_assigned, partitions)
        self._fetcher.wake()

    def hold(self) -> None:
        """Nothing more is given to the application until the member has been looked after."""
        self._delivery.is_held = True

    def release(self) -> None:
        self._delivery.is_held = False

    def watch(self, topics: Collection[str]) -> None:
        """Tell as news when one of these that does not exist comes into being."""
        self._fetcher.watch(frozenset(topics))

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        if any(self._delivery.position(partition) is not None for partition in partitions):
            self._delivery.drop()
        self._positions.assign(sorted(self.owned - set(partitions)), has_group=True)


async def _tell(callback: OnRebalance | None, partitions: Collection[TopicPartition]) -> None:
    if callback is not None:
        done = callback(sorted(partitions))
        if done is not None:
            await done
