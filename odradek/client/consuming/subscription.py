"""A consumer's group membership and commits.

Partitions change only while the application waits for records. Offsets are committed on demand, at intervals, and
before partitions are given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from odradek.client.common.errors import ClientError, RetriableError
from odradek.client.common.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from odradek.client.consuming.consumer_member import ConsumerMember
from odradek.client.consuming.delivery import Delivery
from odradek.client.consuming.group_member import GroupMember
from odradek.client.consuming.group_offsets import CommitFailed, GroupOffsets
from odradek.client.consuming.handover import Callbacks, GroupProtocol, GroupSettings, Handover, Interest
from odradek.client.consuming.positions import Positions
from odradek.client.network.cluster import Cluster
from odradek.protocol.errors import ErrorCode


class Subscription:
    """One consumer's subscription. It has a group member from the first `subscribe` until `leave`."""

    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        handover: Handover,
        *,
        progress: Callable[[], object],
        on_change: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._handover = handover
        self._progress = progress
        self._on_change = on_change
        self._member: GroupMember | ConsumerMember | None = None
        self.interest = Interest()

    @property
    def exists(self) -> bool:
        return self._member is not None

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """Metadata that identifies the member. For a consumer that uses `assign`, the metadata contains only the group
        id, so the broker checks no membership."""
        if self._member is None:
            return ConsumerGroupMetadata(self._settings.group_id)
        return self._member.metadata

    def subscribe(self, interest: Interest, callbacks: Callbacks) -> None:
        self.interest, self._handover.callbacks = interest, callbacks
        if self._member is not None:
            self._member.subscribe(interest)
            return
        kind = GroupMember if self._settings.protocol is GroupProtocol.CLASSIC else ConsumerMember
        self._member = kind(
            self._cluster, self._settings, interest, progress=self._progress, on_change=self._hold_and_report
        )

    async def poll_coordinator(self) -> None:
        """Joins the group or takes over a new assignment if necessary. Raises ClientError if the group does not accept
        this member."""
        if self._member is not None:
            await self._member.poll_coordinator(self._handover)

    async def leave(self) -> None:
        """Gives up all partitions and leaves the group."""
        member = self._member
        if isinstance(member, GroupMember):
            await member.stop_joining()
        try:
            if member is not None and member.has_lost_its_partitions:
                await self._handover.lose_all()
            else:
                await self._handover.revoke(self._handover.owned)
        finally:
            self._member, self.interest = None, Interest()
            self._handover.release()
            self._handover.watch(())
            if member is not None:
                await member.leave()

    def on_refused_commit(self, code: ErrorCode) -> None:
        if self._member is not None:
            self._member.on_refused_commit(code)

    def _hold_and_report(self) -> None:
        """Stops returning buffered records until `poll_coordinator` has run. Called by the member, possibly from its
        heartbeat task."""
        self._handover.hold()
        self._on_change()


UNATTENDED_TIMEOUT_MS = 5_000  # timeout of an automatic commit, which delays the application's own calls


class Commits:
    def __init__(
        self,
        offsets: GroupOffsets,
        positions: Positions,
        delivery: Delivery,
        *,
        interval_ms: float | None,
        request_timeout_ms: float,
    ) -> None:
        """Prepares a consumer's commits. `interval_ms` is the interval of automatic commits, or None to disable
        them."""
        self._offsets = offsets
        self._positions = positions
        self._delivery = delivery
        self._interval_s = None if interval_ms is None else interval_ms / 1000
        self._timeout_s = min(request_timeout_ms, UNATTENDED_TIMEOUT_MS) / 1000
        self._next_at = 0.0
        self.subscription: Subscription | None = None

    @property
    def is_automatic(self) -> bool:
        """True if offsets are committed automatically."""
        return self._interval_s is not None

    @property
    def next_commit_at(self) -> float | None:
        """The time of the next automatic commit, on the loop's clock."""
        return None if self._interval_s is None or not self._positions.partitions else self._next_at

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None) -> None:
        """Commits these offsets, or the position in every partition if `offsets` is None. Raises the errors of
        `Consumer.commit`."""
        if offsets is None:
            to_commit = self._delivered_positions()
        else:
            to_commit = {
                TopicPartition(*partition): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
                for partition, offset in offsets.items()
            }
        if not to_commit:
            return
        assert self.subscription is not None
        subscription = self.subscription
        try:
            await self._offsets.commit(to_commit, lambda: subscription.metadata)
        except ClientError as error:
            if error.code is not None:
                subscription.on_refused_commit(error.code)
            raise

    async def commit_if_due(self, now_s: float) -> None:
        if self._interval_s is not None and now_s >= self._next_at:
            self._next_at = now_s + self._interval_s
            await self.commit_unattended()

    async def commit_unattended(self) -> None:
        """Commits if automatic commits are enabled. If the commit fails, the next commit includes the same offsets, or
        the next owner of the partitions reads the records again."""
        if self._interval_s is not None:
            with suppress(RetriableError, CommitFailed, TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    await self.commit()

    def _delivered_positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        found = self._positions.to_commit()
        for partition, position in found.items():
            on_its_way = self._delivery.position(partition)
            if on_its_way is not None:
                found[partition] = position._replace(offset=on_its_way)
        return found
