"""The broker's settings for consumer groups; a group may have its own for the rest (`ClusterView.group_setting`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MigrationPolicy(Enum):
    """`group.consumer.migration.policy`: docs/spec/consumer-groups.md#s11"""

    DISABLED = "disabled"
    DOWNGRADE = "downgrade"
    UPGRADE = "upgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        """A classic group with members may become a consumer group."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        """A consumer group may become a classic group with members."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_mixed_groups(self) -> bool:
        """A member of the classic protocol may join one of the consumer protocol."""
        return self is not MigrationPolicy.DISABLED


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """The names are Kafka's property names without `group.consumer.`, `.` as `_`, units said."""

    assignors: tuple[str, ...] = ("uniform", "range")
    max_size: int = 2_147_483_647
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000
