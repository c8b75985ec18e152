"""One decision about a share group, by a request or a timer, while it is being made; replay, loading and timers.

`ShareTurn.group` is the group as it will be: each record is applied to it as it is made, and it becomes a copy with
the first of them. Nothing else has happened when the turn is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from odradek.broker.groups.common.group import CoordinatorRecord, Group, Timer, TimerKey, TimerKind
from odradek.broker.groups.common.metadata_hash import metadata_hash as hash_of_topics
from odradek.broker.groups.common.outcome import Outcome
from odradek.broker.groups.common.registry import GroupRegistry, TopicView
from odradek.broker.groups.share.assignor import assign
from odradek.broker.groups.share.group import ShareGroup, ShareMemory
from odradek.broker.groups.share.records import (
    Partitions,
    ShareMember,
    StatePartitions,
    group_epoch_record,
    member_tombstones,
    state_record,
    target_epoch_record,
    target_record,
)

R = TypeVar("R")


class ShareTurn:
    def __init__(self, registry: GroupRegistry, group: ShareGroup, now_ms: int, *, is_new: bool = False) -> None:
        """is_new: the group is the turn's own already."""
        self.cluster = registry.cluster
        self.config = registry.config.share
        self.group = group
        self.now_ms = now_ms
        self.records: list[CoordinatorRecord] = []
        self.timers: list[Timer] = []
        self._owns_group = is_new

    def write(self, *records: CoordinatorRecord) -> None:
        group = self._own_group()
        for record in records:
            group.replay(record)
            self.records.append(record)

    def remember(self, memory: ShareMemory) -> None:
        self._own_group().memory = memory

    def outcome(self, response: R | None = None) -> Outcome[R]:
        after = (self.group,) if self._owns_group else ()
        return Outcome(response, records=tuple(self.records), groups=after, timers=tuple(self.timers))

    @property
    def is_settled(self) -> bool:
        """Whether neither target nor state is to be looked at: not since the cluster or the group changed last."""
        return self.group.settled_version == self.cluster.version

    def settle(self) -> None:
        """Nothing is left to be done for the group, unless it was changed only now."""
        group, version = self.group, self.cluster.version
        is_done = group.epoch <= group.assignment_epoch and not group.state.initializing
        if is_done and not self._owns_group and group.memory.checked_version == version:
            group.settled_version = version

    def _own_group(self) -> ShareGroup:
        if not self._owns_group:
            self.group, self._owns_group = self.group.copy(), True
        return self.group

    # Epochs: docs/spec/share-groups.md#s2-2.

    def bump_epoch(self) -> None:
        """Something that the target assignment depends on has changed."""
        group = self.group
        self.write(group_epoch_record(group.group_id, group.epoch + 1, self.metadata_hash()))
        self.remember(replace(self.group.memory, checked_version=self.cluster.version))

    def follow_topics(self) -> None:
        """Bump the epoch if subscribed topics came, went or grew, or if partitions can be assigned that are not."""
        group = self.group
        if group.memory.checked_version != self.cluster.version:
            if self.metadata_hash() != group.metadata_hash:
                self.bump_epoch()
                return
            self.remember(replace(group.memory, checked_version=self.cluster.version))
        if group.epoch == group.assignment_epoch and self._has_unassigned_partitions():
            self.bump_epoch()

    def metadata_hash(self) -> int:
        return hash_of_topics(self.topics())

    def topics(self) -> list[TopicView]:
        """The subscribed ones that exist."""
        names = sorted(self.group.subscribed_topics())
        return [topic for name in names if (topic := self.cluster.topic(name)) is not None]

    def assignable(self) -> Partitions:
        """The partitions of subscribed topics whose state is initialised."""
        initialized = self.group.state.initialized
        return {topic.topic_id: initialized[topic.topic_id] for topic in self.topics() if topic.topic_id in initialized}

    def _has_unassigned_partitions(self) -> bool:
        assigned: dict[bytes, set[int]] = {}
        for target in self.group.targets.values():
            for topic_id, indexes in target.items():
                assigned.setdefault(topic_id, set()).update(indexes)
        return any(not indexes <= assigned.get(topic_id, set()) for topic_id, indexes in self.assignable().items())

    def follow_group_epoch(self) -> None:
        """Compute the target anew if that is due."""
        group = self.group
        if group.epoch <= group.assignment_epoch:
            return
        interval_ms = self.cluster.group_setting(group.group_id, "share.assignment.interval.ms")
        if group.computed_ms <= self.now_ms < group.computed_ms + interval_ms:
            return
        ids = {topic.name: topic.topic_id for topic in self.topics()}
        subscriptions = {
            member.member_id: frozenset(ids[name] for name in member.topics if name in ids)
            for member in group.members.values()
        }
        for member_id, target in assign(subscriptions, group.targets, self.assignable()).items():
            if group.targets.get(member_id) != target:
                self.write(target_record(group.group_id, member_id, target))
        self.write(target_epoch_record(group.group_id, self.group.epoch, self.now_ms))

    # Members and state.

    def begin_session(self, member: ShareMember) -> None:
        timeout_ms = self.cluster.group_setting(self.group.group_id, "share.session.timeout.ms")
        self.timers.append(Timer(TimerKey(TimerKind.SESSION, self.group.group_id, member.member_id), timeout_ms))

    def remove(self, members: Iterable[ShareMember]) -> None:
        """They left, or were not heard of. What they have acquired is the leaders' affair."""
        group_id = self.group.group_id
        for member in members:
            self.write(*member_tombstones(group_id, member.member_id))
            self.timers.append(Timer(TimerKey(TimerKind.SESSION, group_id, member.member_id), None))
        self.bump_epoch()

    def put_state(self, state: StatePartitions) -> None:
        """Names of topics that nothing is left of are forgotten."""
        kept = state.initializing.keys() | state.initialized.keys() | state.deleting
        state = state._replace(names={topic_id: name for topic_id, name in state.names.items() if topic_id in kept})
        if state != self.group.state:
            self.write(state_record(self.group.group_id, state))


GROUP_EPOCH = 11


def replay(registry: GroupRegistry, record: CoordinatorRecord) -> None:
    key: Any = record.key
    group = registry.groups.get(key.group_id)
    if not isinstance(group, ShareGroup):
        if record.value is None:
            return  # of a group that is gone
        group = registry.groups[key.group_id] = ShareGroup(key.group_id)
    if record.value is None and key.API_KEY == GROUP_EPOCH:
        del registry.groups[key.group_id]
    else:
        group.replay(record)


def on_loaded(registry: GroupRegistry, group: Group, now_ms: int) -> Outcome[None]:
    """Members go on at their epochs, and have one session to be heard of."""
    assert isinstance(group, ShareGroup)
    turn = ShareTurn(registry, group, now_ms)
    for member in group.members.values():
        turn.begin_session(member)
    return turn.outcome()


def on_timer(registry: GroupRegistry, group: Group, key: TimerKey, now_ms: int) -> Outcome[None]:
    """A member was not heard of."""
    assert isinstance(group, ShareGroup)
    turn = ShareTurn(registry, group, now_ms)
    member = group.members.get(key.member_id)
    if member is not None:
        turn.remove([member])
    return turn.outcome()
