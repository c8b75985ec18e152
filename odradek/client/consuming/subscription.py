"""The group membership of a consumer: partitions come and go only while the application asks for records."""

from __future__ import annotations

from collections.abc import Callable

from odradek.client.common.values import ConsumerGroupMetadata
from odradek.client.consuming.consumer_member import ConsumerMember
from odradek.client.consuming.consumer_membership import Interest
from odradek.client.consuming.group_member import GroupMember
from odradek.client.consuming.group_settings import GroupProtocol, GroupSettings
from odradek.client.consuming.handover import Callbacks, Handover
from odradek.client.network.cluster import Cluster
from odradek.protocol.errors import ErrorCode


class Subscription:
    """Of one consumer: it has a member from the first `subscribe` to `leave`."""

    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        handover: Handover,
        *,
        progress: Callable[[], object],
        news: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._handover = handover
        self._progress = progress
        self._news = news
        self._member: GroupMember | ConsumerMember | None = None
        self.interest = Interest()

    @property
    def is_made(self) -> bool:
        return self._member is not None

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """Of a consumer that only assigns: the group's id, which is not checked against any member."""
        if self._member is None:
            return ConsumerGroupMetadata(self._settings.group_id)
        return self._member.metadata

    def subscribe(self, interest: Interest, callbacks: Callbacks) -> None:
        self.interest, self._handover.callbacks = interest, callbacks
        if self._member is not None:
            self._member.subscribe(interest)
            return
        kind = GroupMember if self._settings.protocol is GroupProtocol.CLASSIC else ConsumerMember
        self._member = kind(self._cluster, self._settings, interest, progress=self._progress, news=self._heard)

    async def keep_up(self) -> None:
        """Raises ClientError when the group does not take this member."""
        if self._member is not None:
            await self._member.keep_up(self._handover)

    async def leave(self) -> None:
        """Give up everything and be a member no more."""
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

    def refused_commit(self, code: ErrorCode) -> None:
        if self._member is not None:
            self._member.refused_commit(code)

    def _heard(self) -> None:
        """From the member's heartbeats, maybe: what was taken for the application is not to be given any more."""
        self._handover.hold()
        self._news()
