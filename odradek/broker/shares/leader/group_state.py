"""Connects the group coordinator with the share coordinator, to initialise and delete the share state of a group's
partitions.

first decision of the group → share coordinator, once the decision has been recorded → second decision of the group
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.broker.groups.common.epochs import Partitions
from odradek.broker.groups.share.records import pairs_of
from odradek.broker.groups.share.state import Pair, StateRequest
from odradek.broker.runtime.waiting import Deferred, start_deferred, wait_for_all
from odradek.broker.shares.core.state import SharePartitionKey
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.coordinators.share_coordinator import Persister
    from odradek.broker.groups.common.outcome import Outcome
    from odradek.broker.groups.core import GroupCore
    from odradek.broker.shares.leader.shares import ShareBroker

log = logging.getLogger("odradek.shares")

Refusals = Mapping[Pair, KafkaError]


async def initialize_state(broker: ShareBroker, group_id: str, request: StateRequest) -> Refusals:
    """Initialises the share state of the requested partitions and records those partitions in the group. Returns the
    errors by partition."""
    pairs = list(request.start_offsets)
    persister = broker.shares.persister
    replies: list[Deferred[bool]] = []
    for pair in pairs:
        key, start_offset = SharePartitionKey(group_id, *pair), request.start_offsets[pair]
        if pair in request.if_missing:
            replies.append(start_deferred(_initialize_if_missing(persister, key, request.state_epoch, start_offset)))
        else:
            replies.append(persister.initialize(key, request.state_epoch, start_offset))
    refusals = await _refusals(pairs, replies)
    succeeded = [pair for pair in request.start_offsets if pair not in refusals]
    # Share partitions in `if_missing` need not be dropped from memory: existing state was kept, and a share partition
    # without state cannot have been loaded. Members may already be fetching from these share partitions, and they keep
    # the records that they have acquired.
    replaced = [pair for pair in succeeded if pair not in request.if_missing]
    broker.shares.drop_partitions([SharePartitionKey(group_id, *pair) for pair in replaced])
    for pair, error in refusals.items():
        log.warning("the share state of %s could not be initialized: %s", SharePartitionKey(group_id, *pair), error)
    submit_second_decision(
        broker, group_id, lambda core, now_ms: core.share_state_begun(group_id, succeeded, list(refusals), now_ms)
    )
    return refusals


async def _initialize_if_missing(
    persister: Persister, key: SharePartitionKey, state_epoch: int, start_offset: int
) -> bool:
    """Initialises the state unless it already exists. Existing state may contain acknowledgements, including some that
    are pending in a two-phase commit."""
    summary = await persister.summarize(key)
    return summary.is_there or await persister.initialize(key, state_epoch, start_offset)


async def delete_state(broker: ShareBroker, group_id: str, partitions: Partitions) -> Refusals:
    """Deletes the share state of these partitions and updates the group's own state to match. Returns the errors by
    partition."""
    pairs = pairs_of(partitions)
    replies = [broker.shares.persister.delete(SharePartitionKey(group_id, *pair)) for pair in pairs]
    refusals = await _refusals(pairs, replies)
    broker.shares.drop_partitions([SharePartitionKey(group_id, *pair) for pair in pairs_of(partitions)])
    deleted = partitions.keys() - {topic_id for topic_id, _ in refusals}
    submit_second_decision(broker, group_id, lambda core, now_ms: core.share_state_deleted(group_id, deleted, now_ms))
    return refusals


def submit_second_decision(
    broker: ShareBroker, group_id: str, decide: Callable[[GroupCore, int], Outcome[bool]]
) -> None:
    """Submits the group's second decision. If it cannot be recorded, the first decision is treated as interrupted and
    is made again later."""
    try:
        broker.groups.shard_for(group_id).submit(decide)
    except KafkaError as error:
        log.warning(
            "a change of the share state of group %s could not be recorded; trying again later: %s", group_id, error
        )


async def _refusals(pairs: Sequence[Pair], replies: Sequence[Deferred[bool]]) -> Refusals:
    """Waits for all responses and returns the errors by partition."""
    answers: list[bool | KafkaError] = await wait_for_all([*replies])
    return {pair: each for pair, each in zip(pairs, answers, strict=True) if isinstance(each, KafkaError)}
