"""Makes the acknowledgements of a share group part of a producer's transaction (KIP-1289). Runs on the share
partitions' leader.

    check the member → load what is not in memory → register `__share_group_state`-N with the transaction
           → check every partition → store the acknowledgements as pending in all partitions → results

A producer that lost a response during a restart retries the request. The retry can be the first request for its share
partitions, in which case they have to be loaded. Nothing becomes pending before the registration, because otherwise the
transaction could end without the share partitions being notified. Source: docs/spec/share-groups.md#s5-3 rows 10 to 14
and T8, #s5-4, #s5-5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.broker.api.error_translations import Receiver, translate
from odradek.broker.runtime.waiting import Deferred, sleep, wait_for_all
from odradek.broker.shares.core.in_flight import Acknowledgement
from odradek.broker.shares.core.state import PendingTransaction, SharePartitionKey
from odradek.broker.shares.leader.acknowledging import DONE, AcknowledgeResult
from odradek.broker.shares.leader.live_partition import PendingWrite, SharePartitionPhase
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import SHARE_GROUP_STATE, TopicIdPartition

if TYPE_CHECKING:
    from odradek.broker.shares.leader.shares import ShareBroker

NOT_ATTEMPTED: Final = AcknowledgeResult(
    ErrorCode.OPERATION_NOT_ATTEMPTED, "Nothing became pending, because another partition was refused."
)
# State write errors that cause the entire request to be refused because its transaction has ended or is sealed.
OF_THE_TRANSACTION: Final = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
REGISTRATION_RETRY_MS: Final = 20
REGISTRATION_PATIENCE_MS: Final = 100  # how long to wait for the previous transaction to complete

Acknowledgements = Mapping[TopicIdPartition, Sequence[Acknowledgement]]
Results = Mapping[TopicIdPartition, AcknowledgeResult]


class Acknowledger(NamedTuple):
    """The share group member that sends acknowledgements, and its transaction."""

    group_id: str
    member_id: str
    member_epoch: int
    transaction: PendingTransaction

    def key(self, partition: TopicIdPartition) -> SharePartitionKey:
        return SharePartitionKey(self.group_id, *partition)


async def acknowledge_in_transaction(requested: Acknowledgements, who: Acknowledger, broker: ShareBroker) -> Results:
    """Makes the acknowledgements pending in all partitions or in none and returns a result for each partition.

    requested  at least one acknowledgement for each partition; all checks that need no coordinator must have been made

    Raises KafkaError if the entire request is refused.
    """
    require_member(who, broker)
    refused = await load_partitions(requested, who, broker)
    if refused:
        return refused_all(requested, refused)
    await register_partitions(requested, who, broker)
    return await make_pending(requested, who, broker)


def refused_all(requested: Acknowledgements, refused: Results) -> Results:
    return {each: refused.get(each, NOT_ATTEMPTED) for each in requested}


def require_member(who: Acknowledger, broker: ShareBroker) -> None:
    """Raises UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH, or an error if the group coordinator is unavailable.

    No other request of a share session requires membership (docs/spec/share-groups.md#s5-3).
    """
    group = broker.groups.shards.of_key(who.group_id).read_state(lambda core: core.share_group(who.group_id))
    member = None if group is None else group.members.get(who.member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "The member is not known to the share group.")
    if member.epoch != who.member_epoch:
        message = f"The member has epoch {member.epoch}, not {who.member_epoch}."
        raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH, message)


async def load_partitions(requested: Acknowledgements, who: Acknowledger, broker: ShareBroker) -> Results:
    """Loads the share partitions that are not in memory; usually they all are. Returns errors for the share partitions
    that cannot be loaded."""
    loading: dict[TopicIdPartition, Deferred[bool]] = {}
    refused: dict[TopicIdPartition, AcknowledgeResult] = {}
    for each in requested:
        live = broker.shares.find(who.key(each))
        if live is not None and live.phase is SharePartitionPhase.ACTIVE:
            continue
        try:
            placed = broker.partitions.get_by_id(*each)
        except KafkaError as error:
            refused[each] = AcknowledgeResult(error.code, error.message)
        else:
            loading[each] = broker.shares.find_or_load(who.key(each), placed).when_loaded()
    for each, answer in loading.items():
        try:
            await answer
        except KafkaError as error:
            refused[each] = AcknowledgeResult(error.code, error.message)
    return refused


async def register_partitions(requested: Acknowledgements, who: Acknowledger, broker: ShareBroker) -> None:
    """Adds the partitions of `__share_group_state` to the transaction. Starts the transaction if necessary.

    Waits briefly if the previous transaction is not complete yet. Raises KafkaError if the coordinator refuses.
    """
    transactional_id, producer_id, producer_epoch = who.transaction
    assert transactional_id is not None
    partition_for = broker.share_coordinator.partition_for
    partitions = {(SHARE_GROUP_STATE, partition_for(who.key(each))) for each in requested}
    patient_until_ms = broker.clock.now_ms() + REGISTRATION_PATIENCE_MS
    while True:
        answer = broker.transactions.add_partitions(
            transactional_id, producer_id, producer_epoch, partitions, verify_only=False, requested_version=2
        )
        codes = await answer if isinstance(answer, Deferred) else answer
        code = next((each for each in codes.values() if each is not ErrorCode.NONE), ErrorCode.NONE)
        if code is ErrorCode.NONE:
            return
        if code is not ErrorCode.CONCURRENT_TRANSACTIONS or broker.clock.now_ms() >= patient_until_ms:
            raise KafkaError(code)
        await sleep(broker.timers, REGISTRATION_RETRY_MS)


async def make_pending(requested: Acknowledgements, who: Acknowledger, broker: ShareBroker) -> Results:
    """Makes the acknowledgements pending in all partitions. First checks all partitions again, because they may have
    changed while the transaction coordinator was responding.

    Raises KafkaError if the transaction ends or is sealed before everything is stored.
    """
    broker.shares.require_transactions()
    _, producer_id, producer_epoch = who.transaction
    broker.seals.check(producer_id, producer_epoch)
    for each in requested:
        if broker.share_coordinator.shard_for(who.key(each)).core.has_ended(producer_id, producer_epoch):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    refused: dict[TopicIdPartition, AcknowledgeResult] = {}
    for each, acknowledgements in requested.items():
        live = broker.shares.find(who.key(each))
        try:
            if live is None:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            live.require_acquired(who.member_id, acknowledgements, who.transaction)
        except KafkaError as error:
            refused[each] = AcknowledgeResult(error.code, error.message)
    if refused:
        return refused_all(requested, refused)
    must_sync = producer_id in broker.two_phase
    writes = []
    for each, acknowledgements in requested.items():
        live = broker.shares.find(who.key(each))
        assert live is not None
        writes.append(
            live.make_pending(who.member_id, who.member_epoch, acknowledgements, who.transaction, must_sync=must_sync)
        )
    answers = await wait_for_all([each.stored for each in writes])
    return dict(zip(requested, apply_or_undo(writes, answers), strict=True))


def apply_or_undo(writes: Sequence[PendingWrite], answers: Sequence[bool | KafkaError]) -> list[AcknowledgeResult]:
    """Applies the stored writes, or undoes them if another write has failed. If the broker crashes before they are
    undone, nothing is committed either, because the producer must abort.

    raises  INVALID_TXN_STATE if a marker has ended the transaction in the meantime; the transaction coordinator's error
            code if the transaction has been sealed in the meantime
    """
    errors = [each if isinstance(each, KafkaError) else None for each in answers]
    has_failed = any(errors)
    results = []
    for (live, write, _), error in zip(writes, errors, strict=True):
        if error is not None:
            results.append(AcknowledgeResult(translate(Receiver.SHARE_LEADER, error.code), error.message))
        else:
            results.append(NOT_ATTEMPTED if has_failed else DONE)
        if write is None:
            continue
        if error is not None:
            live.not_made_pending(write, error)
        elif has_failed:
            live.undo_pending(write)
        else:
            live.made_pending(write)
    for error in errors:
        if error is not None and error.code in OF_THE_TRANSACTION:
            raise KafkaError(error.code)
    return results
