"""The settings that decisions about groups depend on, and the outcomes of these decisions.

An `Outcome` only describes effects. The caller appends its records, replays them, has the core apply the rest, starts
the timers and sends the replies, in this order and within one turn of the event loop. Outcomes are not frozen, because
creating a frozen object takes three times as long, and every request to a group creates one.
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
"""A token that represents a waiting request. The core stores and returns the token; only the caller knows its type."""

R_co = TypeVar("R_co", covariant=True)

# The names that `Outcome.counted` may contain. They are the names of Kafka's metrics without the suffix `-count`.
OFFSET_COMMITS: Final = "offset-commit"
OFFSET_EXPIRATIONS: Final = "offset-expiration"
OFFSET_DELETIONS: Final = "offset-deletion"
COMPLETED_REBALANCES: Final = "group-completed-rebalance"  # only for classic groups
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
    """A value of the setting `group.consumer.migration.policy`. Source: docs/spec/consumer-groups.md#s11"""

    DISABLED = "disabled"
    DOWNGRADE = "downgrade"
    UPGRADE = "upgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        """True if a classic group with members can become a consumer group."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        """True if a consumer group can become a classic group with members."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_mixed_groups(self) -> bool:
        """True if a member that uses the classic protocol can join a consumer group."""
        return self is not MigrationPolicy.DISABLED


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """The broker's settings for consumer groups. Settings that can differ for each group are read with
    `ClusterView.group_setting`.

    Each field is named after Kafka's property, without the prefix `group.consumer.`, with underscores instead of dots,
    and with the unit at the end.
    """

    assignors: tuple[str, ...] = ("uniform", "range")
    max_size: int = 2_147_483_647
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000


@dataclass(frozen=True, slots=True)
class ShareConfig:
    """The broker's settings for share groups. Fields are named as in `ConsumerConfig`, but the omitted prefix is
    `group.share.`."""

    max_size: int = 200
    initialize_retry_interval_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class StreamsConfig:
    """The broker's settings for streams groups. Fields are named as in `ConsumerConfig`, but the omitted prefix is
    `group.streams.`.

    keeps_descriptions  whether the broker requests topology descriptions from members
    """

    max_size: int = 2_147_483_647
    keeps_descriptions: bool = False


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings that decisions depend on. Each field is named after Kafka's property, with underscores instead of
    dots and with the unit at the end."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096  # despite the name, Kafka counts UTF-16 units
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    consumer: ConsumerConfig = field(default_factory=ConsumerConfig)
    share: ShareConfig = field(default_factory=ShareConfig)
    streams: StreamsConfig = field(default_factory=StreamsConfig)
    # In Kafka, too, this timeout is a constant rather than a setting. A new member whose JoinGroup is waiting for a
    # rebalance cannot send heartbeats yet, so its session timeout would be too short.
    new_member_join_timeout_ms: int = 5 * 60 * 1000
    rules: KafkaRules = NEWEST  # the rules of the emulated Kafka release


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to the request that `token` represents: either a waiting request or the current one.

    Transactions have their own `Reply` class, which can hold any response.
    """

    token: Token
    message: JoinGroupResponse | SyncGroupResponse


@mypyc_attr(native_class=False)  # mypyc 2.4 compiles generic native dataclasses into classes that cannot be imported
@dataclass(slots=True)
class Outcome(Generic[R_co]):
    """A decision of `GroupCore`. `TransactionCore` and `StateCore` have their own outcome classes with other fields.
    The fields that all outcomes share are declared in `coordinators/shard.py::OutcomeLike`.

    response      the response; None if the request is waiting or its response is among `replies`
    records       the records to append and then to replay in order. Either all or none are appended, unless `may_split`
                  is set
    groups        the groups as they are after the decision, including state that is not recorded, such as waiting
                  requests and expected members
    must_sync     whether the response waits for an fdatasync regardless of the settings; never set for groups
    is_rebalance  whether the group's epoch has advanced and members may get other partitions or tasks; False if it has
                  advanced only because members left; see `GroupCore.rebalances`
    counted       the metrics to increase once the records are written, each as a name from COUNTED and the number to
                  add
    markers       the transaction markers required by the decision; empty for groups
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
