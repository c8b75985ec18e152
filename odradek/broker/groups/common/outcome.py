"""Decisions about groups: the settings on which they depend, and their results.

An `Outcome` has no effect by itself. The caller appends its records, replays them, lets the core apply the rest, arms
the timers and sends the replies, in this order and within one turn of the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Final, Generic, TypeVar

from mypy_extensions import mypyc_attr

from odradek.broker.groups.common.group import CoordinatorRecord, Group, Timer
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

Token = object
"""Represents a waiting request. The core stores the token and returns it; only the caller knows what it is."""

R_co = TypeVar("R_co", covariant=True)

# What `Outcome.counted` counts, by the names of Kafka's metrics without `-count`.
OFFSET_COMMITS: Final = "offset-commit"
OFFSET_EXPIRATIONS: Final = "offset-expiration"
OFFSET_DELETIONS: Final = "offset-deletion"
COMPLETED_REBALANCES: Final = "group-completed-rebalance"  # of classic groups
DESCRIPTIONS_SET: Final = "streams-group-topology-description-set-success"
DESCRIPTIONS_GOT: Final = "streams-group-topology-description-get-success"
DESCRIPTIONS_DELETED: Final = "streams-group-topology-description-delete-success"
CLEANUP_CYCLES: Final = "streams-group-topology-description-cleanup-cycle"
CLEANUP_ELIGIBLE: Final = "streams-group-topology-description-cleanup-eligible"
COUNTED: Final = (
    OFFSET_COMMITS,
    OFFSET_EXPIRATIONS,
    OFFSET_DELETIONS,
    COMPLETED_REBALANCES,
    DESCRIPTIONS_SET,
    DESCRIPTIONS_GOT,
    DESCRIPTIONS_DELETED,
    CLEANUP_CYCLES,
    CLEANUP_ELIGIBLE,
)


class MigrationPolicy(Enum):
    """The setting `group.consumer.migration.policy`: docs/spec/consumer-groups.md#s11"""

    DISABLED = "disabled"
    DOWNGRADE = "downgrade"
    UPGRADE = "upgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        """Whether a classic group with members may become a consumer group."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        """Whether a consumer group may become a classic group with members."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_mixed_groups(self) -> bool:
        """Whether a member of the classic protocol may join a group of the consumer protocol."""
        return self is not MigrationPolicy.DISABLED


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """The broker's settings for consumer groups. Other settings can differ for each group
    (`ClusterView.group_setting`).

    The names are Kafka's property names without `group.consumer.`, with `_` for `.`, and with the unit."""

    assignors: tuple[str, ...] = ("uniform", "range")
    max_size: int = 2_147_483_647
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000


@dataclass(frozen=True, slots=True)
class ShareConfig:
    """The broker's settings for share groups. The names follow the same rule, without `group.share.`."""

    max_size: int = 200
    initialize_retry_interval_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class StreamsConfig:
    """The broker's settings for streams groups. The names follow the same rule, without `group.streams.`.

    keeps_descriptions  whether the broker requests descriptions of the topology from members
    """

    max_size: int = 2_147_483_647
    keeps_descriptions: bool = False


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings on which decisions depend. They have Kafka's property names, with `_` for `.` and with the unit."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096  # despite the name, Kafka counts UTF-16 units
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    consumer: ConsumerConfig = field(default_factory=ConsumerConfig)
    share: ShareConfig = field(default_factory=ShareConfig)
    streams: StreamsConfig = field(default_factory=StreamsConfig)
    # Kafka has no setting for this timeout either. A member whose JoinGroup waits for a rebalance sends no heartbeats
    # yet, so its session timeout would be too short.
    new_member_join_timeout_ms: int = 5 * 60 * 1000
    rules: KafkaRules = NEWEST  # the rules of the emulated Kafka release


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to a waiting request, or to the current request if the token is its own.

    Transactions have a `Reply` class of their own, for any response."""

    token: Token
    message: JoinGroupResponse | SyncGroupResponse


@mypyc_attr(native_class=False)  # mypyc 2.4 compiles generic native dataclasses into classes that cannot be imported
@dataclass(frozen=True, slots=True)
class Outcome(Generic[R_co]):
    """A decision of `GroupCore`. `TransactionCore` and `StateCore` have outcomes of their own, with other parts; the
    parts that all have are in `coordinators/shard.py::OutcomeLike`.

    response      the response; None if the request waits or its response is among `replies`
    records       appended all or none (unless `may_split`), and then replayed in order
    groups        the new state of groups, for the part that is not recorded (waiting requests, expected members, …)
    must_sync     whether the response waits for an fdatasync regardless of the settings; never set for groups
    is_rebalance  whether the group's epoch has advanced so that members get other partitions or tasks, and not because
                  members have left; see `GroupCore.rebalances`
    counted       what the metrics count once the records are written: a name of COUNTED, and how often
    markers       the transaction markers that the decision requires; empty for groups
    """

    response: R_co | None = None
    records: Sequence[CoordinatorRecord] = ()
    groups: Sequence[Group] = ()
    replies: Sequence[Reply] = ()
    timers: Sequence[Timer] = ()
    may_split: bool = False
    must_sync: bool = False
    is_rebalance: bool = False
    counted: Sequence[tuple[str, int]] = ()
    markers: ClassVar[Sequence[object]] = ()
