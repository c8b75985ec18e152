"""The parts of the broker that most folders need; each adds to them what it alone needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.metadata.cluster_metadata import ClusterMetadata
    from odradek.broker.partitions.registry import Partitions
    from odradek.broker.runtime.clock import Clock, Timers
    from odradek.broker.runtime.workers import Workers


class BrokerParts(Protocol):
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def workers(self) -> Workers: ...
    @property
    def metadata(self) -> ClusterMetadata: ...
    @property
    def partitions(self) -> Partitions: ...
