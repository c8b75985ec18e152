"""Between group coordinator and share coordinator: the share state of a group's partitions, begun and deleted.

first turn of the group → the share coordinator, once that is recorded → second turn of the group
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.broker.groups.common.epochs import Partitions
from odradek.broker.groups.share.records import pairs_of
from odradek.broker.groups.share.state import Pair, StateRequest
from odradek.broker.runtime.delayed import Deferred
from odradek.broker.runtime.waiting import deferred, each_of
from odradek.broker.shares.core.state import SharePartitionKey
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.coordinators.share_coordinator import Persister
    from odradek.broker.groups.common.outcome import Outcome
    from odradek.broker.groups.core import GroupCore
    from odradek.broker.shares.leader.shares import ShareBroker

log = logging.getLogger("odradek.shares")

Refusals = Mapping[Pair, KafkaError]


async def begin(broker: ShareBroker, group_id: str, request: StateRequest) -> Refusals:
    """Has the state of these partitions begun, and notes in the group which of them have one now."""
    pairs = list(request.start_offsets)
    persister = broker.shares.persister
    asked: list[Deferred[bool]] = []
    for pair in pairs:
        key, start_offset = SharePartitionKey(group_id, *pair), request.start_offsets[pair]
        if pair in request.if_missing:
            asked.append(deferred(_initialize_if_missing(persister, key, request.state_epoch, start_offset)))
        else:
            asked.append(persister.initialize(key, request.state_epoch, start_offset))
    refusals = await _refusals(pairs, asked)
    succeeded = [pair for pair in request.start_offsets if pair not in refusals]
    # State that was there stays; before there was any, nothing could be loaded. Members may fetch already, and what
    # they have acquired is theirs.
    replaced = [pair for pair in succeeded if pair not in request.if_missing]
    broker.shares.drop([SharePartitionKey(group_id, *pair) for pair in replaced])
    for pair, error in refusals.items():
        log.warning("the share state of %s cannot be begun: %s", SharePartitionKey(group_id, *pair), error)
    note(broker, group_id, lambda core, now_ms: core.share_state_begun(group_id, succeeded, list(refusals), now_ms))
    return refusals


async def _initialize_if_missing(
    persister: Persister, key: SharePartitionKey, state_epoch: int, start_offset: int
) -> bool:
    """Leaves state that is there: what is acknowledged in it, and what is pending in a two-phase commit."""
    summary = await persister.summarize(key)
    return summary.is_there or await persister.initialize(key, state_epoch, start_offset)


async def delete(broker: ShareBroker, group_id: str, partitions: Partitions) -> Refusals:
    """Has the state of these partitions deleted; topics of which nothing is left are noted in the group."""
    pairs = pairs_of(partitions)
    asked = [broker.shares.persister.delete(SharePartitionKey(group_id, *pair)) for pair in pairs]
    refusals = await _refusals(pairs, asked)
    broker.shares.drop([SharePartitionKey(group_id, *pair) for pair in pairs_of(partitions)])
    gone = partitions.keys() - {topic_id for topic_id, _ in refusals}
    note(broker, group_id, lambda core, now_ms: core.share_state_deleted(group_id, gone, now_ms))
    return refusals


def note(broker: ShareBroker, group_id: str, decide: Callable[[GroupCore, int], Outcome[bool]]) -> None:
    """Takes the second turn. If it cannot be recorded, the first is as if interrupted, and its occasion comes again."""
    try:
        broker.groups.shard_for(group_id).submit(decide)
    except KafkaError as error:
        log.warning("the share state of group %s could not be noted: %s", group_id, error)


async def _refusals(pairs: Sequence[Pair], asked: Sequence[Deferred[bool]]) -> Refusals:
    """Waits for all answers, and returns those that are refusals."""
    answers: list[bool | KafkaError] = await each_of([*asked])
    return {pair: each for pair, each in zip(pairs, answers, strict=True) if isinstance(each, KafkaError)}
