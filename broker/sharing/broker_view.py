"""What those who serve share groups need of the broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from broker.configuration.config import BrokerConfig
    from broker.coordinators.share_coordinator import ShareCoordinator
    from broker.metadata.cluster_metadata import ClusterMetadata
    from broker.metadata.topic_creation import TopicCreation
    from broker.partitions.registry import Partitions
    from broker.runtime.clock import Clock, Timers
    from broker.runtime.workers import Workers
    from broker.sharing.shares import Shares


class ShareBroker(Protocol):
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def workers(self) -> Workers: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def metadata(self) -> ClusterMetadata: ...
    @property
    def auto_creation(self) -> TopicCreation: ...
    @property
    def partitions(self) -> Partitions: ...
    @property
    def share_coordinator(self) -> ShareCoordinator: ...
    @property
    def shares(self) -> Shares: ...
