"""A consumer's group settings, and `Handover`, which adds and removes the consumer's partitions when its assignment
changes."""

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
    """The group protocol (`group.protocol`). It determines whether a member of the group or the coordinator (KIP-848)
    computes the assignment."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """A group member's settings, mostly named as in Kafka. `assignors`, in order of preference, applies to the classic
    protocol; `remote_assignor` to the consumer protocol."""

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
    """A member's subscription: topic names, an RE2 pattern for topic names, or both."""

    topics: frozenset[str] = frozenset()
    regex: str | None = None


OnRebalance = Callable[[list[TopicPartition]], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The application's callbacks for rebalances."""

    on_assigned: OnRebalance | None = None
    on_revoked: OnRebalance | None = None
    on_lost: OnRebalance | None = None


class Handover:
    """Adds and removes partitions, including their positions and buffered records, and calls the application's
    callbacks. Its methods are called only while the application waits for records, so the application never loses a
    partition while it is processing the partition's records."""

    def __init__(
        self,
        positions: Positions,
        delivery: Delivery,
        fetcher: Fetcher,
        *,
        commit: Callable[[], Awaitable[None]],
        on_rebalance: Callable[[], None],
    ) -> None:
        """Creates a handover.

        commit        called before partitions are given up, unless they are already lost
        on_rebalance  called by the member after it has taken over an assignment
        """
        self.on_rebalance = on_rebalance
        self._positions = positions
        self._delivery = delivery
        self._fetcher = fetcher
        self._commit = commit
        self.callbacks = Callbacks()

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return frozenset(self._positions.partitions)

    async def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Gives up these partitions, after committing their positions and calling `on_revoked`."""
        if partitions:
            await self._commit()
            await _call(self.callbacks.on_revoked, partitions)
        self._drop(partitions)

    async def lose_all(self) -> None:
        """Drops all partitions, because other members already own them. Commits nothing. Calls `on_lost`, or
        `on_revoked` if there is no `on_lost`."""
        lost = self.owned
        if lost:
            await _call(self.callbacks.on_lost or self.callbacks.on_revoked, lost)
        self._drop(lost)

    async def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Adds these partitions. Partitions that the consumer already has keep their positions."""
        self._positions.assign(sorted(self.owned | set(partitions)), has_group=True)
        await _call(self.callbacks.on_assigned, partitions)
        self._fetcher.wake()

    def hold(self) -> None:
        """Stops returning records to the application until `release` is called."""
        self._delivery.is_held = True

    def release(self) -> None:
        self._delivery.is_held = False

    def watch(self, topics: Collection[str]) -> None:
        """Makes the fetcher watch for these topics until they exist. The fetcher calls its `on_change` when any of them
        is created."""
        self._fetcher.watch(frozenset(topics))

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        if any(self._delivery.position(partition) is not None for partition in partitions):
            self._delivery.drop()
        self._positions.assign(sorted(self.owned - set(partitions)), has_group=True)


async def _call(callback: OnRebalance | None, partitions: Collection[TopicPartition]) -> None:
    if callback is not None:
        done = callback(sorted(partitions))
        if done is not None:
            await done
