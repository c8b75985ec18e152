"""Base classes for consumer, share and streams groups, in which the coordinator assigns the partitions or tasks.

They hold the members, target assignment and epochs of a group, and a decision about the group while it is being made. A
decision changes a `copy` of the group and applies each new record to it; the core later replays the same records. State
that has no record is in the group's `memory`. It reaches the core through `Outcome.groups`, and a restart resets it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from odradek.broker.groups.common.group import CoordinatorRecord, Group, Timer, TimerKey, TimerKind
from odradek.broker.groups.common.metadata_hash import metadata_hash as hash_of_topics
from odradek.broker.groups.common.outcome import Outcome, Reply
from odradek.broker.groups.common.registry import GroupRegistry, TopicView
from odradek.protocol.errors import ErrorCode
from odradek.protocol.kafka_rules import KafkaRules

NO_TIME = 0  # recorded as the computation time of a target if the next target need not wait for the assignment interval
FIRST_EPOCH = 1  # the epoch of a group without an epoch record

Partitions = Mapping[bytes, frozenset[int]]
"""Topic id → partitions. A topic without partitions is not included."""


@dataclass(frozen=True, slots=True)
class EpochMemory:
    """The part of a group's state that is not recorded.

    checked_version  the cluster metadata version for which the group's metadata hash is known to be current; None if it
                     has not been checked yet
    """

    checked_version: int | None = None


M = TypeVar("M")
S = TypeVar("S", bound=EpochMemory)
T = TypeVar("T")
G = TypeVar("G", bound="EpochGroup[Any, Any, Any]")
R = TypeVar("R")


class EpochGroup(ABC, Generic[M, S, T]):
    """A group whose state comes from its records: members of type M, the epochs, and a target assignment of type T for
    each member."""

    NO_TARGET: ClassVar[Any] = {}

    FIELDS: ClassVar[tuple[str, ...]] = (
        "assignment_epoch",
        "computed_ms",
        "epoch",
        "group_id",
        "members",
        "memory",
        "metadata_hash",
        "targets",
    )
    __slots__ = FIELDS

    def __init__(self, group_id: str, memory: S) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.computed_ms = 0  # time at which the target assignment was computed; 0 if unknown
        self.members: dict[str, M] = {}
        self.targets: dict[str, T] = {}
        self.memory = memory

    def copy(self) -> Self:
        twin = type(self).__new__(type(self))
        for name in self.FIELDS:
            value = getattr(self, name)
            setattr(twin, name, value.copy() if type(value) is dict else value)
        return twin

    @abstractmethod
    def topics_of(self, member: M) -> frozenset[str]:
        """Returns the names of the topics that the member subscribes to, including topics that do not exist."""

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*(self.topics_of(member) for member in self.members.values()))

    def subscription(self) -> Callable[[str], bool]:
        return self.subscribed_topics().__contains__

    def target_of(self, member_id: str) -> T:
        target: T = self.targets.get(member_id, self.NO_TARGET)
        return target

    @property
    def idle_since_ms(self) -> int | None:
        return None

    def deletion_verdict(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def running_timers(self) -> list[TimerKey]:
        return []

    # Replay. Records can be missing, because compaction removes a record once a later record with the same key exists.

    @abstractmethod
    def replay(self, record: CoordinatorRecord) -> None:
        """Applies a record of this group type."""

    def _replay_epoch(self, key: Any, value: Any) -> None:
        self.epoch = FIRST_EPOCH if value is None else value.epoch
        self.metadata_hash = 0 if value is None else value.metadata_hash

    def _replay_target_epoch(self, key: Any, value: Any) -> None:
        self.assignment_epoch = FIRST_EPOCH if value is None else value.assignment_epoch
        self.computed_ms = 0 if value is None else value.assignment_timestamp

    def _replay_target(self, key: Any, value: Any) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = self.stored_target(value)

    def stored_target(self, value: Any) -> T:
        """Returns the target assignment from the value of a record."""
        return cast("T", stored_partitions(value.topic_partitions))


def stored_partitions(listed: Sequence[Any]) -> Partitions:
    return {each.topic_id: frozenset(each.partitions) for each in listed if each.partitions}


def replay_into(
    registry: GroupRegistry,
    record: CoordinatorRecord,
    kind: type[Any],
    make: Callable[[str], Group],
    group_epoch_key: int,
) -> None:
    """Applies a record of one group type to the registry: creates, changes or removes a group.

    kind             class of the group type
    group_epoch_key  the record type whose tombstone removes a group
    """
    key: Any = record.key
    group: Any = registry.groups.get(key.group_id)
    if not isinstance(group, kind):
        if record.value is None:
            return  # tombstone of a group that was removed or now has another type
        # If offsets of this group were replayed before, the registry contains a classic group as a placeholder. Replace
        # it.
        group = registry.groups[key.group_id] = make(key.group_id)
    if record.value is None and group_epoch_key == key.API_KEY:
        del registry.groups[key.group_id]
    else:
        group.replay(record)


class EpochTurn(ABC, Generic[G, S]):
    """A decision about a group, made in response to a request or a timer.

    `group` is the group after the decision: each new record is applied to it immediately. Before the first change, the
    turn replaces the group with a copy. Until its outcome is applied, a turn has no effect outside this object.
    """

    def __init__(self, registry: GroupRegistry, group: G, now_ms: int, *, is_new: bool = False) -> None:
        """Creates a turn. `is_new` means that this turn has created the group, so it need not copy the group before a
        change."""
        self.registry = registry
        self.cluster = registry.cluster
        self.group = group
        self.now_ms = now_ms
        self.records: list[CoordinatorRecord] = []
        self.replies: list[Reply] = []
        self.timers: list[Timer] = []
        self.is_rebalance = False
        self._owns_group = is_new

    # Records and timers.

    def write(self, *records: CoordinatorRecord) -> None:
        group = self._own_group()
        for record in records:
            group.replay(record)
            self.records.append(record)

    def set_memory(self, memory: S) -> None:
        self._own_group().memory = memory

    def arm(self, kind: TimerKind, delay_ms: int, member_id: str = "") -> None:
        self.timers.append(Timer(TimerKey(kind, self.group.group_id, member_id), delay_ms))

    def disarm(self, kind: TimerKind, member_id: str = "") -> None:
        self.timers.append(Timer(TimerKey(kind, self.group.group_id, member_id), None))

    def outcome(self, response: R | None = None) -> Outcome[R]:
        return Outcome(
            response=response,
            records=tuple(self.records),
            groups=self._groups_after(),
            replies=tuple(self.replies),
            timers=tuple(self.timers),
            is_rebalance=self.is_rebalance,
        )

    def _groups_after(self) -> tuple[Group, ...]:
        return (cast("Group", self.group),) if self._owns_group else ()  # every group type implements `Group`

    def _own_group(self) -> G:
        if not self._owns_group:
            self.group, self._owns_group = self.group.copy(), True
        return self.group

    # Epochs: docs/spec/consumer-groups.md#s3, docs/spec/share-groups.md#s2-2.

    @abstractmethod
    def epoch_record(self, epoch: int, metadata_hash: int) -> CoordinatorRecord:
        """Returns the record that stores the group's epoch."""

    @abstractmethod
    def target_epoch_record(self, epoch: int, computed_ms: int) -> CoordinatorRecord:
        """Returns the record that stores the target assignment's epoch."""

    def members_left(self) -> None:
        """Advances the epoch after members have left. If no members are left, the group needs no new target.

        The target epoch of an empty group therefore also advances. It is recorded without a computation time, so that
        the next member to join gets its partitions immediately. Up to Kafka 4.3, the target epoch did not advance, and
        the next member had to wait for the assignment interval: docs/spec/kafka-4.4.md#s5-1, C1 and C2; #s5-3, S1.
        """
        self.advance_epoch()
        if not self.group.members and self.registry.config.rules >= KafkaRules.KAFKA_4_4:
            self.write(self.target_epoch_record(self.group.epoch, NO_TIME))

    def bump_epoch(self) -> None:
        """Advances the epoch after an input of the target assignment has changed."""
        self.is_rebalance = True
        self.advance_epoch()

    def advance_epoch(self) -> None:
        self.write(self.epoch_record(self.group.epoch + 1, self.metadata_hash()))
        self._remember_topics()

    def follow_topics(self) -> None:
        """Advances the epoch if a subscribed topic has been created or deleted, or has gained partitions, since the
        last check."""
        if self.group.memory.checked_version == self.cluster.version:
            return
        if self.metadata_hash() != self.group.metadata_hash:
            self.bump_epoch()
        else:
            self._remember_topics()

    def _remember_topics(self) -> None:
        self.set_memory(replace(self.group.memory, checked_version=self.cluster.version))

    def is_target_due(self, interval_setting: str) -> bool:
        """Returns whether a new target must be computed and the interval since the last computation has passed."""
        group = self.group
        if group.epoch <= group.assignment_epoch:
            return False
        interval_ms = self.cluster.group_setting(group.group_id, interval_setting)
        return not group.computed_ms <= self.now_ms < group.computed_ms + interval_ms

    def metadata_hash(self) -> int:
        return hash_of_topics(self.topics_of(self.group.subscribed_topics()))

    def topics_of(self, names: Iterable[str]) -> list[TopicView]:
        """Returns the topics with the given names. Names of topics that do not exist are skipped."""
        return [topic for name in names if (topic := self.cluster.topic(name)) is not None]
