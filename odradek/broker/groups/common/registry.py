"""The groups of one `__consumer_offsets` partition by id, and the data that decisions about them depend on."""

from __future__ import annotations

from odradek.broker.groups.common.cluster import ClusterView
from odradek.broker.groups.common.group import Group
from odradek.broker.groups.common.outcome import GroupConfig
from odradek.broker.groups.offsets import Offsets


class GroupRegistry:
    """State. Changed by `GroupCore.replay` and `GroupCore.settle` only; requests of every type read it."""

    __slots__ = ("cluster", "config", "groups", "offsets")

    def __init__(self, config: GroupConfig, cluster: ClusterView) -> None:
        self.config = config
        self.cluster = cluster
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()

    def topic_id_of(self, name: str) -> bytes | None:
        """None: there is no such topic."""
        topic = self.cluster.topic(name)
        return None if topic is None else topic.topic_id
