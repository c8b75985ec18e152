"""Decisions about groups: the settings that they depend on, and what they consist of.

Nothing in an `Outcome` has happened yet: the shell appends its records, replays them, lets the core settle the rest,
arms the timers and releases the replies, in this order and in one turn of the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from mypy_extensions import mypyc_attr

from odradek.broker.groups.common.group import CoordinatorRecord, Group, Timer
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

Token = object
"""Stands for a client that waits; the core only keeps it and hands it back. The shell knows what it is."""

R_co = TypeVar("R_co", covariant=True)


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
    """The broker's settings for consumer groups; a group may have its own for the rest (`ClusterView.group_setting`).

    The names are Kafka's property names without `group.consumer.`, `.` as `_`, units said."""

    assignors: tuple[str, ...] = ("uniform", "range")
    max_size: int = 2_147_483_647
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000


@dataclass(frozen=True, slots=True)
class ShareConfig:
    """The broker's settings for share groups, likewise; the names are without `group.share.`."""

    max_size: int = 200
    initialize_retry_interval_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings that decisions depend on; the names are Kafka's property names, `.` as `_`, units said."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096  # Kafka counts UTF-16 units all the same
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    consumer: ConsumerConfig = field(default_factory=ConsumerConfig)
    share: ShareConfig = field(default_factory=ShareConfig)
    # Not a setting in Kafka either: a member that joins a rebalance in progress has no heartbeats yet, so its
    # session timeout would be too short to measure it by.
    new_member_join_timeout_ms: int = 5 * 60 * 1000
    rules: KafkaRules = NEWEST  # of the release that is followed


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to somebody who was waiting, or, if the token is that of the request itself, to the request itself."""

    token: Token
    message: JoinGroupResponse | SyncGroupResponse


@mypyc_attr(native_class=False)  # mypyc 2.4 makes generic dataclasses that cannot be imported
@dataclass(frozen=True, slots=True)
class Outcome(Generic[R_co]):
    """A decision.

    response   the answer; None where the request's token was kept (parked) or stands in `replies`
    records    to append all or none, unless `may_split`; then to replay in order
    groups     what the records do not tell: groups as they are afterwards, in memory (who waits, who is expected …)
    must_sync  whether the answer waits for an fdatasync whatever the settings say: never on account of a group
    """

    response: R_co | None = None
    records: Sequence[CoordinatorRecord] = ()
    groups: Sequence[Group] = ()
    replies: Sequence[Reply] = ()
    timers: Sequence[Timer] = ()
    may_split: bool = False
    must_sync: bool = False
