"""The share state of a group's partitions. It is initialised before the partitions are assigned, and administrators can
alter or delete it.

Each operation makes two decisions about the group: the first records the request to the share coordinator, and the
second records the result. Source: docs/spec/share-groups.md#s2-3, #s2-8.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from odradek.broker.groups.common.epochs import Partitions
from odradek.broker.groups.common.group import CoordinatorRecord
from odradek.broker.groups.common.outcome import Outcome
from odradek.broker.groups.common.registry import GroupRegistry, TopicView
from odradek.broker.groups.share.group import ShareGroup
from odradek.broker.groups.share.records import (
    StatePartitions,
    group_epoch_record,
    pairs_of,
    partitions_of,
    state_record,
    target_epoch_record,
)
from odradek.broker.groups.share.turn import ShareTurn
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.kafka_rules import KafkaRules

Pair = tuple[bytes, int]  # topic id and partition index
UNDECIDED = -1
START_OFFSET = 0


class StateRequest(NamedTuple):
    """A request to initialise share state, with the start offset of each partition. If the start offset is -1, the
    leader of the partition chooses it.

    if_missing  partitions to initialise only if they have no state yet; after a power failure, the group may have lost
                the record of their initialisation
    """

    state_epoch: int
    start_offsets: Mapping[Pair, int]
    if_missing: frozenset[Pair] = frozenset()


def begin_state(turn: ShareTurn) -> StateRequest | None:
    """Records and returns a request for the subscribed partitions that have no state. An unanswered request is repeated
    after `initialize_retry_interval_ms`."""
    group, state = turn.group, turn.group.state
    since = group.memory.initializing_since
    is_stale = since is None or not since <= turn.now_ms < since + turn.config.initialize_retry_interval_ms
    selected: dict[Pair, int] = {}
    names = dict(state.names)
    for topic in turn.topics():
        added = added_partitions(turn, topic)
        for partition in range(topic.partition_count):
            if partition in state.initialized.get(topic.topic_id, ()):
                continue
            if is_stale or partition not in state.initializing.get(topic.topic_id, ()):
                selected[topic.topic_id, partition] = START_OFFSET if partition in added else UNDECIDED
                names[topic.topic_id] = topic.name
    if not selected:
        return None
    initializing = partitions_of([*pairs_of(state.initializing), *selected])
    turn.put_state(
        state._replace(names=names, initializing=initializing, deleting=state.deleting - initializing.keys())
    )
    turn.set_memory(replace(turn.group.memory, initializing_since=turn.now_ms))
    # Topics whose deletion was interrupted are not included, so that any state that the deletion left behind is
    # replaced.
    if_missing = frozenset(pair for pair in selected if pair[0] not in state.deleting)
    return StateRequest(turn.group.epoch, selected, if_missing)


def added_partitions(turn: ShareTurn, topic: TopicView) -> range:
    """Returns the partitions that were added to a topic after the group first used the topic. These are the partitions
    after the last initialised one.

    The group must deliver these partitions from the beginning, regardless of `share.auto.offset.reset`. Otherwise,
    records written before the first fetch would be lost, as they were up to Kafka 4.3: docs/spec/kafka-4.4.md#s5-3, S2.
    """
    initialized = turn.group.state.initialized.get(topic.topic_id)
    if not initialized or turn.registry.config.rules < KafkaRules.KAFKA_4_4:
        return range(0)
    return range(max(initialized) + 1, topic.partition_count)


def state_begun(
    registry: GroupRegistry, group_id: str, succeeded: Collection[Pair], failed: Collection[Pair], now_ms: int
) -> Outcome[bool]:
    """Records the share coordinator's response. Partitions whose state could not be initialised can be requested again
    immediately."""
    group = registry.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        return Outcome(True)
    turn = ShareTurn(registry, group, now_ms)
    state = group.state
    done = [pair for pair in succeeded if state.contains(*pair)]  # the topic may have been deleted in the meantime
    answered = {*done, *failed}
    turn.put_state(
        state._replace(
            initializing=partitions_of(pair for pair in pairs_of(state.initializing) if pair not in answered),
            initialized=partitions_of([*pairs_of(state.initialized), *done]),
        )
    )
    return turn.outcome(True)


def require_empty(registry: GroupRegistry, group_id: str, *, may_be_missing: bool) -> ShareGroup | None:
    """Returns the group after checking that its offsets may be changed. Returns None if the group does not exist and
    `may_be_missing` is set. Raises GROUP_ID_NOT_FOUND if no share group has this id, or NON_EMPTY_GROUP if the group
    has members."""
    group = registry.groups.get(group_id)
    if group is None:
        if may_be_missing:
            return None
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
    if group.members:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    return group


def alter_offsets(
    registry: GroupRegistry, group_id: str, start_offsets: Mapping[Pair, int], now_ms: int
) -> Outcome[StateRequest]:
    """Makes the first decision of AlterShareGroupOffsets. Creates the group if it does not exist. The caller must have
    removed partitions that do not exist."""
    group = require_empty(registry, group_id, may_be_missing=True)
    if group is None:
        turn = ShareTurn(registry, ShareGroup(group_id), now_ms, is_new=True)
        turn.write(group_epoch_record(group_id, turn.group.epoch, 0))
        turn.write(target_epoch_record(group_id, turn.group.epoch, 0))
    else:
        turn = ShareTurn(registry, group, now_ms)
    state = turn.group.state
    names = dict(state.names)
    for topic_id, _ in start_offsets:
        topic = registry.cluster.topic_of_id(topic_id)
        if topic is not None:
            names[topic_id] = topic.name
    fresh = [pair for pair in start_offsets if pair[1] not in state.initialized.get(pair[0], ())]
    initializing = partitions_of([*pairs_of(state.initializing), *fresh])
    turn.put_state(
        state._replace(names=names, initializing=initializing, deleting=state.deleting - initializing.keys())
    )
    return turn.outcome(StateRequest(turn.group.epoch, start_offsets))


def begin_deletion(
    registry: GroupRegistry, group_id: str, topics: Iterable[str] | None, now_ms: int
) -> Outcome[Partitions]:
    """Makes the first decision of DeleteShareGroupOffsets and DeleteGroups. Returns the partitions whose state the
    share coordinator must delete. Topics without state are omitted.

    topics  the names of the topics whose state is deleted; None for all topics
    """
    group = require_empty(registry, group_id, may_be_missing=False)
    assert group is not None
    state = group.state
    selected = None if topics is None else set(topics)
    selected_ids = {topic_id for topic_id, name in state.names.items() if selected is None or name in selected}
    deleted: dict[bytes, frozenset[int]] = {}
    for topic_id in selected_ids:
        indexes = state.initialized.get(topic_id, frozenset()) | state.initializing.get(topic_id, frozenset())
        topic = registry.cluster.topic_of_id(topic_id)
        if topic_id in state.deleting and topic is not None:  # an earlier deletion of this topic was interrupted
            indexes |= frozenset(range(topic.partition_count))
        if indexes:
            deleted[topic_id] = indexes
    turn = ShareTurn(registry, group, now_ms)
    turn.put_state(
        StatePartitions(
            state.names,
            {topic_id: indexes for topic_id, indexes in state.initializing.items() if topic_id not in selected_ids},
            {topic_id: indexes for topic_id, indexes in state.initialized.items() if topic_id not in selected_ids},
            state.deleting | deleted.keys(),
        )
    )
    return turn.outcome(deleted)


def state_deleted(registry: GroupRegistry, group_id: str, topic_ids: Collection[bytes], now_ms: int) -> Outcome[bool]:
    """Records that the share coordinator has deleted all state of these topics."""
    group = registry.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        return Outcome(True)
    turn = ShareTurn(registry, group, now_ms)
    turn.put_state(group.state._replace(deleting=group.state.deleting - frozenset(topic_ids)))
    return turn.outcome(True)


def missing_topic_records(registry: GroupRegistry) -> Sequence[CoordinatorRecord]:
    """Returns records that remove deleted topics from the share groups. The share coordinator deletes the state of
    deleted topics itself."""
    records = []
    for group in registry.groups.values():
        if not isinstance(group, ShareGroup):
            continue
        state = group.state
        deleted = {topic_id for topic_id in state.names if registry.cluster.topic_of_id(topic_id) is None}
        if deleted:
            left = StatePartitions(
                {topic_id: name for topic_id, name in state.names.items() if topic_id not in deleted},
                {topic_id: indexes for topic_id, indexes in state.initializing.items() if topic_id not in deleted},
                {topic_id: indexes for topic_id, indexes in state.initialized.items() if topic_id not in deleted},
                state.deleting - deleted,
            )
            records.append(state_record(group.group_id, left))
    return records
