"""A decision about a share group, made in response to a request or a timer. This module also replays and loads share
groups and handles their timers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from odradek.broker.groups.common.epochs import EpochTurn, Partitions, replay_into
from odradek.broker.groups.common.group import CoordinatorRecord, Group, TimerKey, TimerKind
from odradek.broker.groups.common.outcome import Outcome
from odradek.broker.groups.common.registry import GroupRegistry, TopicView
from odradek.broker.groups.share.assignor import assign
from odradek.broker.groups.share.group import ShareGroup, ShareMemory
from odradek.broker.groups.share.records import (
    ShareMember,
    StatePartitions,
    group_epoch_record,
    member_tombstones,
    state_record,
    target_epoch_record,
    target_record,
)

R = TypeVar("R")


class ShareTurn(EpochTurn[ShareGroup, ShareMemory]):
    def __init__(self, registry: GroupRegistry, group: ShareGroup, now_ms: int, *, is_new: bool = False) -> None:
        """Creates a turn. `is_new` means that this turn has created the group, so it need not copy the group before a
        change."""
        super().__init__(registry, group, now_ms, is_new=is_new)
        self.config = registry.config.share

    def epoch_record(self, epoch: int, metadata_hash: int) -> CoordinatorRecord:
        return group_epoch_record(self.group.group_id, epoch, metadata_hash)

    def target_epoch_record(self, epoch: int, computed_ms: int) -> CoordinatorRecord:
        return target_epoch_record(self.group.group_id, epoch, computed_ms)

    @property
    def is_settled(self) -> bool:
        """True if the target and the share state are known to be complete, because neither the cluster nor the group
        has changed since the last check."""
        return self.group.settled_version == self.cluster.version

    def settle(self) -> None:
        """Marks the group as settled if its target and share state are complete and this turn has not changed the
        group."""
        group, version = self.group, self.cluster.version
        is_done = group.epoch <= group.assignment_epoch and not group.state.initializing
        if is_done and not self._owns_group and group.memory.checked_version == version:
            group.settled_version = version

    def follow_topics(self) -> None:
        """Advances the epoch if subscribed topics have changed, or if some assignable partitions are not in any
        member's target."""
        super().follow_topics()
        if self.group.epoch == self.group.assignment_epoch and self._has_unassigned_partitions():
            self.bump_epoch()

    def topics(self) -> list[TopicView]:
        """Returns the existing topics that any member subscribes to."""
        return self.topics_of(sorted(self.group.subscribed_topics()))

    def assignable(self) -> Partitions:
        """Returns the partitions of subscribed topics whose share state has been initialised."""
        initialized = self.group.state.initialized
        return {topic.topic_id: initialized[topic.topic_id] for topic in self.topics() if topic.topic_id in initialized}

    def _has_unassigned_partitions(self) -> bool:
        assigned: dict[bytes, set[int]] = {}
        for target in self.group.targets.values():
            for topic_id, indexes in target.items():
                assigned.setdefault(topic_id, set()).update(indexes)
        return any(not indexes <= assigned.get(topic_id, set()) for topic_id, indexes in self.assignable().items())

    def follow_group_epoch(self) -> None:
        """Computes a new target assignment if one is due."""
        group = self.group
        if not self.is_target_due("share.assignment.interval.ms"):
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
        self.arm(TimerKind.SESSION, timeout_ms, member.member_id)

    def remove(self, members: Iterable[ShareMember]) -> None:
        """Removes members that have left or whose sessions have expired. The partition leaders release the records that
        these members have acquired."""
        group_id = self.group.group_id
        for member in members:
            self.write(*member_tombstones(group_id, member.member_id))
            self.disarm(TimerKind.SESSION, member.member_id)
        self.members_left()

    def put_state(self, state: StatePartitions) -> None:
        """Records which partitions have share state. Names of topics without share state are omitted."""
        referenced = state.initializing.keys() | state.initialized.keys() | state.deleting
        state = state._replace(
            names={topic_id: name for topic_id, name in state.names.items() if topic_id in referenced}
        )
        if state != self.group.state:
            self.write(state_record(self.group.group_id, state))


GROUP_EPOCH = 11


def replay(registry: GroupRegistry, record: CoordinatorRecord) -> None:
    replay_into(registry, record, ShareGroup, ShareGroup, GROUP_EPOCH)


def on_loaded(registry: GroupRegistry, group: Group, now_ms: int) -> Outcome[None]:
    """Starts the session timers after loading. Members keep their epochs and have one session timeout to send a
    heartbeat."""
    assert isinstance(group, ShareGroup)
    turn = ShareTurn(registry, group, now_ms)
    for member in group.members.values():
        turn.begin_session(member)
    return turn.outcome()


def on_timer(registry: GroupRegistry, group: Group, key: TimerKey, now_ms: int) -> Outcome[None]:
    """Removes a member whose session has expired."""
    assert isinstance(group, ShareGroup)
    turn = ShareTurn(registry, group, now_ms)
    member = group.members.get(key.member_id)
    if member is not None:
        turn.remove([member])
    return turn.outcome()
