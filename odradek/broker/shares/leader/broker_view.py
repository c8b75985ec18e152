"""What those who serve share groups need of the broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from odradek.broker.partitions.broker_parts import BrokerParts

if TYPE_CHECKING:
    from odradek.broker.coordinators.group_coordinator import GroupCoordinator
    from odradek.broker.coordinators.share_coordinator import ShareCoordinator
    from odradek.broker.coordinators.transaction_coordinator import TransactionCoordinator
    from odradek.broker.coordinators.two_phase import TwoPhaseProducers
    from odradek.broker.metadata.topic_creation import TopicCreation
    from odradek.broker.shares.leader.shares import Shares


class ShareBroker(BrokerParts, Protocol):
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def auto_creation(self) -> TopicCreation: ...
    @property
    def share_coordinator(self) -> ShareCoordinator: ...
    @property
    def shares(self) -> Shares: ...
    @property
    def transactions(self) -> TransactionCoordinator: ...
    @property
    def two_phase(self) -> TwoPhaseProducers: ...
    @property
    def groups(self) -> GroupCoordinator: ...
